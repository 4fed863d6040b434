/* Every allocation fails in turn: a request then gives 503, an answer says that it failed; nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "events.h"
#include "serve/alloc.h"

static long left = -1; /* allocations that succeed before one fails; < 0 = all do */
static bool failed;

static bool allow(size_t n_bytes)
{
    (void)n_bytes;
    if (left < 0)
        return true;
    failed = failed || left == 0;
    return left-- != 0; /* one fails, then all succeed again: the harder case */
}

static void *json_alloc(size_t n_bytes)
{
    return allow(n_bytes) ? malloc(n_bytes) : NULL;
}

static const char *const BODIES[] = {
    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\\u00e9\"},{\"role\":\"user\",\"content\":"
    "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}],\"name\":\"n\"},{\"role\":\"assistant\","
    "\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
    "\"{\\\"a\\\":[1,2.5,true]}\"}}]}],\"stop\":[\"x\",\"y\"],\"logit_bias\":{\"1\":2},\"seed\":4,\"stream\":true,"
    "\"chat_template_kwargs\":{\"k\":{\"l\":[1]}},\"add_generation_prompt\":true,\"temperature\":0.5}",
    "{\"prompt\":[\"a\",\"b\"],\"stop\":\"z\",\"n\":2}",
    "{\"prompt\":[[1,2],[3]],\"logit_bias\":{}}",
    "{\"prompt\":\"one string\"}",
};

static bool parse(size_t i, struct sv_call *call, struct sv_error *err)
{
    return sv_call_parse(i == 0 ? SV_CHAT : SV_COMPLETION, BODIES[i], strlen(BODIES[i]), false, call, err);
}

static void test_calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof BODIES / sizeof *BODIES; i++) {
        struct sv_call call, zero;
        struct sv_error err;
        memset(&zero, 0, sizeof zero);
        for (long n = 0;; n++) {
            assert_in_range(n, 0, 10000);
            left = n;
            failed = false;
            bool ok = parse(i, &call, &err);
            left = -1;
            if (ok) {
                sv_call_release(&call);
                assert_false(failed); /* nothing goes on with a part of the request */
                break;
            }
            if (!failed || err.http != 503 || !err.message[0])
                fail_msg("body %zu, allocation %ld: %d %s", i, n, err.http, err.message);
            assert_memory_equal(&call, &zero, sizeof zero);
        }
    }
}

/* All of one answer; false when it failed. */
static bool answer(enum sv_endpoint endpoint, bool stream, struct script *s, struct sv_buf *out)
{
    struct sv_answer_options o = {.endpoint = endpoint,
                                  .stream = stream,
                                  .include_usage = true,
                                  .echo = endpoint == SV_COMPLETION,
                                  .logprobs = true,
                                  .id = "i",
                                  .model = "m",
                                  .fingerprint = "f",
                                  .tokenizer = tokenizer_get(),
                                  .n_choices = 1,
                                  .n_per_prompt = 1};
    struct sv_answer *a = sv_answer_create(&o);
    struct sennit_event ev;
    if (!a)
        return false;
    sv_answer_prompt(a, 0, s->prompt, s->n_prompt, o.echo ? "echo" : NULL, 4);
    s->next = 0;
    while (script_next(s, o.echo, &ev))
        sv_answer_event(a, 0, &ev, out);
    sv_answer_finish(a, out);
    bool ok = !sv_answer_failed(a) && !out->failed;
    sv_answer_free(a);
    return ok;
}

static void test_answers(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        enum sv_endpoint endpoint = how & 1 ? SV_COMPLETION : SV_CHAT;
        uint64_t rng = 7;
        struct script s;
        struct sv_buf want = {0};
        script_make(&s, tokenizer_get(), &rng, true);
        assert_true(answer(endpoint, how & 2, &s, &want));
        for (long n = 0;; n++) {
            struct sv_buf out = {0};
            assert_in_range(n, 0, 10000);
            left = n;
            failed = false;
            bool ok = answer(endpoint, how & 2, &s, &out);
            left = -1;
            if (ok)
                assert_string_equal(out.data, want.data);
            sv_buf_release(&out);
            assert_true(ok == !failed);
            if (!failed)
                break;
        }
        sv_buf_release(&want);
        script_release(&s);
    }
}

static void test_errors(void **state)
{
    (void)state;
    struct sv_error err;
    sv_fail(&err, 400, "c", "p", "m");
    for (long n = 0;; n++) {
        assert_in_range(n, 0, 1000);
        left = n;
        failed = false;
        json_t *v = sv_error_json(&err);
        left = -1;
        assert_true((v != NULL) == !failed);
        json_decref(v);
        if (!failed)
            break;
    }
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_free();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_errors),
    };
    if (!tokenizer_get())
        return 1;
    json_set_alloc_funcs(json_alloc, free);
    sv_alloc_hook = allow;
    return cmocka_run_group_tests(tests, NULL, teardown);
}
