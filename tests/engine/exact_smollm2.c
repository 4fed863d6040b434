/* A row's answer is its own, on SmolLM2-135M: 16 prompts of 1 to 700 tokens; settings drawn from the cross of
 * company, chunk, threads and instruction set by a printed seed. Each axis is a deck that is shuffled whenever it is
 * used up, so each value is met as often as any other. Only chunk 1 takes the short half of the prompts, and the
 * scalar kernels, a hundred times slower, have two settings of their own with four prompts.
 *
 *   exact_smollm2 [--seed N] [--settings N] [--full-scalar] [--golden | --print]
 *      --full-scalar  the scalar kernels in the deck like the others, with all prompts: hours
 *      --golden       only the golden digests and the flipped bit
 *      --print        the digests for this file
 *
 * Also what was in force: under scalar no vector kernel ran, each thread worked, eight decoding rows were one step
 * that read each weight once, sixteen rows were one step in at least three settings, chunk 7 gave ceil(n / 7) spans,
 * and a flipped bit of a weight's code changes the digest. */
#include "engine/run.h"
#include "format/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_ROWS = 16, N_SHORT = 8, MAX_PROMPT = 700, LONG_PROMPT = 257, N_GOLDEN = 8 };

static const uint32_t chunks[] = {1, 7, 64, 512}, threads[] = {1, 2, 3, 7}, companies[] = {1, 2, 3, 8, 16};
enum { N_CHUNKS = 4, N_THREADS = 4, N_COMPANIES = 5, MAX_ISAS = 4 };
/* The first N_SHORT are short enough for chunk 1. */
static const size_t lengths[N_ROWS] = {1, 5, 16, 33, 64, 63, 48, 7, 65, 100, 129, 200, 256, 257, 511, 700};

/* Digests of the first eight prompts alone, release build of gcc and clang. Made by --print. */
static const uint64_t golden[N_GOLDEN] = {
    0xcbaebcf785ef94e0, 0xbe4d3c9e99827cbd, 0xb21eaad4400435cf, 0xa8c256fb6923276e,
    0x0a684a3a108a80cb, 0x9f406d92ade6cf88, 0xbc901871798bf8a3, 0x38d09262d9da6ab9,
};

struct problem {
    int32_t ids[N_ROWS][MAX_PROMPT];
    struct run_job jobs[N_ROWS];
    struct run_result want[N_ROWS];
};

static void make_problem(struct problem *p, uint32_t n_vocab)
{
    uint64_t state = 135;
    for (int i = 0; i < N_ROWS; i++) {
        run_random_ids(&state, n_vocab, p->ids[i], lengths[i]);
        p->jobs[i] =
            (struct run_job){.prompt = p->ids[i], .n_prompt = lengths[i], .max_tokens = 5, .cancel_step = RUN_NEVER};
        if (i % 2)
            p->jobs[i].sampling = (struct sennit_sampling){.temperature = 0.8f, .seed = (uint64_t)i, .top_p = 0.95f};
    }
}

static void run_alone(const struct sennit_model *m, struct problem *p)
{
    struct run_setting s = {.n_threads = 2, .chunk = 512, .max_rows = 1};
    struct sennit_engine *engine = run_engine(m, &s);
    for (int i = 0; i < N_ROWS; i++)
        run_jobs(engine, &p->jobs[i], 1, &p->want[i]);
    sennit_engine_free(engine);
}

static void check_in_force(struct sennit_engine *engine, const struct run_setting *s, const char *where)
{
    const struct sennit_stats *stats = sennit_engine_stats(engine);
    CHECK(strcmp(stats->isa, s->isa) == 0, "%s: ran as %s", where, stats->isa);
    CHECK(stats->cache_bytes == 0 && stats->cache_reserved == 0, "%s: cache bytes left", where);
    for (uint32_t i = 0; i < stats->n_kernels; i++) {
        const struct sennit_kernel_use *u = &stats->kernels[i];
        if (strcmp(s->isa, "scalar") == 0)
            CHECK(strncmp(u->variant, "scalar", 6) == 0, "%s: %s ran as %s", where, u->kernel, u->variant);
        if (strcmp(u->kernel, "gemm_q4_1") == 0) {
            CHECK(strncmp(u->variant, s->isa, strlen(s->isa)) == 0, "%s: products ran as %s", where, u->variant);
            for (uint32_t t = 0; t < s->n_threads; t++)
                CHECK(u->calls[t] > 0, "%s: thread %u did no product", where, t);
        }
    }
}

