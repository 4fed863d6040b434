/* bench/kv_read: one decode step's attention alone, cache families against each other.
 *
 *     kv_read [--rows 8] [--context 2048] [--kv-heads 4] [--group 4] [--dim 64] [--layers 4] [--rounds 15] [--isa X]
 *             [FAMILY ...]
 *
 * FAMILY: plain:f32, plain:f16, plain:bf16, affine:BITS[/VALUE_BITS][:GROUP], for example affine:8, affine:8/4:64, or
 * turboquant:BITS[/VALUE_BITS], for example turboquant:8/3; padded:TYPE as plain:TYPE.
 * Default: plain:f16 affine:8 affine:4. The first one is what the others are compared with.
 *
 * Every family holds `layers` caches of `rows` rows at `context` tokens. A round reads all layers of the first
 * family, then of the second and so on, so that whatever else the machine does meets all of them; a family's figure
 * is the median of its rounds, its ratio the median of the ratios within a round. One thread. What is timed is plan,
 * items and merges; appending the step's own token is not. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sennit/cache.h"

enum { MAX_FAMILIES = 8, MAX_LAYERS = 64, MAX_ROUNDS = 1000, SPAN = 64 };

struct options {
    uint32_t rows, context, kv_heads, group, dim, layers, rounds;
    const char *isa;
};

struct family {
    const char *name;
    struct sennit_pool *pool;
    struct sennit_cache *layer[MAX_LAYERS];
    double us[MAX_ROUNDS];
};

static struct options opt = {8, 2048, 4, 4, 64, 4, 15, NULL};
static float *tokens, *queries, *outputs; /* of one step */

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "kv_read: %s: %s\n", what, detail);
    exit(1);
}

static void check(sennit_status status, const struct sennit_error *err)
{
    if (status != SENNIT_OK)
        fail(sennit_status_name(status), err->message);
}

