/* From a GGUF file's vocabulary to a tokenizer. */
#include "model/model.h"

struct source {
    struct sn_gguf_array tokens, merges;
};

static const char *token_at(void *ctx, size_t i, size_t *len)
{
    const struct source *s = ctx;
    struct sn_gguf_str str = sn_gguf_array_str(&s->tokens, i);
    *len = str.len;
    return str.data;
}

static const char *merge_at(void *ctx, size_t i, size_t *len)
{
    const struct source *s = ctx;
    struct sn_gguf_str str = sn_gguf_array_str(&s->merges, i);
    *len = str.len;
    return str.data;
}

static char *c_string(struct sn_heap *heap, struct sn_gguf_str s)
{
    return s.data ? sn_strndup(heap, SN_USE_TEXT, s.data, s.len) : NULL;
}

static sennit_status read_id(const struct sn_gguf *g, const char *key, size_t n_tokens, int32_t *out,
                             struct sennit_error *err)
{
    uint32_t id;
    if (!sn_gguf_has(g, key))
        return SENNIT_OK;
    SN_TRY(sn_gguf_u32(g, key, &id, err));
    if (id >= n_tokens)
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %u; the vocabulary has %zu tokens", key, id, n_tokens);
    *out = (int32_t)id;
    return SENNIT_OK;
}

static sennit_status read_flag(const struct sn_gguf *g, const char *key, int *out, struct sennit_error *err)
{
    bool flag;
    if (!sn_gguf_has(g, key))
        return SENNIT_OK;
    SN_TRY(sn_gguf_bool(g, key, &flag, err));
    *out = flag ? SN_YES : SN_NO;
    return SENNIT_OK;
}

/* What is copied out of the file for the time of the creation. */
struct copies {
    int32_t *types;
    size_t n_types;
    char *model, *pre;
    size_t model_bytes, pre_bytes;
};

static sennit_status describe(const struct sn_gguf *g, struct sn_heap *heap, struct source *src, struct copies *c,
                              struct sn_vocab_desc *d, struct sennit_error *err)
{
    struct sn_gguf_array types;
    struct sn_gguf_str model, pre;
    SN_TRY(sn_gguf_str(g, "tokenizer.ggml.model", &model, err));
    SN_TRY(sn_gguf_str_or(g, "tokenizer.ggml.pre", NULL, &pre, err));
    SN_TRY(sn_gguf_array(g, "tokenizer.ggml.tokens", SN_GGUF_STRING, &src->tokens, err));
    SN_TRY(sn_gguf_array_or_empty(g, "tokenizer.ggml.merges", SN_GGUF_STRING, &src->merges, err));
    SN_TRY(sn_gguf_array_or_empty(g, "tokenizer.ggml.token_type", SN_GGUF_I32, &types, err));
    d->n_tokens = src->tokens.n;
    d->n_merges = src->merges.n;
    d->token = token_at;
    d->merge = merge_at;
    d->ctx = src;
    if (sn_gguf_has(g, "tokenizer.ggml.token_type") && types.n != d->n_tokens)
        return sn_fail(err, SENNIT_FORMAT, "'tokenizer.ggml.token_type' has %zu elements for %zu tokens", types.n,
                       d->n_tokens);
    c->model = c_string(heap, model);
    c->model_bytes = model.len + 1;
    c->pre = c_string(heap, pre);
    c->pre_bytes = pre.len + 1;
    c->types = sn_calloc(heap, SN_USE_TEXT, types.n, sizeof *c->types);
    c->n_types = types.n;
    if (!c->model || (pre.data && !c->pre) || (types.n && !c->types))
        return sn_fail(err, SENNIT_NOMEM, "no memory for the vocabulary's description");
    for (size_t i = 0; i < types.n; i++)
        c->types[i] = sn_gguf_array_i32(&types, i);
    d->model = c->model;
    d->pre = c->pre;
    d->types = c->types;
    SN_TRY(read_id(g, "tokenizer.ggml.bos_token_id", d->n_tokens, &d->bos, err));
    SN_TRY(read_id(g, "tokenizer.ggml.eos_token_id", d->n_tokens, &d->eos, err));
    SN_TRY(read_id(g, "tokenizer.ggml.eot_token_id", d->n_tokens, &d->eot, err));
    SN_TRY(read_id(g, "tokenizer.ggml.unknown_token_id", d->n_tokens, &d->unk, err));
    SN_TRY(read_id(g, "tokenizer.ggml.padding_token_id", d->n_tokens, &d->pad, err));
    SN_TRY(read_flag(g, "tokenizer.ggml.add_bos_token", &d->add_bos, err));
    SN_TRY(read_flag(g, "tokenizer.ggml.add_eos_token", &d->add_eos, err));
    return sn_gguf_bool_or(g, "tokenizer.ggml.add_space_prefix", false, &d->add_space_prefix, err);
}

sennit_status sn_vocab_load(struct sn_tokenizer **out, struct sn_heap *heap, const struct sn_gguf *g, const char *pre,
                            const struct sennit_logger *log, struct sennit_error *err)
{
    struct source src = {0};
    struct copies c = {0};
    struct sn_vocab_desc d = SN_VOCAB_DESC_INIT;
    sennit_status st = describe(g, heap, &src, &c, &d, err);
    if (st == SENNIT_OK)
        st = sn_tokenizer_create(out, heap, &d, pre, log, err);
    sn_free(heap, SN_USE_TEXT, c.types, c.n_types * sizeof *c.types);
    sn_free(heap, SN_USE_TEXT, c.model, c.model_bytes);
    sn_free(heap, SN_USE_TEXT, c.pre, c.pre_bytes);
    return st;
}
