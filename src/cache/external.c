/* Families from outside (sennit/family.h) on pages: their functions behind the slots that paged families have. */
#include "cache/external.h"

#include <assert.h>
#include <stdio.h>

#include "cache/kv.h"
#include "cache/paged.h"

enum { LANES = 16, MOST_STRUCT_BYTES = 4096 };
#define MOST_PAGE_BYTES ((size_t)1 << 40) /* so that no sum of sizes overflows */

struct sn_external {
    struct sn_paged paged; /* first */
    struct sn_page_ops pages;
    const struct sennit_family *family; /* borrowed */
    struct sennit_family_geometry g;
    struct sennit_family_span spans[SENNIT_FAMILY_MAX_SPANS];
    char dtype[SENNIT_FAMILY_NAME_BYTES + SENNIT_FAMILY_SIGNATURE_BYTES];
};

static const struct sn_external *external_of(const struct sennit_cache *cache)
{
    return (const struct sn_external *)cache;
}

/* ---- what an outsider can get wrong --------------------------------------------------------------------------- */

static sennit_status check_size(const struct sennit_family *f, struct sennit_error *err)
{
    if (f->struct_bytes < sizeof *f || f->struct_bytes > MOST_STRUCT_BYTES)
        return sn_fail(err, SENNIT_INVALID,
                       "external cache family: struct_bytes is %zu, this library needs %zu; set it to sizeof(struct "
                       "sennit_family)",
                       f->struct_bytes, sizeof *f);
    /* Of a longer struct, the part that this library does not know must not ask for anything. */
    for (size_t i = sizeof *f; i < f->struct_bytes; i++)
        if (((const uint8_t *)f)[i] != 0)
            return sn_fail(err, SENNIT_UNSUPPORTED,
                           "external cache family: it was built for a later library (struct_bytes %zu, here %zu) and "
                           "uses what this one does not know",
                           f->struct_bytes, sizeof *f);
    return SENNIT_OK;
}

static bool good_name(const char *name)
{
    if (!name || name[0] < 'a' || name[0] > 'z')
        return false;
    size_t n = 0;
    for (; name[n] && n < SENNIT_FAMILY_NAME_BYTES; n++)
        if (!(name[n] >= 'a' && name[n] <= 'z') && !(name[n] >= '0' && name[n] <= '9') && name[n] != '-')
            return false;
    return n < SENNIT_FAMILY_NAME_BYTES;
}

static sennit_status check_name(const struct sennit_family *f, struct sennit_error *err)
{
    if (!good_name(f->name))
        return sn_fail(
            err, SENNIT_INVALID,
            "external cache family: its name must be 1 to %d characters of a-z, 0-9 and '-', from a letter "
            "on",
            SENNIT_FAMILY_NAME_BYTES - 1);
    for (const struct sn_family *const *built_in = sn_families; *built_in; built_in++)
        if (strcmp((*built_in)->name, f->name) == 0)
            return sn_fail(err, SENNIT_INVALID,
                           "external cache family '%s': the library has a family of that name; choose another",
                           f->name);
    return SENNIT_OK;
}

static sennit_status check_slots(const struct sennit_family *f, struct sennit_error *err)
{
    const struct {
        bool there;
        const char *name;
    } slots[] = {{f->page_bytes != NULL, "page_bytes"},
                 {f->spans != NULL, "spans"},
                 {f->store != NULL, "store"},
                 {f->fill_tail != NULL, "fill_tail"},
                 {f->load_chunk != NULL, "load_chunk"}};
    for (size_t i = 0; i < SN_ARRAY_LEN(slots); i++)
        if (!slots[i].there)
            return sn_fail(err, SENNIT_INVALID, "external cache family '%s': the slot %s is missing", f->name,
                           slots[i].name);
    if (f->n_spans < 1 || f->n_spans > SENNIT_FAMILY_MAX_SPANS)
        return sn_fail(err, SENNIT_INVALID, "external cache family '%s': n_spans is %u; it must be 1 to %d", f->name,
                       f->n_spans, SENNIT_FAMILY_MAX_SPANS);
    if (f->fields & ~(uint32_t)(SENNIT_FIELDS_TYPES | SENNIT_FIELDS_CODE))
        return sn_fail(err, SENNIT_INVALID,
                       "external cache family '%s': fields is %#x; only SENNIT_FIELDS_TYPES and SENNIT_FIELDS_CODE "
                       "may be in it",
                       f->name, f->fields);
    return SENNIT_OK;
}

