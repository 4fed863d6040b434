/* A real model against a reference in double precision (tests/golden/README.md): token ids of the
 * prompts' texts, the choice and the distribution of every one of 20 x 64 steps, and the likelihood
 * of a text. The engine runs the file as it is used: 8-bit activations and a float16 cache, which
 * the reference knows nothing of.
 *
 * The divergence is over the reference's 64 likeliest tokens and one bucket for all others: a lower
 * bound of the true one. `--dump DIR` writes all logits for tools/full_kl.py, which computes the
 * true one. */
#include "base/cpu.h"
#include "engine/machine.h"
#include "engine/run.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char golden[] = SENNIT_SOURCE_DIR "/tests/golden";

enum { N_PROMPTS = 20, N_STEPS = 64, N_TOP = 64, MAX_TEXT_TOKENS = 1024 };

struct prompt {
    const char *name, *text;
    int32_t *ids; /* the prompt, then the continuation */
    size_t n_ids;
    uint64_t digest; /* as the batch gave it */
    uint32_t n_agree;
    double kl_sum, kl_most;
};

struct reference {
    json_t *doc;
    struct prompt prompts[N_PROMPTS];
    uint16_t top_ids[N_PROMPTS][N_STEPS][N_TOP];
    float top_logprobs[N_PROMPTS][N_STEPS][N_TOP];
    int32_t text_ids[MAX_TEXT_TOKENS];
    double text_nll[MAX_TEXT_TOKENS];
    size_t n_text;
    double perplexity;
    const char *dump; /* folder for the logits of every position, or NULL */
};

/* ---- reading the reference
 * ------------------------------------------------------------------------------------- */

static void *read_file(const char *name, size_t *n_bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", golden, name);
    FILE *in = fopen(path, "rb");
    CHECK(in != NULL, "cannot open %s", path);
    CHECK(fseek(in, 0, SEEK_END) == 0, "%s", path);
    *n_bytes = (size_t)ftell(in);
    rewind(in);
    char *data = malloc(*n_bytes + 1);
    CHECK(data && fread(data, 1, *n_bytes, in) == *n_bytes, "cannot read %s", path);
    data[*n_bytes] = '\0';
    fclose(in);
    return data;
}

static size_t copy_ids(const json_t *array, int32_t *out)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        out[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return json_array_size(array);
}

static void read_prompts(struct reference *r)
{
    const json_t *prompts = json_object_get(r->doc, "prompts");
    CHECK(json_array_size(prompts) == N_PROMPTS, "%zu prompts", json_array_size(prompts));
    for (size_t i = 0; i < N_PROMPTS; i++) {
        const json_t *p = json_array_get(prompts, i), *tokens = json_object_get(p, "tokens"),
                     *continuation = json_object_get(p, "continuation");
        CHECK(json_array_size(continuation) == N_STEPS, "prompt %zu", i);
        struct prompt *out = &r->prompts[i];
        out->name = json_string_value(json_object_get(p, "name"));
        out->text = json_string_value(json_object_get(p, "text"));
        out->ids = calloc(json_array_size(tokens) + N_STEPS, sizeof *out->ids);
        out->n_ids = copy_ids(tokens, out->ids);
        copy_ids(continuation, out->ids + out->n_ids);
    }
}

static void read_reference(struct reference *r)
{
    size_t n;
    json_error_t problem;
    char *text = read_file("smollm2_reference.json", &n);
    r->doc = json_loadb(text, n, 0, &problem);
    free(text);
    CHECK(r->doc != NULL, "smollm2_reference.json: %s", problem.text);
    read_prompts(r);
    const json_t *t = json_object_get(r->doc, "text");
    CHECK(json_array_size(json_object_get(t, "tokens")) <= MAX_TEXT_TOKENS, "the text is too long");
    r->n_text = copy_ids(json_object_get(t, "tokens"), r->text_ids);
    for (size_t i = 0; i + 1 < r->n_text; i++)
        r->text_nll[i] = json_number_value(json_array_get(json_object_get(t, "nll"), i));
    r->perplexity = json_number_value(json_object_get(t, "perplexity"));
    char *top = read_file("smollm2_top64.bin", &n);
    CHECK(n == sizeof r->top_ids + sizeof r->top_logprobs, "smollm2_top64.bin has %zu bytes", n);
    memcpy(r->top_ids, top, sizeof r->top_ids);
    memcpy(r->top_logprobs, top + sizeof r->top_ids, sizeof r->top_logprobs);
    free(top);
}

/* ---- token ids ------------------------------------------------------------------------------- */

static void check_ids(const struct sennit_tokenizer *t, const char *name, const char *text,
                      size_t n_bytes, const int32_t *want, size_t n_want)
{
    struct sennit_tokens got = {0};
    MUST(sennit_tokenize(t, text, n_bytes, SENNIT_TOKENIZE_SPECIAL, &got, err));
    CHECK(got.n_ids == n_want, "%s: %zu ids, the reference has %zu", name, got.n_ids, n_want);
    for (size_t i = 0; i < n_want; i++)
        CHECK(got.ids[i] == want[i], "%s: id %zu is %d, the reference has %d", name, i, got.ids[i],
              want[i]);
    sennit_tokens_free(&got);
}

