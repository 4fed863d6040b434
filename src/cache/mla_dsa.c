/* Family "mla-dsa": the compressed keys and values of mla.h under sparse attention. A cache with an indexer keeps an
 * index key per token and selects the top_k keys of each query token; one without (index.from) takes the selection
 * that another layer made in the same step. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "cache/mla.h"
#include "cache/selection.h"

struct dsa {
    struct sn_mla mla; /* first */
    struct sn_selection *selection;
    struct sn_lineage *source; /* whose step is read; NULL: own indexer */
    sn_index_fn index;
    enum sn_kernel_id index_id;
};

static struct dsa *dsa_of(const struct sennit_cache *cache)
{
    return (struct dsa *)(uintptr_t)cache;
}

static bool reads(const struct sennit_cache *cache)
{
    return cache->config.index.from != NULL;
}

/* ---- geometry ------------------------------------------------------------------------------------------------- */

static sennit_status check_number(const char *field, uint32_t value, uint32_t most, struct sennit_error *err)
{
    if (value >= 1 && value <= most)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: %s is %u; it must be 1 to %u", field, value, most);
}

static sennit_status check_own(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(check_number("index.n_heads", config->index.n_heads, SN_KV_MAX_DIM, err));
    SN_TRY(check_number("index.d_index", config->index.d_index, SN_KV_MAX_DIM, err));
    SN_TRY(check_number("index.top_k", config->index.top_k, SN_MLA_MAX_TOP_K, err));
    if (config->index.type != SENNIT_F32 && config->index.type != SENNIT_F16)
        return sn_fail(err, SENNIT_INVALID, "cache config: index.type %s cannot be stored here: use F32 or F16",
                       sennit_type_name(config->index.type));
    return SENNIT_OK;
}

static sennit_status check_from(const struct sennit_cache_config *config, struct sennit_error *err)
{
    const struct sennit_cache *from = config->index.from;
    if (config->index.n_heads != 0 || config->index.d_index != 0 || config->index.type != 0)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: index.n_heads, d_index and type mean nothing beside index.from; leave them 0");
    if (strcmp(from->ops->name, "mla-dsa") != 0)
        return sn_fail(err, SENNIT_INVALID, "cache config: index.from is of family '%s', not mla-dsa",
                       from->ops->name);
    if (config->index.top_k != from->config.index.top_k)
        return sn_fail(err, SENNIT_INVALID, "cache config: index.top_k %u differs from that of index.from, %u",
                       config->index.top_k, from->config.index.top_k);
    return SENNIT_OK;
}

enum { TAKES = SN_CONFIG_TYPES | SN_CONFIG_PAGES | SN_CONFIG_CODE | SN_CONFIG_MLA | SN_CONFIG_INDEX };

static sennit_status dsa_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    SN_TRY(sn_mla_check(config, err));
    SN_TRY(config->index.from ? check_from(config, err) : check_own(config, err));
    return sn_page_tokens_check(config, err);
}

static void dsa_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    sn_mla_signature(config, out, n_bytes);
    size_t used = strlen(out);
    if (config->index.from)
        snprintf(out + used, n_bytes - used, " / top %u elsewhere", config->index.top_k);
    else
        snprintf(out + used, n_bytes - used, " / index %s heads %u d %u top %u", sennit_type_name(config->index.type),
                 config->index.n_heads, config->index.d_index, config->index.top_k);
    sn_page_tokens_sign(config, out, n_bytes);
}

/* The selection of a cache made like another one is the other's; index.from is looked at in create alone and may be
 * gone later. */
static void dsa_inherit(struct sennit_cache *cache, const struct sennit_cache *like)
{
    struct dsa *c = dsa_of(cache);
    c->selection = dsa_of(like)->selection;
    c->selection->n_refs++;
    if (dsa_of(like)->source)
        c->source = sn_lineage_ref(dsa_of(like)->source);
}

/* From a cache with an indexer, or from another reader of one. */
static void dsa_tie(struct dsa *c, const struct sennit_cache *from)
{
    dsa_inherit(&c->mla.paged.base, from);
    if (!c->source)
        c->source = sn_lineage_ref(from->lineage);
}

