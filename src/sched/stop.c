#include "sched/stop.h"

bool sn_stop_scan(const struct sn_stop_list *stops, const char *text, size_t from, size_t len, size_t *safe)
{
    for (size_t at = from; at < len; at++) {
        bool could_grow = false;
        for (uint32_t i = 0; i < stops->n; i++) {
            size_t here = sn_min_size(stops->lens[i], len - at);
            if (memcmp(text + at, stops->strings[i], here) != 0)
                continue;
            if (here == stops->lens[i]) {
                *safe = at;
                return true;
            }
            could_grow = true;
        }
        if (could_grow) {
            *safe = at;
            /* A shorter stop string may still be complete further on, inside what is held back. */
            for (size_t later = at + 1; later < len; later++)
                for (uint32_t i = 0; i < stops->n; i++)
                    if (stops->lens[i] <= len - later &&
                        memcmp(text + later, stops->strings[i], stops->lens[i]) == 0) {
                        *safe = later;
                        return true;
                    }
            return false;
        }
    }
    *safe = len;
    return false;
}