/* A setting and the rows that run in it, in groups of `company`. */
struct trial {
    struct run_setting s;
    uint32_t company;
    int rows[N_ROWS], n_rows;
    uint32_t most_rows; /* out: of one step */
    size_t n_checked;   /* out: rows whose answer was compared */
    bool met_long;      /* out: one of them was long */
    char where[128];
};

static void check_result(const struct problem *p, struct trial *t, int row, const struct run_result *got)
{
    const struct run_result *want = &p->want[row];
    CHECK(got->finish == SENNIT_FINISH_LENGTH, "%s, row %d: %s", t->where, row, got->error.message);
    CHECK(got->digest == want->digest, "%s, row %d: digest %016" PRIx64 ", alone %016" PRIx64, t->where, row,
          got->digest, want->digest);
    CHECK(memcmp(got->answer, want->answer, sizeof got->answer) == 0 &&
              memcmp(got->logprobs, want->logprobs, sizeof got->logprobs) == 0,
          "%s, row %d: other tokens or log-probabilities", t->where, row);
    size_t spans = (lengths[row] + t->s.chunk - 1) / t->s.chunk;
    if (t->company == 1)
        CHECK(got->n_prefill_spans == spans, "%s, row %d: %u prefill spans, not %zu", t->where, row,
              got->n_prefill_spans, spans);
    t->n_checked++;
    t->met_long |= lengths[row] >= LONG_PROMPT;
}

/* One group: joining at different steps; every second group has a row that is cancelled, in a company of 16 only
 * after all have joined. */
static void run_group(struct sennit_engine *engine, const struct problem *p, struct trial *t, const int *rows,
                      uint32_t n, uint64_t *state)
{
    struct run_job jobs[N_ROWS] = {{0}};
    struct run_result results[N_ROWS];
    uint32_t victim = n > 1 && run_random(state) % 2 ? (uint32_t)(run_random(state) % n) : RUN_NEVER;
    for (uint32_t i = 0; i < n; i++) {
        jobs[i] = p->jobs[rows[i]];
        jobs[i].join_step = (uint32_t)(run_random(state) % 4);
        if (i == victim)
            jobs[i].cancel_step = (n == N_ROWS ? 4 : jobs[i].join_step + 1) + (uint32_t)(run_random(state) % 3);
    }
    uint32_t most = run_jobs(engine, jobs, n, results);
    t->most_rows = most > t->most_rows ? most : t->most_rows;
    for (uint32_t i = 0; i < n; i++)
        if (i != victim)
            check_result(p, t, rows[i], &results[i]);
}

static void run_trial(const struct sennit_model *m, const struct problem *p, struct trial *t, uint64_t *state)
{
    snprintf(t->where, sizeof t->where, "isa %s, threads %u, chunk %u, company %u", t->s.isa, t->s.n_threads,
             t->s.chunk, t->company);
    for (int i = t->n_rows - 1; i > 0; i--) {
        int j = (int)(run_random(state) % (uint64_t)(i + 1)), row = t->rows[i];
        t->rows[i] = t->rows[j];
        t->rows[j] = row;
    }
    t->s.max_rows = N_ROWS;
    if (t->company == N_ROWS) /* room for a span of each row in one step */
        t->s.step_tokens = t->s.chunk > 160 ? 160 * N_ROWS : t->s.chunk * N_ROWS;
    struct sennit_engine *engine = run_engine(m, &t->s);
    for (int first = 0; first < t->n_rows; first += (int)t->company) {
        uint32_t left = (uint32_t)(t->n_rows - first);
        run_group(engine, p, t, t->rows + first, left < t->company ? left : t->company, state);
    }
    check_in_force(engine, &t->s, t->where);
    sennit_engine_free(engine);
    printf("ok: %s: %d prompts, batches of up to %u\n", t->where, t->n_rows, t->most_rows);
    fflush(stdout);
}

