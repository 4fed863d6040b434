#include "cache/forms.h"

#include <stdio.h>

#include "cache/plain.h"
#include "tensor/traits.h"

/* ---- configuration -------------------------------------------------------------------------------------------- */

static struct sennit_cache_config plain_config(const struct sennit_cache_config *geometry)
{
    return (struct sennit_cache_config){.family = "plain",
                                        .n_kv_heads = geometry->n_kv_heads,
                                        .d_k = geometry->d_k,
                                        .d_v = geometry->d_v,
                                        .k_type = geometry->k_type,
                                        .v_type = geometry->v_type,
                                        .max_tokens = geometry->max_tokens,
                                        .max_span = geometry->max_span,
                                        .round_depth = geometry->round_depth,
                                        .page_tokens = geometry->page_tokens,
                                        .n_snapshots = geometry->n_snapshots};
}

static struct sennit_cache_config encoded_config(const struct sennit_cache_config *geometry,
                                                 const struct sennit_cache_config *inner)
{
    struct sennit_cache_config config = plain_config(geometry);
    config.family = inner->family;
    config.k_type = config.v_type = 0;
    config.code = inner->code;
    config.external = inner->external;
    return config;
}

/* Pages of the two forms hold the same positions; an encoded one takes no more room. */
static sennit_status check_sizes(const struct sn_forms *f, struct sennit_error *err)
{
    uint64_t plain = sn_page_bytes(&sn_paged_of(f->plain)->paging);
    uint64_t encoded = sn_page_bytes(&sn_paged_of(f->encoded)->paging);
    if (encoded <= plain)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID,
                   "cache config: pages of '%s' take %llu bytes, more than plain ones in %s, %llu: nothing to delay",
                   f->encoded->lineage->signature, (unsigned long long)encoded,
                   sennit_type_name(f->plain->config.k_type), (unsigned long long)plain);
}

sennit_status sn_forms_check(const struct sennit_cache_config *geometry, const struct sennit_cache_config *delayed,
                             struct sennit_error *err)
{
    if (delayed->start > SN_FORMS_MAX_START)
        return sn_fail(err, SENNIT_INVALID, "cache config: start is %llu; it must be 0 to %d",
                       (unsigned long long)delayed->start, SN_FORMS_MAX_START);
    if (!delayed->inner || delayed->n_inner != 1)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: family 'delayed' needs one inner family, the encoded form, not %u",
                       delayed->inner ? delayed->n_inner : 0);
    const struct sennit_cache_config *inner = &delayed->inner[0];
    const struct sn_family *ops = sn_paged_family(inner);
    if (!ops || ops == &sn_family_plain)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: family '%s' is no encoded form of keys and values: name one, as 'affine'",
                       inner->family ? inner->family : "(null)");
    SN_TRY(sn_config_bare(inner, "delayed", err));
    SN_TRY(sn_config_only(inner, SN_CONFIG_CODE, err));
    struct sennit_cache_config full = plain_config(geometry);
    SN_TRY(sn_family_plain.check(&full, err));
    full = encoded_config(geometry, inner);
    return ops->check(&full, err);
}

void sn_forms_signature(const struct sennit_cache_config *geometry, const struct sennit_cache_config *delayed,
                        char *out, size_t n_bytes)
{
    struct sennit_cache_config full = encoded_config(geometry, &delayed->inner[0]);
    int n = snprintf(out, n_bytes, "delayed %llu / plain %s / ", (unsigned long long)delayed->start,
                     sennit_type_name(geometry->k_type));
    if (n > 0 && (size_t)n < n_bytes)
        sn_paged_family(&full)->signature(&full, out + n, n_bytes - (size_t)n);
}

sennit_status sn_forms_init(struct sn_forms *f, struct sennit_pool *pool, const struct sennit_cache_config *geometry,
                            const struct sennit_cache_config *delayed, struct sennit_error *err)
{
    struct sennit_cache_config full = plain_config(geometry);
    f->start = delayed->start;
    f->inner = delayed->inner[0];
    SN_TRY(sennit_cache_create(&f->plain, pool, &full, 0, err));
    full = encoded_config(geometry, &f->inner);
    SN_TRY(sennit_cache_create(&f->encoded, pool, &full, 0, err));
    f->inner.family = f->encoded->config.family; /* the family's own name, for ever */
    return check_sizes(f, err);
}

void sn_forms_release(struct sn_forms *f)
{
    sennit_cache_dispose(&f->plain);
    sennit_cache_dispose(&f->encoded);
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

/* Is the row's change due, and may it not be made now? */
static bool is_held(const struct sn_forms *f, const struct sennit_cache *cache, const struct sn_row *row)
{
    return sn_form_due(f, row) && (cache->prefill_open || (cache->round_open && row->n_window > 0));
}

uint64_t sn_form_max_append(const struct sn_forms *f, const struct sennit_cache *cache, const struct sn_row *row)
{
    if (is_held(f, cache, row))
        return 0;
    return f->encoded && row->n_tokens < f->start ? f->start - row->n_tokens : SENNIT_UNBOUNDED;
}

struct sn_row sn_form_untrimmed(const struct sn_forms *f, uint64_t tokens)
{
    return (struct sn_row){.n_tokens = tokens, .floor = f->encoded && tokens > f->start ? f->start : 0};
}

sennit_status sn_form_check_floor(const struct sn_forms *f, const struct sn_row *row, struct sennit_error *err)
{
    bool plain = row->floor == 0 && (!f->encoded || f->start == 0 || row->n_tokens <= f->start);
    bool encoded = row->floor > 0 && f->encoded && row->floor == f->start && row->n_tokens >= f->start;
    if (plain || encoded)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_FORMAT, "saved row: of %llu tokens, the reusable offset is said to be %llu",
                   (unsigned long long)row->n_tokens, (unsigned long long)row->floor);
}

