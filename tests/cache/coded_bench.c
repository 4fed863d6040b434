#include "cache/coded_bench.h"

#include <math.h>
#include <stdlib.h>

void open_bench(struct bench *b, struct sennit_cache_config config, uint32_t group, const char *isa)
{
    struct sennit_pool_options options = {.isa = isa};
    *b = (struct bench){.g = {.config = config, .group = group, .scale = 1.0f / sqrtf((float)config.d_k)}};
    OK(sennit_pool_create(&b->pool, &options, err));
    sn_cache_pool_set_poison(b->pool, true);
    b->table = *b->pool->kernels;
}

float *feed(struct bench *b, struct sennit_cache *c, uint32_t row, const uint64_t *tokens, uint32_t n)
{
    float *out = must(malloc(n * (size_t)n_heads_of(&b->g) * b->g.config.d_v * sizeof *out));
    struct work_span span = {.row = row, .tokens = tokens, .n_tokens = n, .out = out};
    struct step_options options = {0};
    OK(run_step(c, &b->g, &span, 1, &options, err));
    return out;
}

double worst_share(const struct bench *b, const uint64_t *tokens, uint32_t n, const float *out)
{
    return textbook_share(find_tested(b->g.config.family)->twin, &b->g, tokens, n, out);
}

enum { MOST = 8, LONGEST = 130 };

/* Row r has `longest` tokens less 7 r, at least 1. */
static uint32_t length_of(uint32_t longest, uint32_t r)
{
    return longest > 7 * r ? longest - 7 * r : 1;
}

void batch_case(struct bench *b, uint32_t n_rows, uint32_t longest, enum sn_kernel_id once)
{
    static uint64_t tokens[MOST][LONGEST];
    struct sennit_cache *batch, *rows[MOST];
    struct work_span spans[MOST];
    size_t width = (size_t)n_heads_of(&b->g) * b->g.config.d_v, n_queries = 0;
    CHECK(n_rows <= MOST && longest <= LONGEST);
    for (uint32_t r = 0; r < n_rows; r++) {
        OK(sennit_cache_create(&rows[r], b->pool, &b->g.config, 1, err));
        uint32_t n = length_of(longest, r);
        for (uint32_t i = 0; i < n; i++)
            tokens[r][i] = 5000 * r + i;
        spans[r] = (struct work_span){
            .row = r, .tokens = tokens[r], .n_tokens = n, .out = must(malloc(n * width * sizeof(float)))};
        n_queries += n * n_heads_of(&b->g);
    }
    OK(sennit_cache_create(&batch, b->pool, &b->g.config, 0, err));
    OK(sennit_cache_merge_rows(batch, (const struct sennit_cache *const *)rows, n_rows, err));
    struct step_options options = {0};
    const uint64_t *calls = once < SN_K_COUNT ? &b->pool->calls[0].n[once] : NULL;
    uint64_t before = calls ? *calls : 0;
    OK(run_step(batch, &b->g, spans, n_rows, &options, err));
    assert_true(!calls || *calls - before == n_queries);
    for (uint32_t r = 0; r < n_rows; r++) {
        uint32_t n = spans[r].n_tokens;
        float *alone = feed(b, rows[r], 0, tokens[r], n);
        assert_memory_equal(alone, spans[r].out, n * width * sizeof *alone);
        assert_true(worst_share(b, tokens[r], n, spans[r].out + (n - 1) * width) < 1);
        free(alone);
        free(spans[r].out);
        sennit_cache_dispose(&rows[r]);
    }
    sennit_cache_dispose(&batch);
}
