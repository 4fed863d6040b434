/* A page is [page_tokens][n_kv_heads][d_k] keys, then the values likewise. */
#include "support/raw_family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct sennit_family_geometry geometry_t;

static size_t raw_page_bytes(const geometry_t *g)
{
    return sizeof(float) * g->page_tokens * g->n_kv_heads * (g->d_k + g->d_v);
}

static float *raw_at(const geometry_t *g, const void *page, bool key, uint32_t slot, uint32_t head)
{
    float *data = (float *)(uintptr_t)page + (key ? 0 : (size_t)g->page_tokens * g->n_kv_heads * g->d_k);
    return data + ((size_t)slot * g->n_kv_heads + head) * (key ? g->d_k : g->d_v);
}

static void raw_spans(const geometry_t *g, struct sennit_family_span *out)
{
    size_t keys = sizeof(float) * g->page_tokens * g->n_kv_heads * g->d_k;
    out[0] = (struct sennit_family_span){.name = "key", .type = SENNIT_F32, .n_bytes = keys};
    out[1] = (struct sennit_family_span){
        .name = "value", .type = SENNIT_F32, .offset = keys, .n_bytes = raw_page_bytes(g) - keys};
}

static void raw_store(const geometry_t *g, void *page, uint32_t slot, sennit_role role, uint32_t first_head,
                      uint32_t n_heads, const float *x)
{
    bool key = role == SENNIT_ROLE_KEY;
    memcpy(raw_at(g, page, key, slot, first_head), x, n_heads * sizeof(float) * (key ? g->d_k : g->d_v));
}

static void raw_fill_tail(const geometry_t *g, void *page, uint32_t from, uint8_t byte)
{
    size_t n = (size_t)(g->page_tokens - from) * g->n_kv_heads * sizeof(float);
    memset(raw_at(g, page, true, from, 0), byte, n * g->d_k);
    memset(raw_at(g, page, false, from, 0), byte, n * g->d_v);
}

/* Rows that nobody wants are filled with NaN. */
static void raw_load(const geometry_t *g, const struct sennit_family_chunk *chunk, float *k, float *v)
{
    for (uint32_t j = 0; j < SENNIT_FAMILY_CHUNK; j++) {
        const void *page = chunk->pages[j / g->page_tokens];
        for (uint32_t d = 0; d < g->d_k; d++)
            k[j * g->d_k + d] = NAN;
        for (uint32_t d = 0; d < g->d_v; d++)
            v[j * g->d_v + d] = NAN;
        if (!(chunk->wanted >> j & 1))
            continue;
        memcpy(k + j * g->d_k, raw_at(g, page, true, j % g->page_tokens, chunk->kv_head), g->d_k * sizeof(float));
        memcpy(v + j * g->d_v, raw_at(g, page, false, j % g->page_tokens, chunk->kv_head), g->d_v * sizeof(float));
    }
}

static bool raw_check(const geometry_t *g, char *reason, size_t n_bytes)
{
    if (g->d_k % 4 == 0)
        return true;
    snprintf(reason, n_bytes, "d_k is %u; it must be a multiple of 4", g->d_k);
    return false;
}

static void raw_signature(const geometry_t *g, char *out, size_t n_bytes)
{
    snprintf(out, n_bytes, "%s", (const char *)g->ctx);
}

const struct sennit_family raw_family = {
    .struct_bytes = sizeof raw_family,
    .name = "raw",
    .ctx = "as it comes",
    .n_spans = 2,
    .check = raw_check,
    .signature = raw_signature,
    .page_bytes = raw_page_bytes,
    .spans = raw_spans,
    .store = raw_store,
    .fill_tail = raw_fill_tail,
    .load_chunk = raw_load,
};
