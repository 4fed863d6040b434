/* One row through a model's forward without an engine around it, for tests that look at the logits
 * of every position.
 */
#ifndef ENGINE_MACHINE_H
#define ENGINE_MACHINE_H

#include "base/cpu.h"
#include "cache/pool.h"
#include "engine/run.h"
#include "model/forward.h"

enum { MACHINE_THREADS = 2, MACHINE_LAYERS = 64 };

struct machine {
    struct sn_heap heap;
    struct sn_kernels kernels;
    struct sn_calls calls[MACHINE_THREADS];
    struct sn_pool *threads;
    struct sennit_pool *pages;
    struct sn_forward *forward;
    struct sennit_cache *caches[MACHINE_LAYERS];
};

/* kv: family, k_type and code of the layers' caches. */
static inline void machine_open_as(struct machine *mc, const struct sennit_model *m, const char *isa_name,
                                   const struct sennit_cache_config *kv, uint32_t n_tokens)
{
    struct sn_cpu cpu = sn_cpu_detect();
    enum sn_isa isa;
    memset(mc, 0, sizeof *mc);
    sn_heap_init(&mc->heap, NULL);
    CHECK(sn_isa_parse(isa_name, &isa), "%s", isa_name);
    CHECK(m->hp.n_layers <= MACHINE_LAYERS, "%u layers", m->hp.n_layers);
    MUST(sn_kernels_init(&mc->kernels, isa, &cpu, err));
    MUST(sn_pool_create(&mc->threads, &mc->heap, MACHINE_THREADS, false, err));
    MUST(sn_cache_pool_create_on(&mc->pages, &mc->heap, &mc->kernels, mc->calls, MACHINE_THREADS, err));
    MUST(
        sn_forward_create(&mc->forward, &mc->heap, m, &mc->kernels, mc->threads, mc->calls, n_tokens, n_tokens, err));
    for (uint32_t l = 0; l < m->hp.n_layers; l++) {
        struct sennit_cache_config c = sn_model_cache_config(m, l, kv->family, kv->k_type);
        c.code = kv->code;
        c.max_span = n_tokens;
        MUST(sennit_cache_create(&mc->caches[l], mc->pages, &c, 1, err));
    }
}

static inline void machine_open(struct machine *mc, const struct sennit_model *m, const char *isa_name,
                                sennit_type kv_type, uint32_t n_tokens)
{
    const struct sennit_cache_config kv = {.family = "plain", .k_type = kv_type};
    machine_open_as(mc, m, isa_name, &kv, n_tokens);
}

static inline void machine_close(struct machine *mc)
{
    for (uint32_t l = 0; l < MACHINE_LAYERS; l++)
        sennit_cache_dispose(&mc->caches[l]);
    sn_forward_free(mc->forward);
    sennit_pool_free(mc->pages);
    sn_pool_destroy(mc->threads);
    CHECK(atomic_load(&mc->heap.total) == 0, "%zu bytes are left", atomic_load(&mc->heap.total));
}

/* logits: f32 [n_tokens][n_vocab], of every position. */
static inline void machine_feed(struct machine *mc, const int32_t *tokens, uint32_t n_tokens, uint32_t chunk,
                                float *logits)
{
    struct sn_forward *f = mc->forward;
    uint32_t n_vocab = f->m->hp.n_vocab;
    for (uint32_t pos = 0; pos < n_tokens; pos += chunk) {
        uint32_t n = n_tokens - pos < chunk ? n_tokens - pos : chunk;
        struct sennit_span span = {.row = 0, .pos = pos, .n_tokens = n, .first_token = 0};
        f->caches = mc->caches;
        f->spans = &span;
        f->n_spans = 1;
        f->n_tokens = f->n_logits = n;
        for (uint32_t i = 0; i < n; i++) {
            f->ids[i] = tokens[pos + i];
            f->token_span[i] = 0;
            f->logit_tokens[i] = i;
        }
        for (uint32_t l = 0; l < f->m->hp.n_layers; l++)
            MUST(sennit_cache_append_begin(mc->caches[l], &span, 1, f->m->hp.n_heads, err));
        sn_forward_run(f);
        for (uint32_t i = 0; i < n; i++)
            memcpy(logits + (size_t)(pos + i) * n_vocab, f->logits + i * f->logits_ld, n_vocab * sizeof *logits);
    }
}

#endif
