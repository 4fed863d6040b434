/* Philox4x32-10: a counter-based random generator (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). A draw is a pure function of (seed, choice, step), so a row's draws do not depend on its
 * company. */
#ifndef SN_PHILOX_H
#define SN_PHILOX_H

#include <stdint.h>

/* Ten rounds over counter[4] with key[2]; the result replaces the counter. */
void sn_philox4x32(uint32_t counter[4], const uint32_t key[2]);

/* u in [0, 1): the top 24 bits of word 0 of Philox(key = seed low, high; counter = step low, high, choice, 0),
 * times 2^-24. */
float sn_draw(uint64_t seed, uint32_t choice, uint64_t step);

#endif