static sennit_status dsa_init(struct sennit_cache *cache, struct sennit_error *err)
{
    struct dsa *c = dsa_of(cache);
    const struct sennit_cache_config *config = &cache->config;
    bool wide = config->index.type == SENNIT_F32;
    if (!c->selection && reads(cache))
        dsa_tie(c, config->index.from);
    if (!c->selection)
        SN_TRY(sn_selection_create(&c->selection, cache->pool->heap, err));
    c->index = wide ? cache->pool->kernels->index_f32 : cache->pool->kernels->index_f16;
    c->index_id = wide ? SN_K_index_f32 : SN_K_index_f16;
    sn_mla_init(cache, reads(cache) ? 0 : config->index.d_index);
    cache->shape.max_selected = config->index.top_k;
    return SENNIT_OK;
}

static void dsa_release(struct sennit_cache *cache)
{
    sn_selection_drop(dsa_of(cache)->selection);
    sn_lineage_drop(dsa_of(cache)->source);
    sn_paged_release(cache);
}

/* ---- the step ------------------------------------------------------------------------------------------------- */

static sennit_status dsa_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct dsa *c = dsa_of(cache);
    if (!c->source)
        return sn_paged_step_begin(cache, err);
    SN_TRY(sn_lineage_claim(c->source, cache, "index.from", err));
    sennit_status status = SENNIT_OK;
    if (c->source->n_claims == 1)
        status = sn_selection_reserve(c->selection, &cache->step, cache->config.index.top_k, err);
    if (status == SENNIT_OK)
        status = sn_paged_step_begin(cache, err);
    if (status != SENNIT_OK)
        sn_lineage_release(c->source);
    return status;
}

static void leave(struct sennit_cache *cache)
{
    if (dsa_of(cache)->source)
        sn_lineage_release(dsa_of(cache)->source);
}

static void dsa_step_commit(struct sennit_cache *cache)
{
    leave(cache);
    sn_paged_step_commit(cache);
}

static void dsa_step_abort(struct sennit_cache *cache)
{
    leave(cache);
    sn_paged_step_abort(cache);
}

/* ---- selection ------------------------------------------------------------------------------------------------ */

/* work.select: scores of whole chunks, a bit per position, a panel of index keys where they are not read in place. */
static size_t panel_bytes(const struct sn_mla *c)
{
    return c->page_tokens == SN_CHUNK_KEYS ? 0 : SN_CHUNK_KEYS * c->d_index * c->index_element_bytes;
}

static size_t dsa_select_bytes(const struct sn_attend_source *src, uint64_t n_keys)
{
    const struct sn_mla *c = sn_mla_of(src->cache);
    size_t n_chunks = sn_div_up(n_keys, SN_CHUNK_KEYS);
    if (reads(src->cache))
        return 0;
    return n_chunks * (SN_CHUNK_KEYS * sizeof(float) + sizeof(uint64_t)) + panel_bytes(c);
}

/* Index keys first .. first + 63, of which n_keys - first exist, as a panel [4][d_index][16]. */
static const void *index_panel(const struct sn_attend_job *job, const struct sn_mla *c, uint64_t first,
                               uint8_t *panel)
{
    struct sn_page *const *pages = job->row_data;
    size_t e = c->index_element_bytes, lanes = sn_mla_index_lanes(c), n = c->page_tokens;
    if (n == SN_CHUNK_KEYS)
        return sn_mla_index(c, pages[first / n]->data, 0);
    for (size_t at = 0; at < SN_CHUNK_KEYS && first + at < job->n_keys; at += n) {
        const uint8_t *from = sn_mla_index(c, pages[(first + at) / n]->data, 0);
        uint8_t *to = panel + (at / 16 * c->d_index * 16 + at % 16) * e;
        if (lanes == 16) {
            memcpy(to, from, n * c->d_index * e);
            continue;
        }
        for (size_t d = 0; d < c->d_index; d++)
            memcpy(to + d * 16 * e, from + d * lanes * e, lanes * e);
    }
    return panel;
}

/* Scores of all positions that the token may choose from. One that is NaN counts as the highest, so that the fault is
 * looked at. */
