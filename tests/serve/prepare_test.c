/* From a body to requests of an engine: what is refused and how, several prompts, and every allocation failing in
 * turn. No thread, no socket: the preparation's work on the test's own thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/alloc.h"
#include "serve/json.h"
#include "serve/prepare.h"
#include "support/tiny_model.h"

enum { QUEUE = 6, CONTEXT = 64 };

static struct sennit_model *model;
static struct sennit_engine *engine;
static struct sv_facts facts;

/* ---- memory that fails ----------------------------------------------------------------------------------------- */

static long left = -1; /* allocations that succeed before one fails; < 0 = all do */
static bool failed;

static bool allow(size_t n_bytes)
{
    (void)n_bytes;
    if (left < 0)
        return true;
    failed = failed || left == 0;
    return left-- != 0; /* one fails, then all succeed again */
}

static void *library_alloc(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)ctx;
    if (new_bytes == 0) {
        free(ptr);
        return NULL;
    }
    if (!allow(new_bytes))
        return NULL;
    void *p = aligned_alloc(64, (new_bytes + 63) / 64 * 64);
    if (p && ptr)
        memcpy(p, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
    if (p)
        free(ptr);
    return p;
}

/* ---- a server's facts ------------------------------------------------------------------------------------------ */

static int setup(void **state)
{
    char path[] = "/tmp/sennit-prepare-XXXXXX";
    struct tiny_spec spec = tiny_spec_default();
    const struct sennit_allocator allocator = {library_alloc, NULL};
    const struct sennit_model_options mo = {.allocator = allocator, .n_threads = 1};
    const struct sennit_engine_options eo = {
        .allocator = allocator, .n_threads = 1, .max_rows = 1, .max_waiting = QUEUE, .cache_bytes = 1 << 20};
    int fd = mkstemp(path);
    (void)state;
    sv_json_init();
    sv_alloc_hook = allow;
    spec.context_length = CONTEXT;
    tiny_model_write(&spec, path);
    assert_int_equal(sennit_model_open(&model, path, &mo, NULL), SENNIT_OK);
    close(fd);
    unlink(path);
    assert_int_equal(sennit_engine_create(&engine, model, &eo, NULL), SENNIT_OK);
    facts = (struct sv_facts){.model = model,
                              .info = sennit_model_get_info(model),
                              .tokenizer = sennit_model_tokenizer(model),
                              .engine = engine,
                              .alias = "alias",
                              .fingerprint = "print",
                              .keep_prompts = true,
                              .queue = QUEUE,
                              .max_tokens = 10};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sennit_engine_free(engine);
    sennit_model_free(model);
    return 0;
}

/* The job's parts that the preparation fills. */
static void release(struct sv_job *job)
{
    for (uint32_t i = 0; i < job->n_choices; i++)
        sennit_request_free(job->choices[i].request);
    sv_free(job->choices);
    sv_answer_free(job->answer);
    sv_free(job->prompt_text);
    *job = (struct sv_job){.endpoint = job->endpoint};
}

/* Cancelled requests leave the queue when the engine looks at it. */
static void settle(void)
{
    bool worked = true;
    while (worked)
        assert_int_equal(sennit_engine_step(engine, &worked, NULL), SENNIT_OK);
}

static void prepare(struct sv_job *job, enum sv_endpoint endpoint, const char *body)
{
    *job = (struct sv_job){.endpoint = endpoint, .id = "id", .body = (char *)(uintptr_t)body, .n_body = strlen(body)};
    sv_prepare_job(&facts, job);
    job->body = NULL;
    assert_null(job->call.model); /* the call is released in any case */
    assert_null(job->call.prompts);
    assert_null(job->call.vars_json);
}

/* ---- what is refused ------------------------------------------------------------------------------------------- */

struct refusal {
    enum sv_endpoint endpoint;
    const char *body;
    int http;
    const char *code, *words; /* words that the message has */
};

static const struct refusal REFUSALS[] = {
    {SV_COMPLETION, "{", 400, "invalid_json", "JSON"},
    {SV_COMPLETION, "{\"prompt\":\"a\",\"model\":\"other\"}", 404, "model_not_found", "'alias'"},
    {SV_COMPLETION, "{\"prompt\":\"a\",\"n\":7}", 400, "too_many_choices", "7 answers"},
    {SV_COMPLETION, "{\"prompt\":[\"a\",\"b\",\"c\",\"d\"],\"n\":2}", 400, "too_many_choices", "8 answers"},
    {SV_COMPLETION, "{\"prompt\":\"abcd\",\"max_tokens\":61}", 400, "context_length_exceeded", "together 65"},
    {SV_COMPLETION, "{\"prompt\":[[1,2],[3,300]]}", 400, "invalid_value", "token 1 of the prompt is 300"},
    {SV_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"300\":1}}", 400, "invalid_value", "token 300"},
    {SV_COMPLETION, "{\"prompt\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}", 400,
     "context_length_exceeded", "no room"},
    {SV_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":64}", 400,
     "context_length_exceeded", "64"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof REFUSALS / sizeof *REFUSALS; i++) {
        const struct refusal *r = &REFUSALS[i];
        struct sv_job job;
        prepare(&job, r->endpoint, r->body);
        if (!job.failed || job.error.http != r->http || !strstr(job.error.message, r->words))
            fail_msg("%s gives %d: %s", r->body, job.failed ? job.error.http : 200, job.error.message);
        assert_string_equal(job.error.code, r->code);
        for (uint32_t k = 0; k < job.n_choices; k++)
            assert_null(job.choices[k].request);
        release(&job);
    }
}