sennit_status sn_external_check(const struct sennit_family *f, struct sennit_error *err)
{
    SN_TRY(check_size(f, err));
    SN_TRY(check_name(f, err));
    return check_slots(f, err);
}

static sennit_status check_spans(const struct sennit_family *f, const struct sennit_family_geometry *g,
                                 struct sennit_error *err)
{
    struct sennit_family_span spans[SENNIT_FAMILY_MAX_SPANS] = {0};
    size_t n_bytes = f->page_bytes(g);
    if (n_bytes == 0 || n_bytes > MOST_PAGE_BYTES)
        return sn_fail(err, SENNIT_INVALID,
                       "external cache family '%s': page_bytes gives %zu bytes for %u positions; it must be 1 to %zu",
                       f->name, n_bytes, g->page_tokens, MOST_PAGE_BYTES);
    f->spans(g, spans);
    for (uint32_t i = 0; i < f->n_spans; i++) {
        if (!spans[i].name || spans[i].name[0] == '\0')
            return sn_fail(err, SENNIT_INVALID, "external cache family '%s': span %u has no name", f->name, i);
        if (spans[i].n_bytes > n_bytes || spans[i].offset > n_bytes - spans[i].n_bytes)
            return sn_fail(err, SENNIT_INVALID,
                           "external cache family '%s': span '%s', %zu bytes at %zu, does not fit the page of %zu",
                           f->name, spans[i].name, spans[i].n_bytes, spans[i].offset, n_bytes);
    }
    return SENNIT_OK;
}

struct sennit_family_geometry sn_external_geometry(const struct sennit_cache_config *config)
{
    return (struct sennit_family_geometry){.ctx = config->external->ctx,
                                           .n_kv_heads = config->n_kv_heads,
                                           .d_k = config->d_k,
                                           .d_v = config->d_v,
                                           .page_tokens = sn_page_tokens(config),
                                           .k_type = config->k_type,
                                           .v_type = config->v_type,
                                           .k_bits = config->code.k_bits,
                                           .v_bits = config->code.v_bits,
                                           .group = config->code.group};
}

/* The family's own text; false for one that is too long or not printable. */
static bool own_text(const struct sennit_family *f, const struct sennit_family_geometry *g,
                     char text[SENNIT_FAMILY_SIGNATURE_BYTES])
{
    memset(text, 0, SENNIT_FAMILY_SIGNATURE_BYTES);
    if (f->signature)
        f->signature(g, text, SENNIT_FAMILY_SIGNATURE_BYTES);
    size_t n = 0;
    for (; n < SENNIT_FAMILY_SIGNATURE_BYTES && text[n]; n++)
        if (text[n] < ' ' || text[n] > '~')
            return false;
    return n < SENNIT_FAMILY_SIGNATURE_BYTES;
}