static void check_tokenizer(const struct sennit_model *m, const struct reference *r)
{
    size_t n, n_ids = r->n_text;
    const struct sennit_tokenizer *t = sennit_model_tokenizer(m);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        const struct prompt *p = &r->prompts[i];
        check_ids(t, p->name, p->text, strlen(p->text), p->ids, p->n_ids);
        n_ids += p->n_ids;
    }
    char *text = read_file("perplexity.txt", &n);
    check_ids(t, "perplexity.txt", text, n, r->text_ids, r->n_text);
    free(text);
    printf("tokens: all %zu ids of %d prompts and a text are the reference's\n", n_ids, N_PROMPTS);
}

/* ---- through the engine: choices and likelihood
 * ---------------------------------------------------------------- */

static struct sennit_request *submit_forced(struct sennit_engine *engine, const int32_t *ids,
                                            size_t n_prompt, size_t n_forced)
{
    struct sennit_request_options o = {.prompt = ids,
                                       .n_prompt = n_prompt,
                                       .max_tokens = (uint32_t)n_forced,
                                       .forced = ids + n_prompt,
                                       .ignore_eos = true,
                                       .want_logprob = true};
    struct sennit_request *request = NULL;
    MUST(sennit_engine_submit(engine, &o, &request, err));
    return request;
}

/* After the engine has run. choices (may be NULL) and logprobs: [n]. Returns the digest. */
static uint64_t take_events(struct sennit_request *request, size_t n, int32_t *choices,
                            float *logprobs)
{
    for (size_t i = 0;;) {
        struct sennit_event ev;
        MUST(sennit_request_next_event(request, &ev, 0, err));
        CHECK(ev.kind != SENNIT_EVENT_NONE, "no END");
        if (ev.kind == SENNIT_EVENT_TOKEN) {
            CHECK(i < n, "more than %zu tokens", n);
            if (choices)
                choices[i] = ev.forced_choice;
            logprobs[i++] = ev.logprob;
        }
        if (ev.kind == SENNIT_EVENT_END) {
            CHECK(ev.finish == SENNIT_FINISH_LENGTH && i == n, "%s: %s",
                  sennit_finish_name(ev.finish), ev.error.message);
            sennit_request_free(request);
            return ev.digest;
        }
    }
}

static void report_text(const struct reference *r, const float *logprobs)
{
    double sum = 0, square = 0, most = 0;
    size_t n = r->n_text - 1;
    for (size_t i = 0; i < n; i++) {
        double d = -(double)logprobs[i] - r->text_nll[i];
        sum -= (double)logprobs[i];
        square += d * d;
        most = fmax(most, fabs(d));
    }
    double perplexity = exp(sum / (double)n), off = perplexity / r->perplexity - 1;
    printf("perplexity over %zu tokens: %.4f, reference %.4f (%+.3f %%); one token's "
           "log-probability is off by %.4f rms, "
           "%.4f at most\n",
           n, perplexity, r->perplexity, 100 * off, sqrt(square / (double)n), most);
    CHECK(fabs(off) <= 0.01, "the perplexity is off by %.3f %%; 1 %% is allowed", 100 * off);
}

static void run_engine_part(const struct sennit_model *m, struct reference *r)
{
    struct sennit_engine_options o = {
        .max_rows = N_PROMPTS + 1, .chunk = 64, .cache_bytes = (uint64_t)1 << 30};
    struct sennit_engine *engine = NULL;
    struct sennit_request *requests[N_PROMPTS], *text;
    MUST(sennit_engine_create(&engine, m, &o, err));
    for (size_t i = 0; i < N_PROMPTS; i++)
        requests[i] = submit_forced(engine, r->prompts[i].ids, r->prompts[i].n_ids, N_STEPS);
    text = submit_forced(engine, r->text_ids, 1, r->n_text - 1);
    for (bool worked = true; worked;)
        MUST(sennit_engine_step(engine, &worked, err));
    uint32_t agree = 0;
    for (size_t i = 0; i < N_PROMPTS; i++) {
        struct prompt *p = &r->prompts[i];
        int32_t choices[N_STEPS];
        float logprobs[N_STEPS];
        p->digest = take_events(requests[i], N_STEPS, choices, logprobs);
        for (int s = 0; s < N_STEPS; s++)
            p->n_agree += choices[s] == p->ids[p->n_ids + (size_t)s];
        agree += p->n_agree;
    }
    float logprobs[MAX_TEXT_TOKENS];
    take_events(text, r->n_text - 1, NULL, logprobs);
    double share = (double)agree / (N_PROMPTS * N_STEPS);
    printf("choices: %u of %d next tokens (%.2f %%) are the reference's\n", agree,
           N_PROMPTS * N_STEPS, 100 * share);
    CHECK(share >= 0.95, "only %.2f %% agree; 95 %% is needed", 100 * share);
    report_text(r, logprobs);
    sennit_engine_free(engine);
}

/* ---- distributions
 * --------------------------------------------------------------------------------------------- */