/* The edge of what fits, and names of the model that are right. */
static void test_accepted(void **state)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"abcd\",\"max_tokens\":60}",
        "{\"prompt\":\"abcd\",\"max_tokens\":0,\"model\":\"alias\"}",
        "{\"prompt\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
        "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":2}",
        "{\"prompt\":[[1,2],[3,299]],\"echo\":true,\"logprobs\":2,\"max_tokens\":0,\"n\":3}",
    };
    static const uint32_t n_choices[] = {1, 1, 1, 6, 6};
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct sv_job job;
        prepare(&job, SV_COMPLETION, bodies[i]);
        if (job.failed)
            fail_msg("%s is refused: %s", bodies[i], job.error.message);
        assert_int_equal(job.n_choices, n_choices[i]);
        for (uint32_t k = 0; k < job.n_choices; k++)
            assert_non_null(job.choices[k].request);
        release(&job);
        settle();
    }
}

/* A call whose last prompt finds the queue full leaves nothing there. */
static void test_all_or_nothing(void **state)
{
    struct sv_job first, second, third;
    struct sennit_load load;
    (void)state;
    prepare(&first, SV_COMPLETION, "{\"prompt\":\"a\",\"n\":4}");
    assert_false(first.failed);
    prepare(&second, SV_COMPLETION, "{\"prompt\":[\"b\",\"c\",\"d\"]}");
    assert_true(second.failed);
    assert_int_equal(second.error.http, 429);
    assert_string_equal(second.error.code, "queue_full");
    assert_int_equal(second.error.retry_after, 1);
    for (uint32_t i = 0; i < second.n_choices; i++)
        assert_null(second.choices[i].request);
    release(&first);
    release(&second);
    settle();
    prepare(&third, SV_COMPLETION, "{\"prompt\":[\"b\",\"c\",\"d\"],\"n\":2}");
    assert_false(third.failed);
    release(&third);
    settle();
    sennit_engine_load(engine, &load);
    assert_int_equal(load.rows_waiting, 0);
}

static void test_abandoned(void **state)
{
    struct sv_job job = {.endpoint = SV_COMPLETION};
    (void)state;
    atomic_store(&job.abandoned, true);
    sv_prepare_job(&facts, &job);
    assert_false(job.failed);
    assert_null(job.choices);
}

/* A drawn seed stays below 2^53 and is another one each time. */
static void test_seed(void **state)
{
    uint64_t seeds[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sv_job job;
        struct sv_buf out = {0};
        struct sennit_event ev = {0};
        prepare(&job, SV_COMPLETION, "{\"prompt\":\"a\",\"max_tokens\":0}");
        assert_false(job.failed);
        settle();
        while (ev.kind != SENNIT_EVENT_END) {
            assert_int_equal(sennit_request_next_event(job.choices[0].request, &ev, 0, NULL), SENNIT_OK);
            assert_int_not_equal(ev.kind, SENNIT_EVENT_NONE);
            sv_answer_event(job.answer, 0, &ev, NULL);
        }
        sv_answer_finish(job.answer, &out);
        sv_buf_add(&out, "", 1);
        const char *at = strstr(out.data, "\"seed\":");
        assert_non_null(at);
        seeds[i] = strtoull(at + 7, NULL, 10);
        assert_true(seeds[i] < UINT64_C(1) << 53);
        sv_buf_release(&out);
        release(&job);
    }
    assert_true(seeds[0] != seeds[1]);
}

/* ---- no memory ------------------------------------------------------------------------------------------------- */

static void test_memory(void **state)
{
    static const struct {
        enum sv_endpoint endpoint;
        const char *body;
    } calls[] = {
        {SV_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stop\":\"x\",\"n\":2,\"max_tokens\":5}"},
        {SV_COMPLETION, "{\"prompt\":[\"a b\",\"c\"],\"logit_bias\":{\"5\":1},\"n\":2,\"stream\":true}"},
        {SV_COMPLETION, "{\"prompt\":[[1,2],[3]],\"echo\":true,\"logprobs\":1,\"n\":2}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        long n = 0;
        for (bool hit = true; hit; n++) {
            struct sv_job job;
            assert_in_range(n, 0, 20000);
            left = n;
            failed = false;
            prepare(&job, calls[i].endpoint, calls[i].body);
            left = -1;
            hit = failed;
            if (job.failed && (job.error.http != 503 || job.error.retry_after == 0))
                fail_msg("allocation %ld of call %zu gives %d: %s", n, i, job.error.http, job.error.message);
            assert_true(hit || !job.failed);
            release(&job);
            settle();
        }
        assert_true(n > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_accepted), cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_abandoned), cmocka_unit_test(test_seed),     cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
