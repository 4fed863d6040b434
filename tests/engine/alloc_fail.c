/* Every allocation fails once: opening a model (tokenizer, pre-tokenizer and chat template
 * included), making an engine, submitting, running, reading events, sessions, several answers to one
 * prompt, log-probabilities of a prompt, tokenizing. Each time
 * the call says so or the work goes on to the right answer; nothing crashes and nothing is left
 * over. Then the same with all later allocations failing too.
 *
 * The allocator is the public one: it checks every size it is told and that nothing is freed twice.
 * JSON values (Jansson, for template variables) and the C library's threads do not come from it, so
 * they are outside this test.
 *
 *   alloc_fail [--every N]    only every N-th allocation */
#include "engine/run.h"
#include "support/tiny_model.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the allocator
 * --------------------------------------------------------------------------------------------- */

enum { HEADER = 64, MAGIC = 0x5E4417 };

struct block {
    size_t n_bytes;
    uint64_t magic;
};

struct books {
    _Atomic size_t live_bytes, live_blocks;
    _Atomic uint64_t n_calls, n_failed;
    uint64_t fail_from, fail_to; /* calls that fail, counted from 1 */
};

static void *fresh_block(size_t n)
{
    struct block *b = NULL;
    if (posix_memalign((void **)&b, 64, HEADER + n) != 0)
        return NULL;
    *b = (struct block){n, MAGIC};
    memset((char *)b + HEADER, 0xA5, n);
    return (char *)b + HEADER;
}

static void give_back(struct books *books, void *ptr, size_t n)
{
    struct block *b = (struct block *)(void *)((char *)ptr - HEADER);
    CHECK(b->magic == MAGIC, "a block is freed that is not live");
    CHECK(b->n_bytes == n, "a block of %zu bytes is freed as one of %zu", b->n_bytes, n);
    b->magic = 0;
    memset(ptr, 0x5A, n);
    free(b);
    atomic_fetch_sub(&books->live_bytes, n);
    atomic_fetch_sub(&books->live_blocks, 1);
}

