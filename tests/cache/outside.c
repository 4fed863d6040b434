#include "cache/outside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/paged.h"

static struct {
    const struct sennit_conformance *it; /* NULL: none is loaded */
    const struct sennit_family *used;    /* its family, or a wrong one */
    struct tested_family tested;
} outside;

/* ---- the twin ------------------------------------------------------------------------------------------------- */

struct twin {
    const struct geometry *g;
    struct sennit_family_geometry its_g;
    void *its;
    float *k, *v; /* of one token */
};

static struct twin *twin_create(const struct geometry *g)
{
    struct twin *t = must(calloc(1, sizeof *t));
    const struct sennit_cache_config *c = &g->config;
    t->g = g;
    t->k = must(malloc((size_t)c->n_kv_heads * c->d_k * sizeof *t->k));
    t->v = must(malloc((size_t)c->n_kv_heads * c->d_v * sizeof *t->v));
    t->its_g = sn_external_geometry(c);
    t->its = outside.it->create(&t->its_g, g->group);
    if (!t->its)
        die("%s: create gave no twin", outside.tested.name);
    return t;
}

static void twin_release(struct twin *t)
{
    if (!t)
        return;
    outside.it->release(t->its);
    free(t->k);
    free(t->v);
    free(t);
}

static void twin_append(struct twin *t, uint64_t token)
{
    const struct sennit_cache_config *c = &t->g->config;
    token_vector(token, SENNIT_ROLE_KEY, (size_t)c->n_kv_heads * c->d_k, t->k);
    token_vector(token, SENNIT_ROLE_VALUE, (size_t)c->n_kv_heads * c->d_v, t->v);
    outside.it->append(t->its, t->k, t->v);
}

static void twin_cut(struct twin *t, uint64_t n_tokens)
{
    outside.it->cut(t->its, n_tokens);
}

static double twin_attend(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                          const float *sink, double *out)
{
    struct sennit_twin_query query = {.q = q,
                                      .head = head,
                                      .n_keys = n_keys,
                                      .mask = mask,
                                      .scale = t->g->scale,
                                      .soft_cap = t->g->soft_cap,
                                      .sink = sink};
    return outside.it->attend(t->its, &query, out);
}

static const struct twin_ops twin_outside = {
    .create = twin_create,
    .release = twin_release,
    .append = twin_append,
    .cut = twin_cut,
    .attend = twin_attend,
};

/* ---- the line of tested.list ---------------------------------------------------------------------------------- */

static uint32_t up_to_multiple(uint32_t d)
{
    uint32_t m = outside.it->d_multiple;
    return m ? (d + m - 1) / m * m : d;
}

static void outside_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    struct sennit_cache_config *c = &g->config;
    kv_geometry(rng, g, outside.used->fields & SENNIT_FIELDS_TYPES ? type : SENNIT_F32, large);
    c->external = outside.used;
    c->d_k = up_to_multiple(c->d_k);
    c->d_v = up_to_multiple(c->d_v);
    uint64_t random = rng_next(rng);
    if (!outside.it->geometry)
        return;
    struct sennit_family_geometry its = sn_external_geometry(c);
    outside.it->geometry(random, &its);
    c->n_kv_heads = its.n_kv_heads;
    c->d_k = its.d_k;
    c->d_v = its.d_v;
    c->k_type = its.k_type;
    c->v_type = its.v_type;
    c->code.k_bits = its.k_bits;
    c->code.v_bits = its.v_bits;
    c->code.group = its.group;
}

static void walk_outside(const struct sennit_cache *cache, uint32_t row,
                         void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    walk_pages(cache, row, &sn_paged_of(cache)->paging, visit, ctx);
}

