/* bench/cache_cost: what it costs to move rows about, for every family of caches.
 *
 *     cache_cost [--rows 16] [--kv-heads 3] [--dim 64] [--repeats 31] [--lengths 256,4096,32768] [FAMILY ...]
 *     cache_cost --join [--rows 16] [--context 4096] [--layers 30] [--group 3] [--other-ms 0] [FAMILY ...]
 *
 * The first form times merge (of that many rows), filter (one row less), extract, clone and publish (a clone, cut to
 * a prefix where the family allows one), each at several lengths of rows, with the bytes that the call got from the
 * allocator: where they do not grow with the length, nothing but references was copied.
 *
 * The second form joins a row to rows - 1 running ones in all layers, as the engine does (a fresh layout, a merge,
 * and the old layout and the serial cache given back; the CPU's caches swept before), and holds it against the
 * attention of one decode step over those same caches; --other-ms is what the model's products take beside it, from
 * `sennit bench`.
 *
 * One thread, its own CPU time less that of reading the clock, medians. Default: every family of the library; naive,
 * which is made to be slow, joins only when it is named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cache_feed.h"

enum { MAX_ROWS = 256, MAX_LAYERS = 128, MAX_REPEATS = 1001, MAX_LENGTHS = 8, N_OPS = 5 };

static struct {
    uint32_t rows, kv_heads, dim, repeats, context, layers, group, n_lengths, lengths[MAX_LENGTHS];
    double other_ms;
    bool join;
} opt = {.rows = 16,
         .kv_heads = 3,
         .dim = 64,
         .repeats = 31,
         .context = 4096,
         .layers = 30,
         .group = 3,
         .n_lengths = 3,
         .lengths = {256, 4096, 32768}};

static _Noreturn void fail(const char *what, const char *detail)
{
    fprintf(stderr, "cache_cost: %s: %s\n", what, detail);
    exit(1);
}

#define OK(call)                                                                                                     \
    do {                                                                                                             \
        struct sennit_error err_ = {0}, *err = &err_;                                                                \
        if ((call) != SENNIT_OK)                                                                                     \
            fail(#call, err->message);                                                                               \
    } while (0)

/* ---- an allocator that counts ---------------------------------------------------------------------------------- */

static uint64_t n_taken; /* bytes that the allocator has given out so far */