static void *allocate(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    struct books *books = ctx;
    CHECK(ptr || old_bytes == 0, "old size %zu without a block", old_bytes);
    if (new_bytes == 0) {
        if (ptr)
            give_back(books, ptr, old_bytes);
        return NULL;
    }
    uint64_t call = atomic_fetch_add(&books->n_calls, 1) + 1;
    if (call >= books->fail_from && call <= books->fail_to) {
        atomic_fetch_add(&books->n_failed, 1);
        return NULL;
    }
    void *fresh = fresh_block(new_bytes);
    if (!fresh)
        return NULL;
    atomic_fetch_add(&books->live_bytes, new_bytes);
    atomic_fetch_add(&books->live_blocks, 1);
    if (ptr) {
        memcpy(fresh, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
        give_back(books, ptr, old_bytes);
    }
    return fresh;
}

/* ---- the work -------------------------------------------------------------------------------- */

enum { N_REQUESTS = 8, GROUP = 4, N_GROUP = 3, REPORTED = 7, N_PROMPT = 20, N_ANSWER = 8, N_STAGES = 6 };
static const char *const stages[N_STAGES] = {"open", "engine", "tokenize", "session", "submit", "run"};

struct outcome {
    uint64_t digests[N_REQUESTS];
    sennit_finish finish[N_REQUESTS];
    int stage; /* where it stopped; N_STAGES = at the end */
    sennit_status status;
    size_t n_row_errors;
};

/* An error of a call must be NOMEM with a message. */
static bool refused(struct outcome *o, int stage, sennit_status st, const struct sennit_error *err)
{
    if (st == SENNIT_OK)
        return false;
    CHECK(st == SENNIT_NOMEM && err->code == st && err->message[0], "%s failed with %s: '%s'", stages[stage],
          sennit_status_name(st), err->message);
    o->stage = stage;
    o->status = st;
    return true;
}

static bool text_calls(const struct sennit_model *m, struct outcome *o)
{
    static const char text[] = "Hello world, the words of \xC3\xA9t\xC3\xA9 <|im_end|> and 12345!";
    const struct sennit_tokenizer *t = sennit_model_tokenizer(m);
    struct sennit_tokens ids = {0};
    struct sennit_text back = {0}, chat = {0};
    struct sennit_error err = {0};
    sennit_status st = sennit_tokenize(t, text, strlen(text), SENNIT_TOKENIZE_SPECIAL, &ids, &err);
    if (st == SENNIT_OK)
        st = sennit_detokenize(t, ids.ids, ids.n_ids, true, &back, &err);
    if (st == SENNIT_OK)
        CHECK(back.n_bytes == strlen(text) && memcmp(back.data, text, back.n_bytes) == 0, "text is '%s'", back.data);
    if (st == SENNIT_OK)
        st = sennit_template_render(sennit_model_get_info(m)->chat_template,
                                    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"add_"
                                    "generation_prompt\":true}",
                                    NULL, &chat, &err);
    sennit_tokens_free(&ids);
    sennit_text_free(&back);
    sennit_text_free(&chat);
    return !refused(o, 2, st, &err);
}

/* Submits request i; request 3 is the second turn of request 2's session, GROUP stands for N_GROUP answers to one
 * prompt. */
static sennit_status submit(struct sennit_engine *engine, uint32_t n_vocab, int i, struct sennit_session *session,
                            struct sennit_request **out, struct sennit_error *err)
{
    static const char *const stop[] = {"no such words", "\xC3\xA9t\xC3\xA9"};
    static const struct sennit_bias biases[] = {{7, 0.5f}, {8, -0.5f}};
    int32_t ids[N_PROMPT];
    uint64_t state = 9 + (uint64_t)(i == 3 ? 2 : i);
    run_random_ids(&state, n_vocab, ids, N_PROMPT);
    struct sennit_request_options o = {
        .prompt = ids,
        .n_prompt = i == 2 ? N_PROMPT - 6 : (size_t)(N_PROMPT - i % 3),
        .max_tokens = N_ANSWER,
        .sampling = {.temperature = i == 1 ? 0.9f : 0.0f,
                     .top_k = 20,
                     .top_p = 0.95f,
                     .seed = 4,
                     .repetition_penalty = 1.1f,
                     .biases = biases,
                     .n_biases = 2},
        .stop = stop,
        .n_stop = i == 0 ? 2 : 0,
        .ignore_eos = true,
        .n_logprobs = i == 1 || i == REPORTED ? 5 : 0,
        .prompt_logprobs = i == REPORTED,
        .session = i == 2 || i == 3 ? session : NULL,
    };
    if (i == GROUP)
        return sennit_engine_submit_n(engine, &o, N_GROUP, out, err);
    return sennit_engine_submit(engine, &o, out, err);
}

/* Reads what is there; true when the END came. A reader without memory asks again, a few times. */
static bool read_events(struct sennit_request *r, int i, struct outcome *o, bool *gave_up)
{
    for (int tries = 0; tries < 4;) {
        struct sennit_event ev;
        struct sennit_error err = {0};
        sennit_status st = sennit_request_next_event(r, &ev, 0, &err);
        if (st != SENNIT_OK) {
            CHECK(st == SENNIT_NOMEM && err.message[0], "events: %s: %s", sennit_status_name(st), err.message);
            tries++;
            continue;
        }
        if (ev.kind == SENNIT_EVENT_NONE)
            return false;
        if (ev.kind != SENNIT_EVENT_END)
            continue;
        o->finish[i] = ev.finish;
        o->digests[i] = ev.digest;
        if (ev.finish == SENNIT_FINISH_ERROR) {
            CHECK(ev.error.code == SENNIT_NOMEM && ev.error.message[0], "row %d: %s: %s", i,
                  sennit_status_name(ev.error.code), ev.error.message);
            o->n_row_errors++;
        }
        return true;
    }
    *gave_up = true;
    return true;
}

static bool run(struct sennit_engine *engine, uint32_t n_vocab, struct sennit_session *session, struct outcome *o)
{
    struct sennit_request *requests[N_REQUESTS] = {NULL};
    bool done[N_REQUESTS] = {false}, ok = true, gave_up = false;
    struct sennit_error err = {0};
    for (int i = 0; i < 3 && ok; i++)
        ok = !refused(o, 4, submit(engine, n_vocab, i, session, &requests[i], &err), &err);
    if (ok)
        ok = !refused(o, 4, submit(engine, n_vocab, GROUP, session, &requests[GROUP], &err), &err);
    if (ok)
        ok = !refused(o, 4, submit(engine, n_vocab, REPORTED, session, &requests[REPORTED], &err), &err);
    for (int step = 0, n_done = 0; ok && n_done < N_REQUESTS; step++) {
        bool worked;
        CHECK(step < 1000, "no progress");
        ok = !refused(o, 5, sennit_engine_step(engine, &worked, &err), &err);
        for (int i = 0; i < N_REQUESTS; i++)
            if (requests[i] && !done[i])
                done[i] = read_events(requests[i], i, o, &gave_up);
        if (ok && done[2] && !requests[3])
            ok = !refused(o, 4, submit(engine, n_vocab, 3, session, &requests[3], &err), &err);
        n_done = 0;
        for (int i = 0; i < N_REQUESTS; i++)
            n_done += done[i];
    }
    for (int i = 0; i < N_REQUESTS; i++)
        sennit_request_free(requests[i]);
    if (ok && gave_up) {
        o->stage = 5;
        o->status = SENNIT_NOMEM;
        return false;
    }
    return ok;
}

static struct outcome whole_life(const char *path, struct books *books)
{
    struct outcome o = {.stage = N_STAGES};
    struct sennit_allocator a = {allocate, books};
    struct sennit_model *m = NULL;
    struct sennit_engine *engine = NULL;
    struct sennit_session *session = NULL;
    struct sennit_tokenizer *alone = NULL;
    struct sennit_error err = {0};
    struct sennit_model_options mo = {.allocator = a, .n_threads = 2};
    struct sennit_engine_options eo = {
        .allocator = a, .n_threads = 2, .max_rows = 3, .chunk = 8, .cache_bytes = 16 << 20, .no_pin = true};
    bool ok = !refused(&o, 0, sennit_model_open(&m, path, &mo, &err), &err);
    ok = ok && !refused(&o, 1, sennit_engine_create(&engine, m, &eo, &err), &err);
    ok = ok && !refused(&o, 2, sennit_tokenizer_open(&alone, path, &mo, &err), &err);
    ok = ok && text_calls(m, &o);
    ok = ok && !refused(&o, 3, sennit_session_create(&session, engine, &err), &err);
    ok = ok && run(engine, sennit_model_get_info(m)->n_vocab, session, &o);
    sennit_session_free(session);
    sennit_engine_free(engine);
    sennit_tokenizer_free(alone);
    sennit_model_free(m);
    return o;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void check_outcome(const struct outcome *got, const struct outcome *want, uint64_t n, bool failed)
{
    if (!failed || got->stage == N_STAGES)
        for (int i = 0; i < N_REQUESTS; i++)
            CHECK(got->finish[i] == SENNIT_FINISH_ERROR ||
                      (got->finish[i] == want->finish[i] && got->digests[i] == want->digests[i]),
                  "allocation %" PRIu64 " failed and row %d has finish %s and digest %016" PRIx64 ", not %016" PRIx64,
                  n, i, sennit_finish_name(got->finish[i]), got->digests[i], want->digests[i]);
}

static void check_books(const struct books *b, uint64_t n, const char *how)
{
    CHECK(b->live_bytes == 0 && b->live_blocks == 0, "%s allocation %" PRIu64 ": %zu bytes in %zu blocks are left",
          how, n, b->live_bytes, b->live_blocks);
}

static void sweep(const char *path, const struct outcome *want, uint64_t n_calls, uint64_t every, bool for_good)
{
    size_t stopped[N_STAGES + 1] = {0}, rows = 0, runs = 0, unharmed = 0;
    const char *how = for_good ? "from" : "only";
    for (uint64_t n = 1; n <= n_calls; n += every, runs++) {
        struct books b = {.fail_from = n, .fail_to = for_good ? UINT64_MAX : n};
        struct outcome got = whole_life(path, &b);
        check_books(&b, n, how);
        check_outcome(&got, want, n, b.n_failed != 0);
        stopped[got.stage]++;
        rows += got.n_row_errors;
        unharmed += got.stage == N_STAGES && got.n_row_errors == 0;
    }
    printf("%s the n-th allocation fails, %zu runs: refused in", how, runs);
    for (int s = 0; s < N_STAGES; s++)
        printf(" %s %zu,", stages[s], stopped[s]);
    printf(" rows ended with an error %zu, right in spite of it %zu; nothing left over\n", rows, unharmed);
}

int main(int argc, char **argv)
{
    uint64_t every = argc > 2 && strcmp(argv[1], "--every") == 0 ? strtoull(argv[2], NULL, 10) : 1;
    struct tiny_spec spec = tiny_spec_default();
    char path[256];
    spec.type = SENNIT_Q8_0;
    CHECK(every > 0, "--every 0");
    run_tiny_path(&spec, path);
    struct books b = {0};
    struct outcome want = whole_life(path, &b);
    check_books(&b, 0, "without a failing");
    CHECK(want.stage == N_STAGES && want.n_row_errors == 0, "stopped in stage %d", want.stage);
    for (int i = 0; i < N_REQUESTS; i++)
        CHECK(want.finish[i] == SENNIT_FINISH_LENGTH, "row %d: %s", i, sennit_finish_name(want.finish[i]));
    printf("%" PRIu64 " allocations (Jansson's and the C library's aside)\n", b.n_calls);
    sweep(path, &want, b.n_calls, every, false);
    sweep(path, &want, b.n_calls, every * 7, true);
    run_unlink(path);
    return 0;
}
