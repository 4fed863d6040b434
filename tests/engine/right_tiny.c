/* The engine's forward against reference answers in double precision (tests/golden/README.md):
 * every logit of every position of nine tiny models, on every instruction set and at three chunk
 * sizes, with a float32 cache. Right ones must agree; deliberately wrong ones must be told apart.
 *
 *   right_tiny [--verbose]    one line per model, instruction set and chunk */
#include "engine/machine.h"
#include "engine/run.h"
#include "support/tiny_model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char golden[] = SENNIT_SOURCE_DIR "/tests/golden";

/* ---- the reference's side
 * -------------------------------------------------------------------------------------- */

struct reference {
    const char *name;
    int32_t *tokens;
    uint32_t n_tokens, n_vocab, n_wrong, n_wrong_positions;
    const char *wrong_names[16];
    float *all;              /* the file */
    const float *right, *q8; /* [n_tokens][n_vocab]; q8 NULL when there is none */
    const float *wrong[16];  /* [n_wrong_positions][n_vocab] */
    double explained, range, tolerance;
    bool quantized;
};

static json_int_t integer(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    CHECK(json_is_integer(v), "%s is no integer", key);
    return json_integer_value(v);
}

static const char *string(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    CHECK(s != NULL, "%s is no string", key);
    return s;
}

static sennit_type type_named(const char *name)
{
    static const sennit_type types[] = {SENNIT_F32, SENNIT_F16, SENNIT_BF16, SENNIT_Q8_0, SENNIT_Q4_0, SENNIT_Q4_1};
    for (size_t i = 0; i < SN_ARRAY_LEN(types); i++)
        if (strcmp(sennit_type_name(types[i]), name) == 0)
            return types[i];
    CHECK(false, "no type %s", name);
    return SENNIT_F32;
}

static struct tiny_spec spec_of(const json_t *model)
{
    const json_t *s = json_object_get(model, "spec");
    struct tiny_spec spec = tiny_spec_default();
    spec.seed = (uint64_t)integer(s, "seed");
    spec.n_layers = (uint32_t)integer(s, "layers");
    spec.d_model = (uint32_t)integer(s, "d-model");
    spec.n_heads = (uint32_t)integer(s, "heads");
    spec.n_kv_heads = (uint32_t)integer(s, "kv-heads");
    spec.head_dim = (uint32_t)integer(s, "head-dim");
    spec.d_ff = (uint32_t)integer(s, "d-ff");
    spec.n_vocab = (uint32_t)integer(s, "vocab");
    spec.rope_base = (float)json_number_value(json_object_get(s, "rope-base"));
    spec.eps = (float)json_number_value(json_object_get(s, "eps"));
    spec.tied = json_is_true(json_object_get(s, "tied"));
    spec.type = spec.embd_type = type_named(string(s, "type"));
    return spec;
}

static void read_floats(struct reference *r, const char *file, size_t n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", golden, file);
    FILE *in = fopen(path, "rb");
    CHECK(in != NULL, "cannot open %s", path);
    r->all = malloc(n * sizeof *r->all);
    CHECK(r->all && fread(r->all, sizeof *r->all, n, in) == n && fgetc(in) == EOF, "%s does not hold %zu values",
          path, n);
    fclose(in);
}