/* Eight rows in one decode step: each weight is read once, and both threads work. */
static void check_one_step(const struct sennit_model *m, struct problem *p)
{
    struct run_setting s = {.n_threads = 2, .chunk = 512, .max_rows = 8};
    struct sennit_engine *engine = run_engine(m, &s);
    struct sennit_request *requests[8];
    bool worked;
    for (int i = 0; i < 8; i++) {
        struct sennit_request_options o = {
            .prompt = p->ids[i], .n_prompt = lengths[i], .max_tokens = 8, .ignore_eos = true};
        MUST(sennit_engine_submit(engine, &o, &requests[i], err));
    }
    MUST(sennit_engine_step(engine, &worked, err));
    for (int step = 0; step < 3; step++) {
        uint64_t before = sennit_engine_stats(engine)->weight_bytes_read;
        MUST(sennit_engine_step(engine, &worked, err));
        const struct sennit_step_span *spans;
        uint32_t n = sennit_engine_last_step(engine, &spans);
        CHECK(n == 8, "a step of %u rows", n);
        for (uint32_t i = 0; i < n; i++)
            CHECK(spans[i].n_tokens == 1, "span %u has %u tokens", i, spans[i].n_tokens);
        uint64_t read = sennit_engine_stats(engine)->weight_bytes_read - before;
        uint64_t want = sennit_model_get_info(m)->step_weight_bytes;
        CHECK(read == want, "eight rows read %" PRIu64 " weight bytes; the model has %" PRIu64, read, want);
    }
    for (uint32_t t = 0; t < 2; t++)
        CHECK(run_calls(engine, "gemm_q4_1", t, NULL) > 0, "thread %u did no product", t);
    for (int i = 0; i < 8; i++)
        sennit_request_free(requests[i]);
    sennit_engine_free(engine);
    puts("ok: eight decoding rows were one step that read each weight once, on two threads");
}

/* ---- settings ---- */

/* Indices 0 .. n - 1 in a random order, shuffled again when all were drawn. */
struct deck {
    uint32_t n, left, cards[8];
};

static uint32_t draw(struct deck *d, uint64_t *state)
{
    if (d->left == 0) {
        for (uint32_t i = 0; i < d->n; i++)
            d->cards[i] = i;
        d->left = d->n;
    }
    uint32_t at = (uint32_t)(run_random(state) % d->left), card = d->cards[at];
    d->cards[at] = d->cards[--d->left];
    d->cards[d->left] = card;
    return card;
}

struct cross {
    const char *isas[MAX_ISAS];
    struct deck isa, chunk, threads, company;
    /* Values that a long prompt met, and settings in which one step had 16 rows. */
    bool isa_met[MAX_ISAS], chunk_met[N_CHUNKS], threads_met[N_THREADS], company_met[N_COMPANIES];
    uint32_t n_full;
    size_t n_rows;
};

static bool all_met(const bool *met, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!met[i])
            return false;
    return true;
}

/* Chunk 1 is excepted: it has the short prompts. */
static bool complete(const struct cross *x)
{
    return all_met(x->isa_met, x->isa.n) && all_met(x->chunk_met + 1, N_CHUNKS - 1) &&
           all_met(x->threads_met, N_THREADS) && all_met(x->company_met, N_COMPANIES) && x->n_full >= 3;
}

/* All prompts; at chunk 1 the short ones, twice when there is room for 16 rows. */
static void choose_rows(struct trial *t)
{
    t->n_rows = t->s.chunk > 1 || t->company == N_ROWS ? N_ROWS : N_SHORT;
    for (int i = 0; i < t->n_rows; i++)
        t->rows[i] = t->s.chunk > 1 ? i : i % N_SHORT;
}

