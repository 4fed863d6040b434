/* Which fields of a configuration mean something to a family. */
#include "cache/family.h"

struct field {
    uint32_t group;
    bool set;
    const char *name;
};

static sennit_status refuse(const struct field *fields, size_t n, const char *family, uint32_t mask,
                            struct sennit_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (fields[i].set && !(mask & fields[i].group))
            return sn_fail(err, SENNIT_INVALID, "cache config: %s means nothing to family '%s'; leave it 0",
                           fields[i].name, family);
    return SENNIT_OK;
}

static sennit_status check_recurrent(const struct sennit_cache_config *c, uint32_t mask, struct sennit_error *err)
{
    enum { G = SN_CONFIG_RECURRENT };
    const struct field fields[] = {
        {G, c->recurrent.kind != NULL, "recurrent.kind"},
        {G, c->recurrent.n_heads != 0, "recurrent.n_heads"},
        {G, c->recurrent.n_key_heads != 0, "recurrent.n_key_heads"},
        {G, c->recurrent.d_state != 0, "recurrent.d_state"},
        {G, c->recurrent.d_head != 0, "recurrent.d_head"},
        {G, c->recurrent.n_channels != 0, "recurrent.n_channels"},
        {G, c->recurrent.kernel != 0, "recurrent.kernel"},
        {G, c->recurrent.key_head_mod, "recurrent.key_head_mod"},
        {G, c->recurrent.conv_weight != NULL, "recurrent.conv_weight"},
        {G, c->recurrent.conv_bias != NULL, "recurrent.conv_bias"},
        {G, c->recurrent.a_log != NULL, "recurrent.a_log"},
        {G, c->recurrent.dt_bias != NULL, "recurrent.dt_bias"},
        {G, c->recurrent.d_skip != NULL, "recurrent.d_skip"},
        {G, c->recurrent.dt_min != 0 || c->recurrent.dt_max != 0, "recurrent.dt_min or dt_max"},
    };
    return refuse(fields, SN_ARRAY_LEN(fields), c->family, mask, err);
}

sennit_status sn_config_only(const struct sennit_cache_config *c, uint32_t mask, struct sennit_error *err)
{
    const struct field fields[] = {
        {SN_CONFIG_HEADS, c->n_kv_heads != 0, "n_kv_heads"},
        {SN_CONFIG_HEADS, c->d_k != 0, "d_k"},
        {SN_CONFIG_HEADS, c->d_v != 0, "d_v"},
        {SN_CONFIG_TYPES, c->k_type != 0, "k_type"},
        {SN_CONFIG_TYPES, c->v_type != 0, "v_type"},
        {SN_CONFIG_PAGES, c->page_tokens != 0, "page_tokens"},
        {SN_CONFIG_CODE, c->code.k_bits != 0, "code.k_bits"},
        {SN_CONFIG_CODE, c->code.v_bits != 0, "code.v_bits"},
        {SN_CONFIG_CODE, c->code.group != 0, "code.group"},
        {SN_CONFIG_WINDOW, c->window.tokens != 0, "window.tokens"},
        {SN_CONFIG_WINDOW, c->window.slack != 0, "window.slack"},
        {SN_CONFIG_WINDOW, c->window.n_kept != 0, "window.n_kept"},
        {SN_CONFIG_START, c->start != 0, "start"},
        {SN_CONFIG_MLA, c->mla.d_latent != 0, "mla.d_latent"},
        {SN_CONFIG_MLA, c->mla.d_rope != 0, "mla.d_rope"},
        {SN_CONFIG_INDEX, c->index.n_heads != 0, "index.n_heads"},
        {SN_CONFIG_INDEX, c->index.d_index != 0, "index.d_index"},
        {SN_CONFIG_INDEX, c->index.top_k != 0, "index.top_k"},
        {SN_CONFIG_INDEX, c->index.type != 0, "index.type"},
        {SN_CONFIG_INDEX, c->index.from != NULL, "index.from"},
        {SN_CONFIG_INNER, c->inner != NULL || c->n_inner != 0, "inner"},
        {SN_CONFIG_SOURCE, c->source != NULL, "source"},
        {0, c->reads != NULL, "reads, outside of a composed cache,"},
    };
    SN_TRY(refuse(fields, SN_ARRAY_LEN(fields), c->family, mask, err));
    return check_recurrent(c, mask, err);
}

sennit_status sn_config_bare(const struct sennit_cache_config *inner, const char *outer, struct sennit_error *err)
{
    if (!inner->max_tokens && !inner->max_span && !inner->round_depth && !inner->n_snapshots && !inner->role)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID,
                   "cache config: inner[0] of a '%s' names a family and its code; bounds are the outer one's own",
                   outer);
}