static double log_sum_exp(const float *x, size_t n)
{
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        top = fmax(top, (double)x[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    return top + log(sum);
}

/* Reference to engine, over the reference's tokens and the rest. */
static double divergence(const uint16_t *ids, const float *logprobs, const float *logits,
                         size_t n_vocab)
{
    double lse = log_sum_exp(logits, n_vocab), kl = 0, p_sum = 0, q_sum = 0;
    for (int i = 0; i < N_TOP; i++) {
        double lp = (double)logprobs[i], lq = (double)logits[ids[i]] - lse, p = exp(lp);
        kl += p * (lp - lq);
        p_sum += p;
        q_sum += exp(lq);
    }
    double p_rest = 1 - p_sum, q_rest = 1 - q_sum;
    if (p_rest > 1e-6 && q_rest > 0)
        kl += p_rest * (log(p_rest) - log(q_rest));
    return kl;
}

/* What tools/full_kl.py reads: f32 [n_tokens][n_vocab]. */
static void dump_logits(const struct reference *r, const char *name, const float *logits, size_t n)
{
    char path[1024];
    if (!r->dump)
        return;
    snprintf(path, sizeof path, "%s/%s.f32", r->dump, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(logits, sizeof *logits, n, f) == n && fclose(f) == 0, "cannot write %s",
          path);
}

static void dump_text(const struct sennit_model *m, const struct reference *r, const char *isa)
{
    size_t n = r->n_text * m->hp.n_vocab;
    float *logits = calloc(n, sizeof *logits);
    struct machine mc;
    CHECK(logits != NULL, "no memory");
    machine_open(&mc, m, isa, SENNIT_F16, (uint32_t)r->n_text);
    machine_feed(&mc, r->text_ids, (uint32_t)r->n_text, 64, logits);
    machine_close(&mc);
    dump_logits(r, "text", logits, n);
    free(logits);
}

static void run_distributions(const struct sennit_model *m, struct reference *r)
{
    size_t n_vocab = m->hp.n_vocab;
    double sum = 0, most = 0;
    struct sn_cpu cpu = sn_cpu_detect();
    const char *isa = sn_isa_name(sn_isa_best(&cpu));
    if (r->dump)
        dump_text(m, r, isa);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        struct prompt *p = &r->prompts[i];
        uint32_t n = (uint32_t)p->n_ids + N_STEPS;
        float *logits = calloc(n * n_vocab, sizeof *logits);
        struct machine mc;
        CHECK(logits != NULL, "no memory");
        machine_open(&mc, m, isa, SENNIT_F16, n);
        machine_feed(&mc, p->ids, n, 48, logits);
        machine_close(&mc);
        dump_logits(r, p->name, logits, n * n_vocab);
        const float *first =
            logits + (p->n_ids - 1) * n_vocab; /* what the first continued token is chosen from */
        uint64_t digest = XXH3_64bits(first, N_STEPS * n_vocab * sizeof *logits);
        CHECK(digest == p->digest,
              "%s: the row's digest %016llx in the batch is not that of these logits (%016llx)",
              p->name, (unsigned long long)p->digest, (unsigned long long)digest);
        for (size_t s = 0; s < N_STEPS; s++) {
            double kl =
                divergence(r->top_ids[i][s], r->top_logprobs[i][s], first + s * n_vocab, n_vocab);
            p->kl_sum += kl;
            p->kl_most = fmax(p->kl_most, kl);
        }
        free(logits);
        sum += p->kl_sum;
        most = fmax(most, p->kl_most);
        printf("  %-16s %2u of %d choices, divergence %.5f in the mean, %.5f at most\n", p->name,
               p->n_agree, N_STEPS, p->kl_sum / N_STEPS, p->kl_most);
    }
    double mean = sum / (N_PROMPTS * N_STEPS);
    printf("divergence from the reference (lower bound: its %d likeliest tokens and the rest): "
           "%.6f nats in the mean, %.5f "
           "at most\n",
           N_TOP, mean, most);
    CHECK(mean <= 0.01, "the mean divergence is %.5f; 0.01 is allowed", mean);
}

int main(int argc, char **argv)
{
    static struct reference r;
    if (argc == 3 && strcmp(argv[1], "--dump") == 0)
        r.dump = argv[2];
    const char *path = run_smollm2_path();
    if (!path) {
        printf("SKIPPED: no SmolLM2 model file here; scripts/fetch-smollm2.sh gets it, or set "
               "SENNIT_SMOLLM2\n");
        return 77;
    }
    read_reference(&r);
    struct sennit_model *m = NULL;
    MUST(sennit_model_open(&m, path, NULL, err));
    CHECK(sennit_model_get_info(m)->file_bytes ==
              (uint64_t)json_integer_value(json_object_get(r.doc, "model_bytes")),
          "%s is not the file of the reference", path);
    check_tokenizer(m, &r);
    run_engine_part(m, &r);
    run_distributions(m, &r);
    sennit_model_free(m);
    for (size_t i = 0; i < N_PROMPTS; i++)
        free(r.prompts[i].ids);
    json_decref(r.doc);
    return 0;
}