static sennit_status external_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    const struct sennit_family *f = config->external;
    char reason[256] = "", text[SENNIT_FAMILY_SIGNATURE_BYTES];
    SN_TRY(sn_external_check(f, err));
    if (config->family && strcmp(config->family, f->name) != 0)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: family is '%s' and external is '%s'; leave family NULL, or make it the same",
                       config->family, f->name);
    struct sennit_cache_config named = *config; /* for messages */
    named.family = f->name;
    SN_TRY(sn_config_only(&named, SN_CONFIG_HEADS | SN_CONFIG_PAGES | f->fields, err));
    SN_TRY(sn_kv_check_dims(config, err));
    SN_TRY(sn_page_tokens_check(config, err));
    struct sennit_family_geometry g = sn_external_geometry(config);
    if (f->check && !f->check(&g, reason, sizeof reason)) {
        reason[sizeof reason - 1] = '\0';
        return sn_fail(err, SENNIT_INVALID, "cache config: family '%s': %s", f->name,
                       reason[0] ? reason : "it refuses this geometry");
    }
    if (!own_text(f, &g, text))
        return sn_fail(err, SENNIT_INVALID,
                       "external cache family '%s': signature must give at most %d printable characters", f->name,
                       SENNIT_FAMILY_SIGNATURE_BYTES - 1);
    return check_spans(f, &g, err);
}

/* "f8 e4m3 kv 3 k 64 v 64 / p16": all that two stores must share. */
static void external_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    const struct sennit_family *f = config->external;
    struct sennit_family_geometry g = sn_external_geometry(config);
    char text[SENNIT_FAMILY_SIGNATURE_BYTES], types[48] = "", code[48] = "";
    own_text(f, &g, text);
    if (f->fields & SENNIT_FIELDS_TYPES)
        snprintf(types, sizeof types, " %s %s", sennit_type_name(g.k_type), sennit_type_name(g.v_type));
    if (f->fields & SENNIT_FIELDS_CODE)
        snprintf(code, sizeof code, " k%u v%u g%u", g.k_bits, g.v_bits, g.group);
    snprintf(out, n_bytes, "%s%s%s%s%s kv %u k %u v %u", f->name, text[0] ? " " : "", text, types, code, g.n_kv_heads,
             g.d_k, g.d_v);
    sn_page_tokens_sign(config, out, n_bytes);
}

/* ---- pages ---------------------------------------------------------------------------------------------------- */

static void external_store(const struct sennit_cache *cache, uint8_t *data, size_t slot, sennit_role role,
                           uint32_t first_head, uint32_t n_heads, const float *x, uint32_t worker)
{
    const struct sn_external *c = external_of(cache);
    (void)worker;
    assert((role == SENNIT_ROLE_KEY || role == SENNIT_ROLE_VALUE) && first_head + n_heads <= c->g.n_kv_heads);
    c->family->store(&c->g, data, (uint32_t)slot, role, first_head, n_heads, x);
}

static void external_fill_tail(const struct sennit_cache *cache, uint8_t *data, size_t from, uint8_t byte)
{
    const struct sn_external *c = external_of(cache);
    c->family->fill_tail(&c->g, data, (uint32_t)from, byte);
}

static void external_views(const struct sennit_cache *cache, const uint8_t *data, uint32_t row, uint64_t pos,
                           uint64_t n_tokens, struct sennit_span_view *out)
{
    const struct sn_external *c = external_of(cache);
    for (size_t i = 0; i < c->family->n_spans; i++)
        out[i] = (struct sennit_span_view){.name = c->spans[i].name,
                                           .type = c->spans[i].type,
                                           .row = row,
                                           .pos = pos,
                                           .n_tokens = n_tokens,
                                           .data = data + c->spans[i].offset,
                                           .n_bytes = c->spans[i].n_bytes};
}

static sennit_status external_init(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_external *c = (struct sn_external *)cache;
    char text[SENNIT_FAMILY_SIGNATURE_BYTES];
    (void)err;
    c->family = cache->config.external;
    c->g = sn_external_geometry(&cache->config);
    cache->config.family = c->family->name;
    own_text(c->family, &c->g, text);
    snprintf(c->dtype, sizeof c->dtype, "%s%s%s", c->family->name, text[0] ? " " : "", text);
    c->family->spans(&c->g, c->spans);
    c->pages = (struct sn_page_ops){.store = external_store,
                                    .fill_tail = external_fill_tail,
                                    .n_views = c->family->n_spans,
                                    .views = external_views};
    sn_paged_init(cache, &c->pages, c->family->page_bytes(&c->g));
    return SENNIT_OK;
}

