/* bench/round_cost: what a verify round costs beside the step that it verifies, for every family of caches.
 *
 *     round_cost [--rows 8] [--drafts 4] [--kv-heads 3] [--dim 64] [--repeats 201] [--lengths 256,4096] [FAMILY ...]
 *
 * Rows of that many tokens take 1 + drafts tokens each in one step: without a round, and a second time within one,
 * which is then rolled back to 1 token per row. Printed: the bytes of all rows' state; the microseconds of the step's
 * appends alone, of opening the round, and of rolling back; the bytes of storage that the open round holds beside the
 * state. A family that copied its state in each round would show it in both. Attention is left out: the model's step
 * is many times what is timed here.
 *
 * One thread, its own CPU time, medians. Default: every family of the library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache_feed.h"

enum { MAX_ROWS = 256, MAX_REPEATS = 10001, MAX_LENGTHS = 8 };

static struct {
    uint32_t rows, drafts, kv_heads, dim, repeats, n_lengths, lengths[MAX_LENGTHS];
} opt = {.rows = 8, .drafts = 4, .kv_heads = 3, .dim = 64, .repeats = 201, .n_lengths = 2, .lengths = {256, 4096}};

static _Noreturn void fail(const char *what, const char *detail)
{
    fprintf(stderr, "round_cost: %s: %s\n", what, detail);
    exit(1);
}

#define OK(call)                                                                                                     \
    do {                                                                                                             \
        struct sennit_error err_ = {0}, *err = &err_;                                                                \
        if ((call) != SENNIT_OK)                                                                                     \
            fail(#call, err->message);                                                                               \
    } while (0)

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

enum { EMPTY, APPEND, OPEN, ROLLBACK, N_TIMES };
static double us[N_TIMES][MAX_REPEATS];

/* ---- one family at one length ---------------------------------------------------------------------------------- */

/* Rows of n tokens in one layout; rows of a family that changes its precision stand past the change. */
static struct sennit_cache *open_batch(const struct feed *f, struct sennit_pool *pool, uint32_t n)
{
    struct sennit_cache *rows[MAX_ROWS], *batch;
    for (uint32_t r = 0; r < opt.rows; r++) {
        OK(sennit_cache_create(&rows[r], pool, &f->config, 1, err));
        OK(feed_row(f, rows[r], 0, n, err));
    }
    OK(sennit_cache_create(&batch, pool, &f->config, 0, err));
    OK(sennit_cache_merge_rows(batch, (const struct sennit_cache *const *)rows, opt.rows, err));
    for (uint32_t r = 0; r < opt.rows; r++)
        sennit_cache_dispose(&rows[r]);
    return batch;
}

static void append(const struct feed *f, struct sennit_cache *batch, const uint32_t *n)
{
    OK(feed_begin(f, batch, n, err));
    sennit_cache_append_commit(batch);
}

static void time_rounds(const struct feed *f, struct sennit_pool *pool, uint32_t length)
{
    struct sennit_cache *batch = open_batch(f, pool, length);
    uint32_t n[MAX_ROWS];
    uint64_t keep[MAX_ROWS], state = sennit_pool_bytes(pool), taken = 0;
    for (uint32_t r = 0; r < opt.rows; r++) {
        n[r] = 1 + opt.drafts;
        keep[r] = 1;
    }
    for (uint32_t i = 0; i < opt.repeats; i++) {
        double t0 = now_us(), t1 = now_us();
        append(f, batch, n);
        double t2 = now_us();
        uint64_t before = sennit_pool_bytes(pool);
        double t_open = now_us();
        OK(sennit_cache_spec_round_begin(batch, err));
        double t3 = now_us();
        append(f, batch, n);
        taken = sennit_pool_bytes(pool) > before ? sennit_pool_bytes(pool) - before : 0;
        double t4 = now_us();
        OK(sennit_cache_spec_round_rollback(batch, keep, err));
        double t5 = now_us();
        us[EMPTY][i] = t1 - t0;
        us[APPEND][i] = t2 - t1;
        us[OPEN][i] = t3 - t_open;
        us[ROLLBACK][i] = t5 - t4;
    }
    double clock = median(us[EMPTY], opt.repeats);
    printf("%-12s %8u %12llu %10.2f %10.2f %10.2f %12llu\n", f->info.name, length, (unsigned long long)state,
           median(us[APPEND], opt.repeats) - clock, median(us[OPEN], opt.repeats) - clock,
           median(us[ROLLBACK], opt.repeats) - clock, (unsigned long long)taken);
    sennit_cache_dispose(&batch);
}

static void run_family(const char *name)
{
    for (uint32_t i = 0; i < opt.n_lengths; i++) {
        struct sennit_pool *pool;
        struct feed f;
        OK(sennit_pool_create(&pool, NULL, err));
        OK(feed_open(&f, name, pool, opt.kv_heads, opt.dim, err));
        if (f.source) {
            feed_close(&f);
            sennit_pool_free(pool);
            return; /* reads another cache's rows and has no rounds of its own */
        }
        f.config.round_depth = 1 + opt.drafts;
        time_rounds(&f, pool, opt.lengths[i]);
        feed_close(&f);
        sennit_pool_free(pool);
    }
}

/* ---- options --------------------------------------------------------------------------------------------------- */

static uint32_t number(const char *text, uint32_t most)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (end == text || (*end && *end != ',') || n == 0 || n > most)
        fail("not a number that can be", text);
    return (uint32_t)n;
}

static void read_lengths(const char *text)
{
    for (opt.n_lengths = 0; text && opt.n_lengths < MAX_LENGTHS;
         text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL)
        opt.lengths[opt.n_lengths++] = number(text, 1 << 20);
}

static int read_options(int argc, char **argv)
{
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        const char *name = argv[i] + 2, *value = argv[i + 1];
        if (strcmp(name, "rows") == 0)
            opt.rows = number(value, MAX_ROWS);
        else if (strcmp(name, "drafts") == 0)
            opt.drafts = number(value, 64);
        else if (strcmp(name, "kv-heads") == 0)
            opt.kv_heads = number(value, 64);
        else if (strcmp(name, "dim") == 0)
            opt.dim = number(value, 1024);
        else if (strcmp(name, "repeats") == 0)
            opt.repeats = number(value, MAX_REPEATS);
        else if (strcmp(name, "lengths") == 0)
            read_lengths(value);
        else
            fail("unknown option", argv[i]);
    }
    return i;
}

int main(int argc, char **argv)
{
    int first = read_options(argc, argv);
    printf("%u rows, rounds of 1 + %u tokens per row, 1 kept\n", opt.rows, opt.drafts);
    printf("%-12s %8s %12s %10s %10s %10s %12s\n", "family", "tokens", "state bytes", "append us", "open us",
           "rollback us", "round bytes");
    if (first < argc)
        for (int i = first; i < argc; i++)
            run_family(argv[i]);
    else
        for (const char *const *name = sennit_cache_families(); *name; name++)
            run_family(*name);
    return 0;
}