static void reference_load(struct reference *r, const json_t *model, double tolerance)
{
    const json_t *tokens = json_object_get(model, "tokens"), *wrong = json_object_get(model, "wrong");
    *r = (struct reference){.name = string(model, "name"), .tolerance = tolerance};
    r->n_tokens = (uint32_t)integer(model, "n_tokens");
    r->n_vocab = (uint32_t)integer(model, "n_vocab");
    r->n_wrong = (uint32_t)json_array_size(wrong);
    r->n_wrong_positions = (uint32_t)integer(model, "n_wrong_positions");
    r->explained = json_number_value(json_object_get(json_object_get(model, "explained"), "q8_activations"));
    r->quantized = json_is_true(json_object_get(model, "has_q8_logits"));
    CHECK(json_array_size(tokens) == r->n_tokens && r->n_wrong <= SN_ARRAY_LEN(r->wrong), "%s", r->name);
    r->tokens = calloc(r->n_tokens, sizeof *r->tokens);
    for (uint32_t i = 0; i < r->n_tokens; i++)
        r->tokens[i] = (int32_t)json_integer_value(json_array_get(tokens, i));
    size_t full = (size_t)r->n_tokens * r->n_vocab, part = (size_t)r->n_wrong_positions * r->n_vocab;
    /* What the tests promise of the f32 models: none of the known mistakes is left out. */
    CHECK(type_named(string(json_object_get(model, "spec"), "type")) != SENNIT_F32 || r->n_wrong >= 8,
          "%s: only %u wrong variants; remake the golden answers", r->name, r->n_wrong);
    read_floats(r, string(model, "file"), full * (r->quantized ? 2 : 1) + part * r->n_wrong);
    const float *at = r->all;
    r->right = at;
    at += full;
    if (r->quantized) {
        r->q8 = at;
        at += full;
    }
    for (uint32_t i = 0; i < r->n_wrong; i++, at += part) {
        r->wrong[i] = at;
        r->wrong_names[i] = string(json_array_get(wrong, i), "name");
    }
    float low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < full; i++) {
        low = fminf(low, r->right[i]);
        high = fmaxf(high, r->right[i]);
    }
    r->range = (double)high - (double)low;
}

/* ---- the comparison
 * -------------------------------------------------------------------------------------------- */

/* Largest distance as a fraction of the range. A NaN counts as infinite. */
static double distance(const struct reference *r, const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most = d <= most ? most : isnan(d) ? INFINITY : d;
    }
    return most / r->range;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over positions of a position's largest distance. */
static double median_distance(const struct reference *r, const float *a, const float *b)
{
    double *each = calloc(r->n_tokens, sizeof *each);
    for (uint32_t t = 0; t < r->n_tokens; t++)
        each[t] = distance(r, a + (size_t)t * r->n_vocab, b + (size_t)t * r->n_vocab, r->n_vocab);
    qsort(each, r->n_tokens, sizeof *each, by_size);
    double median = each[r->n_tokens / 2];
    free(each);
    return median;
}

struct found {
    double right, least_wrong, q8_median, q8_most;
    const char *least_name;
    size_t n_runs;
};

static void compare(const struct reference *r, const float *logits, const char *where, struct found *found)
{
    size_t full = (size_t)r->n_tokens * r->n_vocab, part = (size_t)r->n_wrong_positions * r->n_vocab;
    double right = distance(r, logits, r->right, full);
    /* Rounding codes the other way moves a position as much as the rounding itself does. */
    double allowed = r->quantized ? 2 * r->explained : r->tolerance;
    CHECK(right <= allowed, "%s: logits are %.3g of the range from the right ones; %.3g is allowed", where, right,
          allowed);
    found->right = fmax(found->right, right);
    for (uint32_t i = 0; i < r->n_wrong; i++) {
        double d = distance(r, logits + full - part, r->wrong[i], part);
        CHECK(d > 10 * r->tolerance, "%s: logits are only %.3g of the range from the wrong ones '%s'", where, d,
              r->wrong_names[i]);
        if (d < found->least_wrong) {
            found->least_wrong = d;
            found->least_name = r->wrong_names[i];
        }
    }
    if (r->quantized) {
        double median = median_distance(r, logits, r->q8), most = distance(r, logits, r->q8, full);
        CHECK(median <= r->tolerance && most <= 2e-2, "%s: median %.3g and most %.3g of the range from block 2",
              where, median, most);
        found->q8_median = fmax(found->q8_median, median);
        found->q8_most = fmax(found->q8_most, most);
    }
    found->n_runs++;
}

