/* Stop strings over a growing text. */
#ifndef SN_STOP_H
#define SN_STOP_H

#include "base/base.h"

struct sn_stop_list {
    char **strings; /* [n] none empty */
    size_t *lens;
    uint32_t n;
};

/* text[from .. len) is what was not yet given out. *safe: how many bytes from the start of text may be given out now:
 * up to the first stop string, or up to the longest end that could still become one. Returns whether a stop string is
 * there; the earliest start wins. */
bool sn_stop_scan(const struct sn_stop_list *stops, const char *text, size_t from, size_t len, size_t *safe);

#endif
