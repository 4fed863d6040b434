/* What coded keys and values cost in quality: a text runs through a model, position by position in the same chunks,
 * once with an f16 cache and once with each code; per code the divergence KL(f16 || code) of the next token's
 * distribution over the whole vocabulary, how often the likeliest token is the same, and the text's perplexity.
 *
 *     kv_quality MODEL.gguf TEXT [--tokens N]
 *
 * Prints a table in Markdown: docs/quality.md has one. Deterministic but for the machine's time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/machine.h"

enum { CHUNK = 256, DEFAULT_TOKENS = 1024, MAX_TEXT = 1 << 20 };

static const struct kv {
    const char *name;
    struct sennit_cache_config config;
} kvs[] = {
    {"f16", {.family = "plain", .k_type = SENNIT_F16}},
    {"affine, 8 bits, groups of 32", {.family = "affine", .code = {8, 8, 32}}},
    {"affine, keys 8, values 4", {.family = "affine", .code = {8, 4, 32}}},
    {"affine, 4 bits, groups of 32", {.family = "affine", .code = {4, 4, 32}}},
    {"turboquant k8v8", {.family = "turboquant", .code = {8, 8, 32}}},
    {"turboquant k8v4", {.family = "turboquant", .code = {8, 4, 32}}},
    {"turboquant k8v3 (its default)", {.family = "turboquant", .code = {8, 3, 32}}},
    {"turboquant k8v2", {.family = "turboquant", .code = {8, 2, 32}}},
};

static char *read_text(const char *path, size_t *n_bytes)
{
    FILE *in = fopen(path, "rb");
    CHECK(in != NULL, "cannot open %s", path);
    char *text = malloc(MAX_TEXT);
    CHECK(text != NULL, "no memory");
    *n_bytes = fread(text, 1, MAX_TEXT, in);
    fclose(in);
    return text;
}

static uint32_t read_tokens(const struct sennit_model *m, const char *path, uint32_t most, struct sennit_tokens *out)
{
    size_t n_bytes;
    char *text = read_text(path, &n_bytes);
    MUST(sennit_tokenize(sennit_model_tokenizer(m), text, n_bytes, 0, out, err));
    free(text);
    return out->n_ids < most ? (uint32_t)out->n_ids : most;
}

/* Bytes that one token costs, all layers. */
static uint64_t run(const struct sennit_model *m, const struct kv *kv, const int32_t *ids, uint32_t n, float *logits)
{
    struct sn_cpu cpu = sn_cpu_detect();
    struct machine mc;
    uint64_t bytes = 0;
    machine_open_as(&mc, m, sn_isa_name(sn_isa_best(&cpu)), &kv->config, n);
    machine_feed(&mc, ids, n, CHUNK, logits);
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        bytes += sennit_cache_bytes_per_token(mc.caches[l]);
    machine_close(&mc);
    return bytes;
}

static double log_sum(const float *x, size_t n, size_t *best)
{
    double most = x[0], sum = 0;
    *best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > most)
            most = x[i], *best = i;
    for (size_t i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(const struct kv *kv, uint64_t bytes, const int32_t *ids, uint32_t n, size_t n_vocab,
                    const float *reference, const float *logits)
{
    double *kl = calloc(n, sizeof *kl), sum = 0, nll = 0;
    uint32_t same = 0;
    CHECK(kl != NULL, "no memory");
    for (uint32_t t = 0; t < n; t++) {
        const float *p = reference + t * n_vocab, *q = logits + t * n_vocab;
        size_t best_p, best_q;
        double lp = log_sum(p, n_vocab, &best_p), lq = log_sum(q, n_vocab, &best_q);
        for (size_t i = 0; i < n_vocab; i++)
            kl[t] += exp(p[i] - lp) * ((p[i] - lp) - (q[i] - lq));
        sum += kl[t];
        same += best_p == best_q;
        nll += t + 1 < n ? lq - q[ids[t + 1]] : 0;
    }
    qsort(kl, n, sizeof *kl, ascending);
    printf("| %s | %llu | %.2e | %.2e | %.2e | %.1f %% | %.3f |\n", kv->name, (unsigned long long)bytes, sum / n,
           kl[(size_t)(0.99 * (n - 1))], kl[n - 1], 100.0 * same / n, exp(nll / (n - 1)));
    fflush(stdout);
    free(kl);
}

int main(int argc, char **argv)
{
    bool asked = argc == 5 && strcmp(argv[3], "--tokens") == 0;
    if (argc != 3 && !asked) {
        fprintf(stderr, "usage: kv_quality MODEL.gguf TEXT [--tokens N]\n");
        return 2;
    }
    struct sennit_model *m = NULL;
    struct sennit_tokens tokens;
    MUST(sennit_model_open(&m, argv[1], NULL, err));
    uint32_t n = read_tokens(m, argv[2], asked ? (uint32_t)strtoul(argv[4], NULL, 10) : DEFAULT_TOKENS, &tokens);
    const int32_t *ids = tokens.ids;
    CHECK(n > 1, "%s has fewer than two tokens", argv[2]);
    size_t n_vocab = m->hp.n_vocab;
    float *reference = malloc(n * n_vocab * sizeof *reference), *logits = malloc(n * n_vocab * sizeof *logits);
    CHECK(reference && logits, "no memory for the logits of %u tokens", n);
    printf(
        "%u tokens\n\n| keys and values | bytes per token | KL mean | 99 %% | most | same top token | perplexity |\n"
        "|---|---|---|---|---|---|---|\n",
        n);
    for (size_t i = 0; i < sizeof kvs / sizeof *kvs; i++) {
        uint64_t bytes = run(m, &kvs[i], ids, n, i == 0 ? reference : logits);
        compare(&kvs[i], bytes, ids, n, n_vocab, reference, i == 0 ? reference : logits);
    }
    free(reference);
    free(logits);
    sennit_tokens_free(&tokens);
    sennit_model_free(m);
    return 0;
}
