#include "cache/twin.h"

#include <math.h>
#include <stdlib.h>

#define TESTED(name) extern const struct tested_family tested_##name;
#include "cache/tested.list"
#undef TESTED

const struct tested_family *const tested_families[] = {
#define TESTED(name) &tested_##name,
#include "cache/tested.list"
#undef TESTED
    NULL,
};

static const struct tested_family *added;

void add_tested(const struct tested_family *f)
{
    added = f;
}

const struct tested_family *find_tested(const char *name)
{
    if (added && strcmp(added->name, name) == 0)
        return added;
    for (const struct tested_family *const *f = tested_families; *f; f++)
        if (strcmp((*f)->name, name) == 0)
            return *f;
    return NULL;
}

const struct tested_family *tested_of(const struct sennit_cache *cache)
{
    const char *name = cache->config.family;
    if (added && strcmp(added->name, name) == 0)
        return added;
    for (const struct tested_family *const *f = tested_families; *f; f++)
        if (strcmp(family_of(*f), name) == 0 || ((*f)->also && strcmp((*f)->also, name) == 0))
            return *f;
    die("family '%s' has no line in tested.list", name);
}

void small_geometry(const struct tested_family *f, struct geometry *g)
{
    g->config.family = family_of(f);
    if (f->small)
        f->small(g);
}

void all_families_are_tested(void)
{
    for (const char *const *name = sennit_cache_families(); *name; name++) {
        bool found = false;
        for (const struct tested_family *const *f = tested_families; *f; f++)
            found |= strcmp(family_of(*f), *name) == 0 || ((*f)->also && strcmp((*f)->also, *name) == 0);
        if (!found)
            die("family '%s' has no line in tested.list", *name);
    }
}

struct retention retention_of(const struct tested_family *family, const struct geometry *g, uint64_t high)
{
    return family->retention ? family->retention(g, high) : (struct retention){0};
}

uint64_t precision_start(const struct sennit_cache_config *config)
{
    uint64_t start = strcmp(config->family, "delayed") == 0 && config->start > 0 ? config->start : UINT64_MAX;
    for (uint32_t i = 0; i < config->n_inner; i++) {
        uint64_t inner = precision_start(&config->inner[i]);
        start = inner < start ? inner : start;
    }
    return start;
}

double textbook_share(const struct twin_ops *ops, const struct geometry *g, const uint64_t *tokens, uint32_t n,
                      const float *out)
{
    struct twin *twin = ops->create(g);
    size_t heads = n_heads_of(g), d_q = d_q_of(g), d_out = d_out_of(g);
    float *q = must(malloc(heads * d_q * sizeof *q));
    double *want = must(malloc(d_out * sizeof *want)), worst = 0;
    for (uint32_t i = 0; i < n; i++)
        ops->append(twin, tokens[i]);
    token_query(tokens[n - 1], heads * d_q, q);
    for (uint32_t h = 0; h < heads; h++) {
        double bound = ops->attend(twin, q + h * d_q, h, n, NULL, NULL, want);
        for (size_t d = 0; d < d_out; d++) {
            double error = fabs((double)out[h * d_out + d] - want[d]);
            worst = fmax(worst, isnan(error) ? INFINITY : error / bound);
        }
    }
    ops->release(twin);
    free(q);
    free(want);
    return worst;
}