static void score_all(const struct sn_attend_job *job, float *scores, uint8_t *panel)
{
    const struct dsa *c = dsa_of(job->src.cache);
    const struct sennit_cache_config *config = &job->src.cache->config;
    size_t n_heads = config->index.n_heads, d = config->index.d_index;
    struct sn_index_args args = {.q = job->in->index_query + job->token * n_heads * d,
                                 .w = job->in->index_weight + job->token * n_heads,
                                 .n_heads = n_heads,
                                 .d = d};
    for (uint64_t first = 0; first < job->n_keys; first += SN_CHUNK_KEYS) {
        uint64_t n = job->n_keys - first;
        args.k = index_panel(job, &c->mla, first, panel);
        args.wanted = n >= SN_CHUNK_KEYS ? UINT64_MAX : (UINT64_C(1) << n) - 1;
        args.out = scores + first;
        job->pool->calls[job->worker].n[c->index_id]++;
        c->index(&args);
    }
    for (uint64_t i = 0; i < job->n_keys; i++)
        scores[i] = isnan(scores[i]) ? INFINITY : scores[i];
}

/* The k best positions, ascending. */
static void pick(const struct sn_attend_job *job, uint32_t k, uint32_t *list)
{
    size_t n_chunks = sn_div_up(job->n_keys, SN_CHUNK_KEYS);
    float *scores = job->work.select;
    uint64_t *bits = (uint64_t *)(void *)(scores + n_chunks * SN_CHUNK_KEYS);
    score_all(job, scores, (uint8_t *)(bits + n_chunks));
    SN_CALL(job->pool->kernels, &job->pool->calls[job->worker], top_k, scores, job->n_keys, k, list);
    memset(bits, 0, n_chunks * sizeof *bits);
    for (uint32_t i = 0; i < k; i++)
        bits[list[i] / 64] |= UINT64_C(1) << list[i] % 64;
    for (size_t c = 0; c < n_chunks; c++)
        for (uint64_t left = bits[c]; left; left &= left - 1)
            *list++ = (uint32_t)(c * 64) + (uint32_t)__builtin_ctzll(left);
}

/* A token whose source has not run sees NaN: a mistake of the caller's that must not pass for an answer. */
static uint32_t nothing_to_read(const struct sn_attend_job *job, uint32_t *list)
{
    for (size_t i = 0; i < job->n_q * job->d_k; i++)
        job->work.q[i] = NAN;
    sn_mla_prepare(job);
    list[0] = (uint32_t)job->pos;
    return 1;
}

static uint32_t dsa_select(const struct sn_attend_job *job, uint32_t *list)
{
    const struct sennit_cache *cache = job->src.cache;
    struct sn_selection *selection = dsa_of(cache)->selection;
    uint32_t row = (uint32_t)(job->src.row - cache->rows);
    if (reads(cache)) {
        uint32_t n = sn_selection_read(selection, cache, row, job->pos, list);
        return n > 0 ? n : nothing_to_read(job, list);
    }
    uint32_t k = (uint32_t)sn_min_size(cache->config.index.top_k, job->n_keys);
    if (k < job->n_keys)
        pick(job, k, list);
    else
        for (uint32_t i = 0; i < k; i++)
            list[i] = i;
    sn_selection_store(selection, cache, row, job->pos, list, k);
    return k;
}

/* ---- the family ----------------------------------------------------------------------------------------------- */

static const struct sn_attend_ops dsa_attend = {
    .row_bytes = sn_paged_list_bytes,
    .row_fill = sn_paged_list,
    .prepare_bytes = sn_mla_prepare_bytes,
    .prepare = sn_mla_prepare,
    .select_bytes = dsa_select_bytes,
    .select = dsa_select,
    .segment_bytes = sn_mla_segment_bytes,
    .segment = sn_mla_segment,
};

static const struct sennit_cache_config example = {
    .family = "mla-dsa",
    .k_type = SENNIT_F16,
    .mla = {512, 64},
    .index = {.n_heads = 64, .d_index = 128, .top_k = 2048, .type = SENNIT_F16}};

const struct sn_family sn_family_mla_dsa = {
    .name = "mla-dsa",
    .takes = TAKES,
    .object_bytes = sizeof(struct dsa),
    .example = &example,
    .trimmable = true,
    .no_planes = true,
    .attend = &dsa_attend,
    .check = dsa_check,
    .signature = dsa_signature,
    .init = dsa_init,
    .inherit = dsa_inherit,
    .release = dsa_release,
    SN_PAGED_ROW_SLOTS,
    .step_begin = dsa_step_begin,
    .step_tile = sn_paged_step_tile,
    .step_commit = dsa_step_commit,
    .step_abort = dsa_step_abort,
    SN_ATTEND_SLOTS,
};
