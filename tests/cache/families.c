#include "cache/twin.h"

#define TESTED(name) extern const struct tested_family tested_##name;
#include "cache/tested.list"
#undef TESTED

const struct tested_family *const tested_families[] = {
#define TESTED(name) &tested_##name,
#include "cache/tested.list"
#undef TESTED
    NULL,
};

const struct tested_family *find_tested(const char *name)
{
    for (const struct tested_family *const *f = tested_families; *f; f++)
        if (strcmp((*f)->name, name) == 0)
            return *f;
    return NULL;
}

void small_geometry(const char *family, struct geometry *g)
{
    const struct tested_family *f = find_tested(family);
    if (f && f->small)
        f->small(g);
}

struct retention retention_of(const struct tested_family *family, const struct geometry *g, uint64_t high)
{
    return family->retention ? family->retention(g, high) : (struct retention){0};
}