static const char *external_dtype(const struct sennit_cache *cache)
{
    return external_of(cache)->dtype;
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

static size_t key_floats(const struct sn_external *c)
{
    return SN_CHUNK_KEYS * (size_t)c->g.d_k;
}

static size_t value_floats(const struct sn_external *c)
{
    return SN_CHUNK_KEYS * (size_t)c->g.d_v;
}

/* One chunk of keys as the outsider gives them, then 4 panels of keys and 4 of values as the core reads them. Each
 * part is a multiple of 64 floats, so all of them are aligned. */
static size_t external_segment_bytes(const struct sn_attend_source *src, size_t n_q)
{
    const struct sn_external *c = external_of(src->cache);
    (void)n_q;
    return (key_floats(c) + SN_SEGMENT_CHUNKS * (key_floats(c) + value_floats(c))) * sizeof(float);
}

/* 16 keys, [16][d_k], into lanes, [d_k][16]. */
static void turn(const float *restrict from, size_t d_k, float *restrict to)
{
    for (size_t d = 0; d < d_k; d++)
        for (size_t j = 0; j < LANES; j++)
            to[d * LANES + j] = from[j * d_k + d];
}

static void load(const struct sn_attend_job *job, const struct sn_external *c, uint64_t first, uint64_t wanted,
                 float *rows, float *k, float *v)
{
    struct sn_page *const *pages = job->row_data;
    const void *data[SN_CHUNK_KEYS];
    size_t size = c->g.page_tokens;
    uint64_t mask = UINT64_MAX >> (SN_CHUNK_KEYS - size);
    for (size_t lane = 0; lane < SN_CHUNK_KEYS; lane += size)
        data[lane / size] = wanted >> lane & mask ? pages[(first + lane) / size]->data : NULL;
    struct sennit_family_chunk chunk = {.pages = data, .wanted = wanted, .kv_head = job->kv_head};
    c->family->load_chunk(&c->g, &chunk, rows, v);
    for (size_t j = 0; j < SN_CHUNK_KEYS; j += LANES)
        if (wanted >> j & 0xFFFF)
            turn(rows + j * c->g.d_k, c->g.d_k, k + j * c->g.d_k);
}

static void external_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    const struct sn_external *c = external_of(job->src.cache);
    const void *k[SN_SEGMENT_CHUNKS], *v[SN_SEGMENT_CHUNKS];
    float *rows = job->work.segment, *keys = rows + key_floats(c), *values = keys + SN_SEGMENT_CHUNKS * key_floats(c);
    for (size_t i = 0; i < s->n_chunks; i++) {
        float *key = keys + i * key_floats(c), *value = values + i * value_floats(c);
        k[i] = key;
        v[i] = value;
        if (s->seen[i])
            load(job, c, s->first + i * SN_CHUNK_KEYS, s->seen[i], rows, key, value);
    }
    sn_attend_slot(job, s, job->pool->kernels->attn_f32, SN_K_attn_f32, k, v);
}

static const struct sn_attend_ops external_attend = {
    .row_bytes = sn_paged_list_bytes,
    .row_fill = sn_paged_list,
    .segment_bytes = external_segment_bytes,
    .segment = external_segment,
};

const struct sn_family sn_family_external = {
    .name = "external",
    .takes = SN_CONFIG_HEADS | SN_CONFIG_TYPES | SN_CONFIG_PAGES | SN_CONFIG_CODE, /* by each one's `fields` */
    .object_bytes = sizeof(struct sn_external),
    .trimmable = true,
    .attend = &external_attend,
    .check = external_check,
    .signature = external_signature,
    .init = external_init,
    SN_PAGED_ROW_SLOTS,
    .dtype = external_dtype,
    .donor_attend = sn_attend_donor,
    SN_PAGED_STEP_SLOTS,
    SN_ATTEND_SLOTS,
};