static uint8_t *outside_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans,
                                  size_t n_spans, uint64_t n_tokens, size_t *n_bytes)
{
    struct sennit_family_geometry g = sn_external_geometry(&like->config);
    size_t bytes = outside.it->token_bytes(&g), n = outside.used->n_spans;
    uint64_t next = 0;
    *n_bytes = n_tokens * bytes;
    if (n_tokens == 0)
        return NULL;
    uint8_t *out = must(calloc(n_tokens, bytes));
    CHECK(n_spans % n == 0);
    for (size_t i = 0; i < n_spans; i += n) {
        for (size_t k = 0; k < n; k++)
            CHECK(spans[i + k].pos == next && spans[i + k].n_tokens == spans[i].n_tokens);
        for (uint32_t slot = 0; slot < spans[i].n_tokens; slot++, next++) {
            CHECK(next < n_tokens);
            outside.it->token(&g, spans + i, slot, out + next * bytes);
        }
    }
    CHECK(next == n_tokens);
    return out;
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

static const struct sennit_conformance *pick(const char *path, const struct sennit_conformance *const *list,
                                             const char *name)
{
    char names[512] = "";
    size_t n = 0;
    const struct sennit_conformance *found = NULL;
    for (; list && list[n]; n++) {
        if (list[n]->struct_bytes < sizeof **list || !list[n]->family)
            die("%s: entry %zu: struct_bytes is %zu, not %zu, or it has no family", path, n, list[n]->struct_bytes,
                sizeof **list);
        const char *its = list[n]->family->name ? list[n]->family->name : "(null)";
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", n ? ", " : "", its);
        if (!name || strcmp(its, name) == 0)
            found = found ? found : list[n];
    }
    if (n == 0)
        die("%s: %s lists no families", path, SENNIT_CONFORMANCE_ENTRY);
    if (!found)
        die("%s: there is no family '%s'; there are: %s", path, name, names);
    if (!name && n > 1)
        die("%s has several families: choose one with --family: %s", path, names);
    return found;
}

static void check_entry(const char *path, const struct sennit_conformance *c)
{
    const struct {
        bool there;
        const char *name;
    } slots[] = {{c->create != NULL, "create"}, {c->release != NULL, "release"},
                 {c->append != NULL, "append"}, {c->cut != NULL, "cut"},
                 {c->attend != NULL, "attend"}, {c->token_bytes != NULL, "token_bytes"},
                 {c->token != NULL, "token"}};
    for (size_t i = 0; i < SN_ARRAY_LEN(slots); i++)
        if (!slots[i].there)
            die("%s: family '%s': %s is missing in its struct sennit_conformance", path, c->family->name,
                slots[i].name);
    struct sennit_error err = {0};
    if (sn_external_check(c->family, &err) != SENNIT_OK)
        die("%s: %s", path, err.message);
}

/* Pages of all sizes in a few geometries, before anything runs on them. */
static void check_pages(uint64_t seed)
{
    struct rng rng = {seed};
    for (int i = 0; i < 24; i++) {
        struct geometry g = {0};
        outside_geometry(&rng, &g, i % 3 == 0 ? SENNIT_F32 : i % 3 == 1 ? SENNIT_F16 : SENNIT_BF16, false);
        g.config.page_tokens = 1u << i % 7;
        struct sennit_pool *pool;
        struct sennit_cache *c;
        OK(sennit_pool_create(&pool, NULL, err));
        OK(sennit_cache_create(&c, pool, &g.config, 0, err));
        struct sennit_family_geometry page = sn_external_geometry(&c->config);
        sennit_cache_dispose(&c);
        sennit_pool_free(pool);
        check_layout(outside.used, &page, rng_next(&rng));
    }
}

const struct tested_family *load_outside(const char *path, const char *name, uint64_t seed)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        die("cannot load %s", dlerror());
    sennit_conformance_entry entry;
    void *symbol = dlsym(object, SENNIT_CONFORMANCE_ENTRY);
    if (!symbol)
        die("%s does not export %s", path, SENNIT_CONFORMANCE_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    outside.it = pick(path, entry(), name);
    check_entry(path, outside.it);
    outside.used = outside.it->family;
    outside.tested = (struct tested_family){.name = outside.it->family->name,
                                            .twin = &twin_outside,
                                            .geometry = outside_geometry,
                                            .d_step = outside.it->d_multiple,
                                            .paged = true,
                                            .oracles = {outside.it->family->name, NULL},
                                            .walk = walk_outside,
                                            .canonical = outside_canonical};
    check_pages(seed);
    add_tested(&outside.tested);
    return &outside.tested;
}

const char *spoil_outside(unsigned variant)
{
    const char *what = NULL;
    const struct sennit_family *wrong = outside.it->wrong ? outside.it->wrong(variant, &what) : NULL;
    if (!wrong)
        return NULL;
    if (!wrong->name || strcmp(wrong->name, outside.it->family->name) != 0)
        die("wrong variant %u has another name than '%s'", variant, outside.it->family->name);
    outside.used = wrong;
    return what ? what : "(it does not say)";
}
