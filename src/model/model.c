/* Opening and closing a model. */
#include "model/model.h"

#include "base/cpu.h"
#include "model/loader.h"

static sennit_status pick_arch(struct sennit_model *m, const struct sn_gguf *g, struct sennit_error *err)
{
    struct sn_gguf_str name;
    SN_TRY(sn_gguf_str(g, "general.architecture", &name, err));
    char known[256] = "";
    for (size_t i = 0; sn_archs[i]; i++) {
        const char *have = sn_archs[i]->name;
        if (strlen(have) == name.len && memcmp(have, name.data, name.len) == 0) {
            m->arch = sn_archs[i];
            return SENNIT_OK;
        }
        size_t used = strlen(known), n = strlen(have);
        if (used + n + 3 < sizeof known) {
            memcpy(known + used, used ? ", " : "", used ? 3 : 1);
            used = strlen(known);
            memcpy(known + used, have, n + 1);
        }
    }
    return sn_fail(err, SENNIT_UNSUPPORTED, "architecture '%.*s' cannot be run; this build runs: %s", (int)name.len,
                   name.data, known);
}

/* An optional string of the file, copied. */
static sennit_status copy_text(struct sennit_model *m, const struct sn_gguf *g, const char *key, char **out,
                               size_t *bytes, struct sennit_error *err)
{
    struct sn_gguf_str s;
    SN_TRY(sn_gguf_str_or(g, key, NULL, &s, err));
    if (!s.data)
        return SENNIT_OK;
    *out = sn_strndup(&m->heap, SN_USE_TEXT, s.data, s.len);
    if (!*out)
        return sn_fail(err, SENNIT_NOMEM, "no memory for '%s'", key);
    *bytes = s.len + 1;
    return SENNIT_OK;
}

/* A template that cannot be parsed does not keep the model from running: its error is kept for who asks for it. */
static sennit_status load_template(struct sennit_model *m, const struct sn_gguf *g, struct sennit_error *err)
{
    SN_TRY(copy_text(m, g, "tokenizer.chat_template", &m->chat_template, &m->chat_template_bytes, err));
    if (!m->chat_template)
        return SENNIT_OK;
    sennit_status st = sn_template_parse(&m->parsed_template, &m->heap, m->chat_template, m->chat_template_bytes - 1,
                                         &m->template_error);
    if (st == SENNIT_NOMEM)
        return sn_fail(err, st, "no memory for the chat template");
    if (st != SENNIT_OK)
        sn_log(&m->log, SENNIT_LOG_WARN, "the chat template cannot be used: %s", m->template_error.message);
    return SENNIT_OK;
}

static uint64_t packed_bytes(const struct sn_weights *w) { return sn_weights_bytes(w->type, w->n_in, w->n_out); }

static void fill_info(struct sennit_model *m, const struct sn_gguf *g, uint64_t n_parameters)
{
    const struct sn_hparams *hp = &m->hp;
    uint64_t step = packed_bytes(&m->head);
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct sn_layer *l = &m->layers[i];
        step += packed_bytes(&l->q) + packed_bytes(&l->k) + packed_bytes(&l->v) + packed_bytes(&l->o) +
                packed_bytes(&l->gate) + packed_bytes(&l->up) + packed_bytes(&l->down);
    }
    m->info = (struct sennit_model_info){
        .architecture = m->arch->name,
        .name = m->name ? m->name : "",
        .n_layers = hp->n_layers,
        .d_model = hp->d_model,
        .n_heads = hp->n_heads,
        .n_kv_heads = hp->n_kv_heads,
        .head_dim = hp->d_k,
        .d_ff = hp->d_ff,
        .n_vocab = hp->n_vocab,
        .context_length = hp->context_length,
        .n_parameters = n_parameters,
        .file_bytes = sn_gguf_file_bytes(g),
        .weight_bytes = atomic_load(&m->heap.used[SN_USE_WEIGHTS]),
        .step_weight_bytes = step,
        .content_hash = sn_gguf_file_hash(g),
        .chat_template = m->chat_template,
        .bos_id = sn_tokenizer_bos(m->vocab.t),
        .eos_id = sn_tokenizer_eos(m->vocab.t),
    };
}

static sennit_status load_all(struct sennit_model *m, const struct sn_gguf *g, const struct sennit_model_options *o,
                              struct sennit_error *err)
{
    SN_TRY(pick_arch(m, g, err));
    SN_TRY(copy_text(m, g, "general.name", &m->name, &m->name_bytes, err));
    /* Before the weights: a tokenizer that cannot be used is refused at once. */
    SN_TRY(sn_vocab_load(&m->vocab.t, &m->heap, g, o->pre, &m->log, err));
    struct sn_loader ld;
    SN_TRY(sn_loader_init(&ld, &m->heap, g, o->n_threads, &m->arena, &m->arena_bytes, err));
    sennit_status st = m->arch->load(m, &ld, err);
    if (st == SENNIT_OK)
        st = sn_loader_finish(&ld, err);
    uint64_t n_parameters = ld.n_parameters;
    sn_loader_release(&ld);
    SN_TRY(st);
    SN_TRY(load_template(m, g, err));
    fill_info(m, g, n_parameters);
    return SENNIT_OK;
}