static void run_drawn(const struct sennit_model *m, const struct problem *p, struct cross *x, uint64_t *state)
{
    uint32_t i = draw(&x->isa, state), c = draw(&x->chunk, state), t = draw(&x->threads, state),
             k = draw(&x->company, state);
    struct trial trial = {.s = {.isa = x->isas[i], .n_threads = threads[t], .chunk = chunks[c]},
                          .company = companies[k]};
    choose_rows(&trial);
    run_trial(m, p, &trial, state);
    if (trial.met_long)
        x->isa_met[i] = x->chunk_met[c] = x->threads_met[t] = x->company_met[k] = true;
    x->n_full += trial.most_rows == N_ROWS;
    x->n_rows += trial.n_checked;
}

/* Settings that do not depend on the seed: each prompt in chunks of 7, alone, and the scalar kernels. */
static size_t run_fixed(const struct sennit_model *m, const struct problem *p, const char *best, bool scalar_too,
                        uint64_t *state)
{
    struct trial
        spans = {.s = {.isa = best, .n_threads = 2, .chunk = 7}, .company = 1},
        scalar[] = {
            {.s = {.isa = "scalar", .n_threads = 7, .chunk = 64}, .company = 3, .rows = {0, 1, 2, 3}, .n_rows = 4},
            {.s = {.isa = "scalar", .n_threads = 2, .chunk = 7}, .company = 8, .rows = {0, 1, 7, 8}, .n_rows = 4}};
    choose_rows(&spans);
    run_trial(m, p, &spans, state);
    CHECK(spans.n_checked == N_ROWS, "only %zu prompts in chunks of 7", spans.n_checked);
    size_t n = spans.n_checked;
    for (int i = 0; scalar_too && i < 2; i++) {
        run_trial(m, p, &scalar[i], state);
        n += scalar[i].n_checked;
    }
    return n;
}

static size_t run_cross(const struct sennit_model *m, const struct problem *p, uint32_t n_settings, uint64_t seed,
                        bool full_scalar)
{
    uint64_t state = seed;
    struct cross x = {.chunk.n = N_CHUNKS, .threads.n = N_THREADS, .company.n = N_COMPANIES};
    const char *best = "scalar";
    for (const char *const *isa = run_isas(); *isa; isa++) {
        if (full_scalar || strcmp(*isa, "scalar") != 0)
            x.isas[x.isa.n++] = *isa;
        best = *isa;
    }
    size_t n = 0;
    if (x.isa.n > 0) {
        n = run_fixed(m, p, best, !full_scalar, &state);
        uint32_t drawn = 0;
        /* A few more than asked for, where chance left something out. */
        for (; drawn < n_settings || (!complete(&x) && drawn < 2 * n_settings); drawn++)
            run_drawn(m, p, &x, &state);
        CHECK(complete(&x),
              "after %u settings: each value with a prompt of %d tokens or more? instruction sets %d, "
              "chunks %d, threads %d, companies %d; %u settings with batches of 16, of 3",
              drawn, LONG_PROMPT, all_met(x.isa_met, x.isa.n), all_met(x.chunk_met + 1, N_CHUNKS - 1),
              all_met(x.threads_met, N_THREADS), all_met(x.company_met, N_COMPANIES), x.n_full);
        printf("%u drawn settings; %u with batches of 16 rows; each value met prompts up to %d tokens\n", drawn,
               x.n_full, MAX_PROMPT);
    } else {
        puts("note: this CPU has no vector level; --full-scalar runs the settings with the scalar kernels");
    }
    return n + x.n_rows;
}

/* ---- one bit ---- */

/* A copy of the file with the highest bit of one weight's code flipped, in a matrix of 4-bit codes. */
static void write_flipped(const char *from, char path[256])
{
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    sn_heap_init(&heap, NULL);
    MUST(sn_gguf_open(&g, &heap, from, err));
    const struct sn_gguf_tensor *t = sn_gguf_tensor(g, "blk.3.attn_v.weight");
    CHECK(t && t->type == SENNIT_Q4_1, "blk.3.attn_v.weight is not there or not Q4_1");
    /* Block 100: 20 bytes, the codes behind scale and offset. */
    uint64_t at = t->file_offset + 100 * 20 + 4 + 5;
    sn_gguf_close(g);
    const char *dir = getenv("TMPDIR");
    snprintf(path, 256, "%s/sennit-flipped-XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = mkstemp(path);
    CHECK(fd >= 0, "cannot make %s", path);
    FILE *in = fopen(from, "rb"), *out = fdopen(fd, "wb");
    static uint8_t buffer[1 << 20];
    uint64_t pos = 0;
    CHECK(in && out, "cannot copy %s to %s", from, path);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, in)) > 0; pos += n) {
        if (at >= pos && at < pos + n)
            buffer[at - pos] ^= 0x08;
        if (fwrite(buffer, 1, n, out) != n)
            break;
    }
    bool bad = ferror(in) || ferror(out) || pos <= at;
    fclose(in);
    bad |= fclose(out) != 0;
    if (bad)
        run_unlink(path);
    CHECK(!bad, "cannot copy %s to %s; is the disk full?", from, path);
}