static void *must(void *p)
{
    if (!p)
        fail("memory", "there is not enough");
    return p;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* a busy machine takes turns */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Numbers from -1 to 1, seeded by the place where they go. */
static void fill(float *x, size_t n, uint64_t seed)
{
    uint64_t s = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (size_t i = 0; i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        x[i] = (float)(int64_t)(s >> 40) * 0x1p-23f - 1.0f;
    }
}

/* ---- families ---------------------------------------------------------------------------------------------------
 * */

static bool parse_coded(const char *family, const char *rest, struct sennit_cache_config *c)
{
    char *end;
    c->family = family;
    c->code.k_bits = c->code.v_bits = (uint32_t)strtoul(rest, &end, 10);
    if (*end == '/')
        c->code.v_bits = (uint32_t)strtoul(end + 1, &end, 10);
    c->code.group = 32;
    if (*end == ':')
        c->code.group = (uint32_t)strtoul(end + 1, &end, 10);
    return end != rest && *end == 0;
}

static bool parse_typed(const char *family, const char *rest, struct sennit_cache_config *c)
{
    c->family = family;
    if (strcmp(rest, "f32") == 0)
        c->k_type = SENNIT_F32;
    else if (strcmp(rest, "f16") == 0)
        c->k_type = SENNIT_F16;
    else if (strcmp(rest, "bf16") == 0)
        c->k_type = SENNIT_BF16;
    else
        return false;
    c->v_type = c->k_type;
    return true;
}

static struct sennit_cache_config config_of(const char *name)
{
    struct sennit_cache_config c = {.n_kv_heads = opt.kv_heads, .d_k = opt.dim, .d_v = opt.dim, .max_span = SPAN};
    bool ok = strncmp(name, "plain:", 6) == 0         ? parse_typed("plain", name + 6, &c)
              : strncmp(name, "padded:", 7) == 0      ? parse_typed("padded", name + 7, &c)
              : strncmp(name, "affine:", 7) == 0      ? parse_coded("affine", name + 7, &c)
              : strncmp(name, "turboquant:", 11) == 0 ? parse_coded("turboquant", name + 11, &c)
                                                      : false;
    if (!ok)
        fail("no such family", name);
    return c;
}

/* Opens a step of n tokens for every row and gives it keys and values. */
static void open_step(struct sennit_cache *cache, uint64_t pos, uint32_t n)
{
    struct sennit_error err = {0};
    struct sennit_span *spans = must(calloc(opt.rows, sizeof *spans));
    size_t width = (size_t)opt.kv_heads * opt.dim;
    for (uint32_t r = 0; r < opt.rows; r++)
        spans[r] = (struct sennit_span){.row = r, .pos = pos, .n_tokens = n, .first_token = r * n};
    check(sennit_cache_append_begin(cache, spans, opt.rows, opt.kv_heads * opt.group, &err), &err);
    for (uint32_t r = 0; r < opt.rows; r++)
        for (int role = SENNIT_ROLE_KEY; role <= SENNIT_ROLE_VALUE; role++) {
            fill(tokens, n * width, (pos * opt.rows + r) * 2 + (uint64_t)role);
            sennit_cache_append_tile(cache, r, 0, n, (sennit_role)role, 0, opt.kv_heads, tokens, width, 0);
        }
    free(spans);
}

static void open_family(struct family *f, const char *name)
{
    struct sennit_error err = {0};
    struct sennit_pool_options options = {.isa = opt.isa};
    struct sennit_cache_config config = config_of(name);
    f->name = name;
    check(sennit_pool_create(&f->pool, &options, &err), &err);
    for (uint32_t layer = 0; layer < opt.layers; layer++) {
        struct sennit_cache **rows = must(calloc(opt.rows, sizeof(void *)));
        for (uint32_t r = 0; r < opt.rows; r++)
            check(sennit_cache_create(&rows[r], f->pool, &config, 1, &err), &err);
        check(sennit_cache_create(&f->layer[layer], f->pool, &config, 0, &err), &err);
        check(sennit_cache_merge_rows(f->layer[layer], (const struct sennit_cache *const *)rows, opt.rows, &err),
              &err);
        for (uint32_t r = 0; r < opt.rows; r++)
            sennit_cache_dispose(&rows[r]);
        free(rows);
        for (uint32_t pos = 0, n; pos + 1 < opt.context; pos += n) {
            n = opt.context - 1 - pos < SPAN ? opt.context - 1 - pos : SPAN;
            open_step(f->layer[layer], pos, n);
            sennit_cache_append_commit(f->layer[layer]);
        }
    }
}

static void close_family(struct family *f)
{
    for (uint32_t layer = 0; layer < opt.layers; layer++)
        sennit_cache_dispose(&f->layer[layer]);
    sennit_pool_free(f->pool);
}

/* ---- rounds -----------------------------------------------------------------------------------------------------
 * */

/* The attention of one step over all layers, in microseconds per layer. */
static double step_us(struct family *f)
{
    size_t width = (size_t)opt.kv_heads * opt.group * opt.dim;
    struct sennit_attend_inputs in = {
        .query = queries, .query_stride = width, .scale = 0.125f, .out = outputs, .out_stride = width};
    double us = 0;
    for (uint32_t layer = 0; layer < opt.layers; layer++) {
        struct sennit_cache *cache = f->layer[layer];
        uint32_t items, merges;
        open_step(cache, opt.context - 1, 1);
        double start = now_us();
        sennit_cache_attend_plan(cache, &in, &items, &merges);
        for (uint32_t i = 0; i < items; i++)
            sennit_cache_attend_item(cache, i, 0);
        for (uint32_t i = 0; i < merges; i++)
            sennit_cache_attend_merge(cache, i, 0);
        us += now_us() - start;
        sennit_cache_append_abort(cache);
    }
    return us / opt.layers;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, size_t n)
{
    static double sorted[MAX_ROUNDS];
    memcpy(sorted, x, n * sizeof *x);
    qsort(sorted, n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

static void report(const struct family *f, const struct family *first)
{
    static double ratio[MAX_ROUNDS];
    for (uint32_t i = 0; i < opt.rounds; i++)
        ratio[i] = first->us[i] / f->us[i];
    uint64_t bytes = sennit_cache_bytes_per_token(f->layer[0]);
    double us = median(f->us, opt.rounds);
    printf("%-14s %6llu bytes/token  %9.1f us/layer  %6.2f GB/s  x %.2f\n", f->name, (unsigned long long)bytes, us,
           (double)bytes * opt.rows * opt.context / us * 1e-3, median(ratio, opt.rounds));
}

static uint32_t number(const char *name, const char *value, uint32_t most)
{
    char *end;
    unsigned long n = value ? strtoul(value, &end, 10) : 0;
    if (n < 1 || n > most || *end)
        fail("a number from 1 up is wanted after", name);
    return (uint32_t)n;
}

/* Options off the front; returns how many arguments they were. */
static int parse(int argc, char **argv)
{
    static const struct {
        const char *name;
        uint32_t *value, most;
    } numbers[] = {{"--rows", &opt.rows, 256},
                   {"--context", &opt.context, 1u << 20},
                   {"--kv-heads", &opt.kv_heads, 128},
                   {"--group", &opt.group, 128},
                   {"--dim", &opt.dim, 1024},
                   {"--layers", &opt.layers, MAX_LAYERS},
                   {"--rounds", &opt.rounds, MAX_ROUNDS}};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i += 2) {
        bool known = strcmp(argv[i], "--isa") == 0 && i + 1 < argc;
        if (known)
            opt.isa = argv[i + 1];
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers && !known; k++)
            if (strcmp(argv[i], numbers[k].name) == 0) {
                *numbers[k].value = number(argv[i], i + 1 < argc ? argv[i + 1] : NULL, numbers[k].most);
                known = true;
            }
        if (!known)
            fail("unknown option, or one without its value", argv[i]);
    }
    return i;
}

int main(int argc, char **argv)
{
    static const char *const defaults[] = {"plain:f16", "affine:8", "affine:4"};
    static struct family families[MAX_FAMILIES];
    int first = parse(argc, argv), n = argc - first > 0 ? argc - first : 3;
    if (n > MAX_FAMILIES)
        fail("too many families", "8 at most");
    size_t width = (size_t)opt.rows * opt.kv_heads * opt.group * opt.dim;
    tokens = must(calloc((size_t)SPAN * opt.kv_heads * opt.dim, sizeof *tokens));
    queries = must(calloc(width, sizeof *queries));
    outputs = must(calloc(width, sizeof *outputs));
    fill(queries, width, 99);
    for (int i = 0; i < n; i++)
        open_family(&families[i], argc > first ? argv[first + i] : defaults[i]);
    for (int i = 0; i < n; i++)
        step_us(&families[i]); /* once without counting */
    for (uint32_t round = 0; round < opt.rounds; round++)
        for (int i = 0; i < n; i++)
            families[i].us[round] = step_us(&families[i]);
    printf("%u rows of %u tokens, %u KV heads of %u, %u query heads each, %u layers, median of %u rounds\n", opt.rows,
           opt.context, opt.kv_heads, opt.dim, opt.group, opt.layers, opt.rounds);
    for (int i = 0; i < n; i++)
        report(&families[i], &families[0]);
    for (int i = 0; i < n; i++)
        close_family(&families[i]);
    free(tokens);
    free(queries);
    free(outputs);
    return 0;
}