uint64_t sn_forms_bytes_per_token(const struct sn_forms *f, const struct sennit_cache *cache)
{
    bool plain = !f->encoded || (cache->n_rows == 0 && f->start > 0);
    for (uint32_t i = 0; i < cache->n_rows && !plain; i++)
        plain = !sn_form_encoded(f, &cache->rows[i]) && !sn_form_due(f, &cache->rows[i]);
    return sn_paged_bytes_per_token(plain ? f->plain : f->encoded);
}

static const char *dtype_of(const struct sennit_cache *form)
{
    return form->ops->dtype ? form->ops->dtype(form) : sennit_type_name(form->config.k_type);
}

const char *sn_forms_dtype(const struct sn_forms *f, const struct sennit_cache *cache)
{
    const struct sennit_cache *form = f->encoded && f->start == 0 ? f->encoded : f->plain;
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        if (i > 0 && sn_form(f, &cache->rows[i]) != form)
            return "mixed";
        form = sn_form(f, &cache->rows[i]);
    }
    return dtype_of(form);
}

sennit_status sn_forms_check_step(const struct sn_forms *f, const struct sennit_cache *cache,
                                  struct sennit_error *err)
{
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        const struct sennit_span *span = &cache->step.spans[i];
        const struct sn_row *row = &cache->rows[span->row];
        if (is_held(f, cache, row))
            return sn_fail(err, SENNIT_RANGE,
                           "append_begin: row %u changes its precision at %llu tokens, where it stands, and %s",
                           span->row, (unsigned long long)f->start,
                           cache->prefill_open ? "the change is suspended: commit_prefill or end_prefill first"
                                               : "this verify round began before: end it first");
        if (span->n_tokens > sn_form_max_append(f, cache, row))
            return sn_fail(err, SENNIT_RANGE,
                           "append_begin: row %u changes its precision at %llu tokens; a span of %u at %llu crosses "
                           "it: cut it where max_append_tokens says",
                           span->row, (unsigned long long)f->start, span->n_tokens, (unsigned long long)span->pos);
    }
    return SENNIT_OK;
}

/* ---- one page ------------------------------------------------------------------------------------------------- */

/* Keys lie side by side in panels of `lanes` positions: a panel as f32, then a key of it. */
static size_t scratch_floats(const struct sn_kv_layout *l)
{
    return sn_max_size(((size_t)l->lanes + 1) * l->d_k, l->d_v);
}

sennit_status sn_forms_reserve(const struct sn_forms *f, struct sennit_error *err)
{
    size_t n_bytes = scratch_floats(&sn_plain_of(f->plain)->layout) * sizeof(float);
    return sn_cache_pool_reserve_workers(f->plain->pool, n_bytes, err);
}

sennit_status sn_forms_reserve_step(struct sn_forms *f, struct sennit_cache *cache, struct sennit_error *err)
{
    if (f->encoded)
        SN_TRY(sn_forms_reserve(f, err));
    f->stepping = true;
    sennit_status status = sn_attend_reserve(cache, err);
    f->stepping = status == SENNIT_OK; /* readers of this cache reserve theirs before the change is made */
    return status;
}

static void recode_keys(const struct sn_forms *f, const uint8_t *from, uint32_t head, size_t n_slots, uint8_t *to)
{
    const struct sn_kv_layout *l = &sn_plain_of(f->plain)->layout;
    float *panel = f->plain->pool->worker[0].data, *key = panel + (size_t)l->lanes * l->d_k;
    for (size_t first = 0; first < n_slots; first += l->lanes) {
        sn_dequantize_row(f->plain->config.k_type, sn_kv_key_at(l, (uint8_t *)(uintptr_t)from, head, first),
                          (size_t)l->lanes * l->d_k, panel);
        for (size_t lane = 0; lane < l->lanes && first + lane < n_slots; lane++) {
            for (size_t d = 0; d < l->d_k; d++)
                key[d] = panel[d * l->lanes + lane];
            sn_paged_of(f->encoded)->ops->store(f->encoded, to, first + lane, SENNIT_ROLE_KEY, head, 1, key, 0);
        }
    }
}

static void recode_values(const struct sn_forms *f, const uint8_t *from, uint32_t head, size_t n_slots, uint8_t *to)
{
    const struct sn_kv_layout *l = &sn_plain_of(f->plain)->layout;
    float *value = f->plain->pool->worker[0].data;
    for (size_t slot = 0; slot < n_slots; slot++) {
        sn_dequantize_row(f->plain->config.k_type, sn_kv_value_at(l, (uint8_t *)(uintptr_t)from, head, slot), l->d_v,
                          value);
        sn_paged_of(f->encoded)->ops->store(f->encoded, to, slot, SENNIT_ROLE_VALUE, head, 1, value, 0);
    }
}

/* What is encoded is what was stored, not what once came in: the row's past is what its queries read until now. */
static void recode_page(const void *ctx, const uint8_t *from, size_t n_slots, uint8_t *to)
{
    const struct sn_forms *f = ctx;
    for (uint32_t head = 0; head < f->plain->config.n_kv_heads; head++) {
        recode_keys(f, from, head, n_slots, to);
        recode_values(f, from, head, n_slots, to);
    }
}

struct sn_recoding sn_forms_recoding(const struct sn_forms *f)
{
    return (struct sn_recoding){.from = &sn_paged_of(f->plain)->paging,
                                .to = &sn_paged_of(f->encoded)->paging,
                                .page = recode_page,
                                .ctx = f};
}
