/* Families from outside under the suite: a shared object's struct sennit_conformance as a line of tested.list. */
#ifndef CACHE_OUTSIDE_H
#define CACHE_OUTSIDE_H

#include "cache/external.h"
#include "cache/twin.h"
#include "sennit/conformance.h"

/* Opens the object and takes the family of that name, or its only one for NULL; find_tested knows it from then on.
 * Dies, and says why, of everything that is wrong with it, its pages included (check_layout). */
const struct tested_family *load_outside(const char *path, const char *name, uint64_t seed);
/* From now on its caches are of the wrong variant; returns what is wrong, NULL when there is none of that number. */
const char *spoil_outside(unsigned variant);

/* layout.c: what a family does to the bytes of a page, for a geometry: every byte belongs to one position, is written
 * by one (role, head) of it, filled by fill_tail from there on, and is in one span; loading a key reads its own
 * position alone; nothing outside the page is touched. Dies of the first breach. */
void check_layout(const struct sennit_family *family, const struct sennit_family_geometry *g, uint64_t seed);

#endif