static void *counting(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    enum { HUGE = 2 << 20 };
    bool huge = new_bytes >= 2 * (size_t)HUGE; /* as the library's own allocator does */
    void *fresh = NULL;
    (void)ctx;
    if (new_bytes > 0 && posix_memalign(&fresh, huge ? HUGE : 64, new_bytes) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (huge)
        (void)madvise(fresh, new_bytes, MADV_HUGEPAGE);
#endif
    n_taken += new_bytes;
    if (fresh && ptr)
        memcpy(fresh, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
    free(ptr);
    return fresh;
}

static struct sennit_pool *open_pool(void)
{
    struct sennit_pool *pool;
    struct sennit_pool_options options = {.allocator = {counting, NULL}};
    OK(sennit_pool_create(&pool, &options, err));
    return pool;
}

/* ---- measuring ------------------------------------------------------------------------------------------------- */

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* a busy machine takes turns */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return x[n / 2];
}

struct op {
    double us[MAX_REPEATS];
    uint64_t bytes;
};
static struct op ops[N_OPS], nothing;
static const char *const op_names[N_OPS] = {"merge", "filter", "extract", "clone", "publish"};

/* Starts and ends one timing. */
static double started;
static uint64_t taken_before;

static void begin(void)
{
    taken_before = n_taken;
    started = now_us();
}

static void end(struct op *op, uint32_t repeat)
{
    op->us[repeat] = now_us() - started;
    op->bytes = n_taken - taken_before;
}

/* ---- rows of one family ---------------------------------------------------------------------------------------- */

typedef struct sennit_cache *const *sources;
static const struct sennit_cache *const *as_sources(sources list)
{
    return (const struct sennit_cache *const *)list;
}

/* The prefix to publish: half of the row, or what the family can give. */
static uint64_t prefix_of(const struct sennit_cache *row)
{
    uint64_t n = sennit_cache_row_offset(row, 0), floor = sennit_cache_minimum_reusable_offset(row, 0);
    uint64_t half = n / 2 + 1 > floor ? n / 2 + 1 : floor;
    if (sennit_cache_can_publish_row(row, 0, half))
        return half;
    return sennit_cache_can_publish_row(row, 0, n - 8) ? n - 8 : n;
}

static void publish(const struct sennit_cache *row, uint64_t prefix, struct sennit_cache **out)
{
    uint64_t n = sennit_cache_row_offset(row, 0);
    OK(sennit_cache_clone(row, 0, out, err));
    if (n > prefix)
        OK(sennit_cache_trim(*out, n - prefix, false, err));
}

static void repeat_ops(sources rows, uint32_t i)
{
    struct sennit_cache *batch, *copy;
    uint32_t keep[MAX_ROWS];
    uint64_t prefix = prefix_of(rows[0]);
    for (uint32_t r = 0; r + 1 < opt.rows; r++)
        keep[r] = r + 1;
    begin();
    end(&nothing, i);
    OK(sennit_cache_make_empty_batch(rows[0], &batch, err));
    begin();
    OK(sennit_cache_merge_rows(batch, as_sources(rows), opt.rows, err));
    end(&ops[0], i);
    begin();
    OK(sennit_cache_filter_rows(batch, keep, opt.rows - 1, err));
    end(&ops[1], i);
    begin();
    OK(sennit_cache_extract_row(batch, 0, &copy, err));
    end(&ops[2], i);
    sennit_cache_dispose(&copy);
    sennit_cache_dispose(&batch);
    begin();
    OK(sennit_cache_clone(rows[0], 0, &copy, err));
    end(&ops[3], i);
    sennit_cache_dispose(&copy);
    begin();
    publish(rows[0], prefix, &copy);
    end(&ops[4], i);
    sennit_cache_dispose(&copy);
}

static void measure_length(const struct feed *f, struct sennit_pool *pool, uint32_t length)
{
    struct sennit_cache *rows[MAX_ROWS];
    for (uint32_t r = 0; r < opt.rows; r++) {
        OK(sennit_cache_create(&rows[r], pool, &f->config, 1, err));
        OK(feed_row(f, rows[r], 0, length, err));
    }
    uint32_t repeats = f->info.copies_rows && opt.repeats > 5 ? 5 : opt.repeats;
    for (uint32_t i = 0; i < repeats; i++)
        repeat_ops(rows, i);
    double clock = median(nothing.us, repeats); /* what reading it twice takes */
    printf("%-11s %6u", f->info.name, length);
    for (int i = 0; i < N_OPS; i++) {
        double us = median(ops[i].us, repeats) - clock;
        printf("  %8.2f %9llu", us > 0 ? us : 0, (unsigned long long)ops[i].bytes);
    }
    printf("%s\n", f->info.copies_rows ? "  copies" : "");
    fflush(stdout);
    for (uint32_t r = 0; r < opt.rows; r++)
        sennit_cache_dispose(&rows[r]);
}

static void measure_family(const char *name)
{
    struct sennit_pool *pool = open_pool();
    struct feed f;
    OK(feed_open(&f, name, pool, opt.kv_heads, opt.dim, err));
    for (uint32_t i = 0; i < opt.n_lengths; i++)
        measure_length(&f, pool, opt.lengths[i]);
    feed_close(&f);
    sennit_pool_free(pool);
}

/* ---- joining --------------------------------------------------------------------------------------------------- */

struct layers {
    struct sennit_cache *batch[MAX_LAYERS], *serial[MAX_LAYERS];
};

static void fill_layer(const struct feed *f, struct sennit_pool *pool, struct sennit_cache **out)
{
    struct sennit_cache *rows[MAX_ROWS];
    for (uint32_t r = 0; r < opt.rows; r++) {
        OK(sennit_cache_create(&rows[r], pool, &f->config, 1, err));
        OK(feed_row(f, rows[r], 0, opt.context, err));
    }
    OK(sennit_cache_create(out, pool, &f->config, 0, err));
    OK(sennit_cache_merge_rows(*out, as_sources(rows), opt.rows, err));
    for (uint32_t r = 0; r < opt.rows; r++)
        sennit_cache_dispose(&rows[r]);
}

/* As after a decode step: nothing of the caches' lists is in the CPU's caches. */
static void sweep(void)
{
    enum { SWEPT = 96 << 20 };
    static volatile uint8_t *bytes;
    if (!bytes)
        bytes = calloc(SWEPT, 1);
    for (size_t i = 0; bytes && i < SWEPT; i += 64)
        bytes[i]++;
}

/* One row joins in every layer. */
static double join_ms(struct layers *l)
{
    double start = now_us();
    for (uint32_t i = 0; i < opt.layers; i++) {
        struct sennit_cache *fresh;
        struct sennit_cache *list[2] = {l->batch[i], l->serial[i]};
        OK(sennit_cache_make_empty_batch(l->batch[i], &fresh, err));
        OK(sennit_cache_merge_rows(fresh, as_sources(list), 2, err));
        sennit_cache_dispose(&l->batch[i]);
        sennit_cache_dispose(&l->serial[i]);
        l->batch[i] = fresh;
    }
    return (now_us() - start) * 1e-3;
}

/* The attention of one decode step of all rows, in all layers. */
static double attention_ms(const struct feed *f, struct layers *l)
{
    uint32_t n[MAX_ROWS], items, merges;
    size_t width = (size_t)f->n_heads * f->d_query, out_width = (size_t)f->n_heads * f->d_out;
    float *query = calloc(opt.rows * width + 1, sizeof *query), *out = calloc(opt.rows * out_width + 1, sizeof *out);
    float *index = calloc((size_t)opt.rows * (f->n_index + 1), sizeof *index);
    double ms = 0;
    if (!query || !out || !index)
        fail("memory", "there is not enough");
    for (size_t i = 0; i < opt.rows * width; i++)
        query[i] = (float)(i % 61) / 61 - 0.5f;
    for (uint32_t r = 0; r < opt.rows; r++)
        n[r] = 1;
    struct sennit_attend_inputs in = {.query = query,
                                      .query_stride = width,
                                      .index_query = index,
                                      .index_weight = index,
                                      .scale = 0.125f,
                                      .out = out,
                                      .out_stride = out_width};
    for (uint32_t i = 0; i < opt.layers; i++) {
        OK(feed_begin(f, l->batch[i], n, err));
        double start = now_us();
        for (in.part = 0; in.part == 0 || in.part < sennit_cache_composed(l->batch[i], NULL); in.part++) {
            sennit_cache_attend_plan(l->batch[i], &in, &items, &merges);
            for (uint32_t k = 0; k < items; k++)
                sennit_cache_attend_item(l->batch[i], k, 0);
            for (uint32_t k = 0; k < merges; k++)
                sennit_cache_attend_merge(l->batch[i], k, 0);
        }
        ms += (now_us() - start) * 1e-3;
        sennit_cache_append_abort(l->batch[i]);
    }
    free(query);
    free(out);
    free(index);
    return ms;
}

static void measure_join(const char *name)
{
    static struct layers l;
    static double join[MAX_REPEATS], attention[MAX_REPEATS];
    struct sennit_pool *pool = open_pool();
    struct feed f;
    uint32_t keep[MAX_ROWS], n_attention = opt.repeats < 5 ? opt.repeats : 5;
    OK(feed_open(&f, name, pool, opt.kv_heads, opt.dim, err));
    f.n_heads *= f.config.n_kv_heads ? opt.group : 1;
    for (uint32_t r = 0; r + 1 < opt.rows; r++)
        keep[r] = r;
    for (uint32_t i = 0; i < opt.layers; i++)
        fill_layer(&f, pool, &l.batch[i]);
    uint64_t taken = 0;
    for (uint32_t k = 0; k < opt.repeats; k++) {
        for (uint32_t i = 0; i < opt.layers; i++) {
            OK(sennit_cache_extract_row(l.batch[i], opt.rows - 1, &l.serial[i], err));
            OK(sennit_cache_filter_rows(l.batch[i], keep, opt.rows - 1, err));
        }
        sweep();
        taken = n_taken;
        join[k] = join_ms(&l);
        taken = n_taken - taken;
        if (k < n_attention)
            attention[k] = attention_ms(&f, &l);
    }
    double j = median(join, opt.repeats), a = median(attention, n_attention), step = a + opt.other_ms;
    printf("%-11s join %8.4f ms (%llu bytes)   attention %8.2f ms   step %8.2f ms   %.3f %%\n", name, j,
           (unsigned long long)taken, a, step, 100 * j / step);
    fflush(stdout);
    for (uint32_t i = 0; i < opt.layers; i++)
        sennit_cache_dispose(&l.batch[i]);
    feed_close(&f);
    sennit_pool_free(pool);
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

static uint32_t number(const char *name, const char *value, uint32_t most)
{
    char *stop;
    unsigned long n = value ? strtoul(value, &stop, 10) : 0;
    if (n < 1 || n > most || (*stop && *stop != ','))
        fail("a number from 1 up is wanted after", name);
    return (uint32_t)n;
}

static void parse_lengths(const char *value)
{
    opt.n_lengths = 0;
    for (const char *at = value; at && opt.n_lengths < MAX_LENGTHS; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        opt.lengths[opt.n_lengths++] = number("--lengths", at, 1u << 22);
}

/* Options off the front; returns how many arguments they were. */
static int parse(int argc, char **argv)
{
    const struct {
        const char *name;
        uint32_t *value, most;
    } numbers[] = {{"--rows", &opt.rows, MAX_ROWS},
                   {"--kv-heads", &opt.kv_heads, 128},
                   {"--dim", &opt.dim, 1024},
                   {"--repeats", &opt.repeats, MAX_REPEATS},
                   {"--context", &opt.context, 1u << 22},
                   {"--layers", &opt.layers, MAX_LAYERS},
                   {"--group", &opt.group, 64}};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool known = strcmp(argv[i], "--join") == 0;
        if (known) {
            opt.join = true;
            continue;
        }
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers && !known; k++)
            if (strcmp(argv[i], numbers[k].name) == 0) {
                *numbers[k].value = number(argv[i], value, numbers[k].most);
                known = true;
            }
        if (!known && value && strcmp(argv[i], "--lengths") == 0)
            parse_lengths(value);
        else if (!known && value && strcmp(argv[i], "--other-ms") == 0)
            opt.other_ms = strtod(value, NULL);
        else if (!known)
            fail("unknown option, or one without its value", argv[i]);
        i++;
    }
    return i;
}

int main(int argc, char **argv)
{
    int first = parse(argc, argv);
    const char *const *names = first < argc ? (const char *const *)argv + first : sennit_cache_families();
    if (opt.rows < 2)
        fail("--rows", "at least 2 are wanted");
    if (opt.join)
        printf("1 row joins %u of %u tokens in %u layers; one thread, %.2f ms of a step are not attention\n",
               opt.rows - 1, opt.context, opt.layers, opt.other_ms);
    else
        printf("%u rows; microseconds and bytes from the allocator\n%-11s %6s", opt.rows, "family", "tokens");
    for (int i = 0; i < N_OPS && !opt.join; i++)
        printf("  %18s", op_names[i]);
    if (!opt.join)
        printf("\n");
    for (const char *name; (name = *names) != NULL; names++) {
        if (!opt.join)
            measure_family(name);
        else if (first < argc || strcmp(name, "naive") != 0)
            measure_join(name);
    }
    return 0;
}
