#include "kcheck/guard.h"

#include <sys/mman.h>
#include <unistd.h>

enum { SLACK = 0xA5 };

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

bool sn_guard_init(struct sn_guard *g, size_t n_bytes, size_t align, uint8_t fill)
{
    size_t page = page_bytes(), used = sn_round_up(sn_round_up(n_bytes, align), page);
    *g = (struct sn_guard){.n_bytes = n_bytes, .map_bytes = used + 2 * page};
    void *map = mmap(NULL, g->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return false;
    g->map = map;
    uint8_t *first = (uint8_t *)map + page;
    if (used != 0 && mprotect(first, used, PROT_READ | PROT_WRITE) != 0) {
        sn_guard_release(g);
        return false;
    }
    g->data = first + used - sn_round_up(n_bytes, align);
    memset(first, SLACK, used);
    memset(g->data, fill, n_bytes);
    return true;
}

bool sn_guard_intact(const struct sn_guard *g)
{
    size_t page = page_bytes();
    const uint8_t *first = (const uint8_t *)g->map + page, *data = g->data;
    const uint8_t *end = (const uint8_t *)g->map + g->map_bytes - page;
    for (const uint8_t *p = first; p < data; p++)
        if (*p != SLACK)
            return false;
    for (const uint8_t *p = data + g->n_bytes; p < end; p++)
        if (*p != SLACK)
            return false;
    return true;
}

void sn_guard_read_only(struct sn_guard *g, bool on)
{
    size_t page = page_bytes();
    if (g->map_bytes > 2 * page)
        (void)mprotect((uint8_t *)g->map + page, g->map_bytes - 2 * page,
                       on ? PROT_READ : PROT_READ | PROT_WRITE);
}

void sn_guard_release(struct sn_guard *g)
{
    if (g->map)
        (void)munmap(g->map, g->map_bytes);
    *g = (struct sn_guard){0};
}