static void check_flipped_bit(const char *from, const struct problem *p)
{
    enum { ROW = 2 };
    struct run_setting s = {.n_threads = 2, .chunk = 512, .max_rows = 1};
    struct sennit_model *m = NULL;
    struct run_result got;
    struct sennit_error e = {0};
    char path[256];
    write_flipped(from, path);
    sennit_status st = sennit_model_open(&m, path, NULL, &e);
    run_unlink(path);
    CHECK(st == SENNIT_OK, "%s", e.message);
    struct sennit_engine *engine = run_engine(m, &s);
    run_jobs(engine, &p->jobs[ROW], 1, &got);
    CHECK(got.finish == SENNIT_FINISH_LENGTH && got.digest != p->want[ROW].digest,
          "a flipped bit of a weight does not show in the digest of a prompt of %zu tokens", lengths[ROW]);
    sennit_engine_free(engine);
    sennit_model_free(m);
    puts("ok: one flipped bit of one weight's code shows in the digest");
}

/* ---- arguments ---- */

struct options {
    uint64_t seed;
    uint32_t n_settings;
    bool full_scalar, golden, print;
};

static bool number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 0);
    return *text >= '0' && *text <= '9' && !*end && *out <= most;
}

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.seed = 20261129, .n_settings = 18};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        uint64_t n = 0;
        if (strcmp(a, "--full-scalar") == 0)
            o->full_scalar = true;
        else if (strcmp(a, "--golden") == 0)
            o->golden = true;
        else if (strcmp(a, "--print") == 0)
            o->print = true;
        else if (strcmp(a, "--seed") == 0 && number(value, UINT64_MAX, &o->seed))
            i++;
        else if (strcmp(a, "--settings") == 0 && number(value, 100000, &n) && n > 0)
            o->n_settings = (uint32_t)n, i++;
        else
            return false;
    }
    return true;
}

static void check_golden(const struct problem *p, bool print)
{
    for (int i = 0; i < N_GOLDEN; i++)
        if (print)
            printf("    0x%016" PRIx64 ",\n", p->want[i].digest);
        else
            CHECK(p->want[i].digest == golden[i], "prompt %d: digest %016" PRIx64 ", golden %016" PRIx64, i,
                  p->want[i].digest, golden[i]);
}

int main(int argc, char **argv)
{
    static struct problem p;
    struct options o;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: exact_smollm2 [--seed N] [--settings N] [--full-scalar] [--golden | --print]\n");
        return 2;
    }
    const char *path = run_smollm2_path();
    if (!path) {
        puts("SKIPPED: no SmolLM2 file; scripts/fetch-smollm2.sh fetches it, or set SENNIT_SMOLLM2");
        return 77;
    }
    struct sennit_model *m = NULL;
    MUST(sennit_model_open(&m, path, NULL, err));
    make_problem(&p, sennit_model_get_info(m)->n_vocab);
    run_alone(m, &p);
    check_golden(&p, o.print);
    if (!o.print)
        check_flipped_bit(path, &p);
    if (!o.print && !o.golden) {
        check_one_step(m, &p);
        printf("seed %" PRIu64 ", %u settings\n", o.seed, o.n_settings);
        size_t n = run_cross(m, &p, o.n_settings, o.seed, o.full_scalar);
        printf("%zu rows, each equal to itself alone; %d golden digests hold\n", n, N_GOLDEN);
    }
    sennit_model_free(m);
    return 0;
}
