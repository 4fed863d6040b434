/* Buffers that end at a protected page: a kernel that reads or writes one element too far is
 * stopped at once, also where sanitizers do not look (masked loads, inline assembly). */
#ifndef SN_GUARD_H
#define SN_GUARD_H

#include "base/base.h"

struct sn_guard {
    void *data; /* n_bytes, aligned as asked, ending at a protected page (up to align - 1 bytes
                   before it) */
    size_t n_bytes;
    void *map; /* the whole mapping, protected pages at both ends */
    size_t map_bytes;
};

/* align: a power of two up to the page size. All bytes start as `fill`. n_bytes may be 0. With
 * n_bytes a multiple of align the last byte is the one before the protected page; the slack of
 * other sizes is checked by sn_guard_intact(). False when the system refuses the memory. */
bool sn_guard_init(struct sn_guard *g, size_t n_bytes, size_t align, uint8_t fill);
/* False when something outside data[0 .. n_bytes - 1] was written in the pages that are not
 * protected. */
bool sn_guard_intact(const struct sn_guard *g);
/* Makes the data read-only (or writable again): a kernel that writes its input is stopped. */
void sn_guard_read_only(struct sn_guard *g, bool on);
void sn_guard_release(struct sn_guard *g); /* a zeroed guard is fine */

#endif
