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