/* The heap lives in the model, so the model itself comes from a heap of its own start: a copy made by hand. */
static struct sennit_model *new_model(const struct sennit_model_options *o)
{
    struct sn_heap heap;
    sn_heap_init(&heap, &o->allocator);
    struct sennit_model *m = sn_calloc(&heap, SN_USE_MISC, 1, sizeof *m);
    if (!m)
        return NULL;
    sn_heap_init(&m->heap, &o->allocator);
    m->vocab.heap = &m->heap;
    m->log = o->logger;
    return m;
}

static sennit_status finish_open(struct sennit_model **out, struct sennit_model *m, struct sn_gguf *g,
                                 const struct sennit_model_options *o, struct sennit_error *err)
{
    /* Rotation frequencies and scales are rounded here: not in the caller's direction. */
    struct sn_fpenv env = sn_fp_enter();
    sennit_status st = load_all(m, g, o, err);
    sn_fp_leave(env);
    sn_gguf_close(g);
    if (st != SENNIT_OK) {
        sn_model_free(m);
        return st;
    }
    *out = m;
    return SENNIT_OK;
}

sennit_status sn_model_open(struct sennit_model **out, const char *path, const struct sennit_model_options *options,
                            struct sennit_error *err)
{
    struct sennit_model_options o = options ? *options : (struct sennit_model_options){0};
    struct sennit_model *m = new_model(&o);
    if (!m)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the model");
    struct sn_gguf *g = NULL;
    sennit_status st = sn_gguf_open(&g, &m->heap, path, err);
    if (st != SENNIT_OK) {
        sn_model_free(m);
        return st;
    }
    st = finish_open(out, m, g, &o, err);
    if (st != SENNIT_OK)
        sn_error_prefix(err, "%s", path);
    return st;
}

sennit_status sn_model_open_memory(struct sennit_model **out, const void *data, size_t n_bytes,
                                   const struct sennit_model_options *options, struct sennit_error *err)
{
    struct sennit_model_options o = options ? *options : (struct sennit_model_options){0};
    struct sennit_model *m = new_model(&o);
    if (!m)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the model");
    struct sn_gguf *g = NULL;
    sennit_status st = sn_gguf_open_memory(&g, &m->heap, data, n_bytes, err);
    if (st != SENNIT_OK) {
        sn_model_free(m);
        return st;
    }
    return finish_open(out, m, g, &o, err);
}

void sn_model_free(struct sennit_model *m)
{
    if (!m)
        return;
    struct sn_heap *heap = &m->heap;
    for (uint32_t i = 0; m->layers && i < m->hp.n_layers; i++) {
        struct sn_layer *l = &m->layers[i];
        sn_free(heap, SN_USE_WEIGHTS, l->attn_norm, m->hp.d_model * sizeof(float));
        sn_free(heap, SN_USE_WEIGHTS, l->ffn_norm, m->hp.d_model * sizeof(float));
    }
    sn_free(heap, SN_USE_WEIGHTS, m->layers, m->hp.n_layers * sizeof *m->layers);
    sn_free(heap, SN_USE_WEIGHTS, m->out_norm, m->hp.d_model * sizeof(float));
    sn_free(heap, SN_USE_WEIGHTS, m->rope_freq, m->hp.n_rot / 2 * sizeof *m->rope_freq);
    sn_free(heap, SN_USE_WEIGHTS, m->arena, m->arena_bytes);
    sn_tokenizer_free(m->vocab.t);
    sn_template_free(m->parsed_template);
    sn_free(heap, SN_USE_TEXT, m->chat_template, m->chat_template_bytes);
    sn_free(heap, SN_USE_TEXT, m->name, m->name_bytes);
    struct sennit_allocator host = heap->host;
    host.fn(host.ctx, m, sizeof *m, 0);
}

struct sennit_cache_config sn_model_cache_config(const struct sennit_model *m, uint32_t layer, const char *family,
                                                 sennit_type kv_type)
{
    (void)layer; /* all layers of this family of graphs are alike */
    return (struct sennit_cache_config){
        .family = family,
        .n_kv_heads = m->hp.n_kv_heads,
        .d_k = m->hp.d_k,
        .d_v = m->hp.d_v,
        .k_type = kv_type,
        .v_type = kv_type,
    };
}