static uint64_t file_hash(const char *path, size_t *n_bytes)
{
    uint64_t h = 0xCBF29CE484222325u;
    FILE *in = fopen(path, "rb");
    CHECK(in != NULL, "cannot open %s", path);
    *n_bytes = 0;
    for (int c; (c = fgetc(in)) != EOF; ++*n_bytes)
        h = (h ^ (uint64_t)c) * 0x100000001B3u;
    fclose(in);
    return h;
}

static void check_file(const json_t *model, const char *path)
{
    char hex[17];
    size_t n;
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)file_hash(path, &n));
    CHECK((json_int_t)n == integer(model, "model_bytes") && strcmp(hex, string(model, "model_fnv1a64")) == 0,
          "%s: the tiny model is not the one of the reference (%zu bytes, hash %s); remake the "
          "golden answers",
          string(model, "name"), n, hex);
}

static void one_model(const json_t *entry, double tolerance, bool verbose)
{
    struct reference r;
    struct found found = {.least_wrong = INFINITY};
    struct tiny_spec spec = spec_of(entry);
    char path[256], where[96];
    reference_load(&r, entry, tolerance);
    run_tiny_path(&spec, path);
    check_file(entry, path);
    struct sennit_model *m = NULL;
    MUST(sennit_model_open(&m, path, NULL, err));
    float *logits = calloc((size_t)r.n_tokens * r.n_vocab, sizeof *logits);
    const uint32_t chunks[] = {1, 7, r.n_tokens};
    for (const char *const *isa = run_isas(); *isa; isa++)
        for (size_t c = 0; c < SN_ARRAY_LEN(chunks); c++) {
            struct machine mc;
            snprintf(where, sizeof where, "%s, %s, chunk %u", r.name, *isa, chunks[c]);
            machine_open(&mc, m, *isa, SENNIT_F32, r.n_tokens);
            machine_feed(&mc, r.tokens, r.n_tokens, chunks[c], logits);
            machine_close(&mc);
            compare(&r, logits, where, &found);
            if (verbose)
                printf("  %s: %.3g\n", where, distance(&r, logits, r.right, (size_t)r.n_tokens * r.n_vocab));
        }
    printf("%-10s %zu runs x %u x %u logits: right within %.2e of the range", r.name, found.n_runs, r.n_tokens,
           r.n_vocab, found.right);
    if (r.n_wrong)
        printf("; %u wrong variants, the nearest (%s) %.2e away", r.n_wrong, found.least_name, found.least_wrong);
    if (r.quantized)
        printf("; 8-bit activations: median %.2e, most %.2e", found.q8_median, found.q8_most);
    printf("\n");
    sennit_model_free(m);
    run_unlink(path);
    free(logits);
    free(r.tokens);
    free(r.all);
}

int main(int argc, char **argv)
{
    bool verbose = argc > 1 && strcmp(argv[1], "--verbose") == 0;
    char path[1024];
    json_error_t problem;
    snprintf(path, sizeof path, "%s/tiny_llama.json", golden);
    json_t *doc = json_load_file(path, 0, &problem);
    CHECK(doc != NULL, "%s: %s", path, problem.text);
    double tolerance = json_number_value(json_object_get(doc, "tolerance"));
    const json_t *models = json_object_get(doc, "models");
    CHECK(json_array_size(models) == 9, "%s is not as expected", path);
    CHECK(tolerance == 2e-5, "%s: a tolerance of %g; the promise is 2e-5 of the range", path, tolerance);
    size_t n_f32 = 0;
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *model = json_array_get(models, i);
        n_f32 += strcmp(string(json_object_get(model, "spec"), "type"), "F32") == 0;
        one_model(model, tolerance, verbose);
    }
    CHECK(n_f32 == 4, "%zu f32 models", n_f32);
    json_decref(doc);
    return 0;
}
