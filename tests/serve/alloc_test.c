/* Every allocation fails in turn, alone or with all behind it: a request then gives 503, an answer says that it
 * failed; no text is ever another than it was, and nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "events.h"
#include "serve/alloc.h"
#include "serve/json.h"
#include "serve/prepare.h"
#include "support/tiny_model.h"

static long left = -1; /* allocations that succeed before one fails; < 0 = all do */
static bool failed, for_good;

static bool allow(size_t n_bytes)
{
    (void)n_bytes;
    if (left != 0) {
        left -= left > 0;
        return true;
    }
    failed = true;
    left = for_good ? 0 : -1; /* alone: all succeed again */
    return false;
}

static void fail_after(long n, bool and_all_behind)
{
    left = n;
    failed = false;
    for_good = and_all_behind;
}

static void fail_no_more(void)
{
    left = -1;
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
    for (size_t k = 0; k < 2 * sizeof BODIES / sizeof *BODIES; k++) {
        size_t i = k / 2;
        bool how = k & 1;
        struct sv_call call, zero;
        struct sv_error err;
        memset(&zero, 0, sizeof zero);
        for (long n = 0;; n++) {
            assert_in_range(n, 0, 10000);
            fail_after(n, how);
            bool ok = parse(i, &call, &err);
            fail_no_more();
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
            fail_after(n, false);
            bool ok = answer(endpoint, how & 2, &s, &out);
            fail_no_more();
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
        fail_after(n, false);
        json_t *v = sv_error_json(&err);
        fail_no_more();
        assert_true((v != NULL) == !failed);
        json_decref(v);
        if (!failed)
            break;
    }
}

/* ---- texts ----------------------------------------------------------------------------------------------------- */

/* jansson's reader keeps each token in a buffer that doubles: tokens of all lengths around that, in all places. */
static void read_starving(const char *text, bool and_all_behind)
{
    struct sv_json_problem problem;
    json_t *want = sv_json_read(text, strlen(text), 10, &problem);
    for (long n = 0;; n++) {
        assert_in_range(n, 0, 1000);
        fail_after(n, and_all_behind);
        json_t *v = sv_json_read(text, strlen(text), 10, &problem);
        fail_no_more();
        if (failed && (v || !problem.no_memory))
            fail_msg("%s, allocation %ld: %s", text, n, problem.text);
        assert_true(failed || (want ? v && json_equal(v, want) : !v && !problem.no_memory));
        json_decref(v);
        if (!failed)
            break;
    }
    json_decref(want);
}

/* `around` with n digits and a tail at each '@', as a number or as a string. */
static void read_token(const char *around, int n, const char *tail, const char *quote)
{
    struct sv_buf b = {0};
    for (const char *p = around; *p; p++) {
        if (*p != '@') {
            sv_buf_add(&b, p, 1);
            continue;
        }
        sv_buf_puts(&b, quote);
        for (int i = 0; i < n; i++)
            sv_buf_puts(&b, i == 1 && !*quote ? "." : "5");
        sv_buf_puts(&b, tail);
        sv_buf_puts(&b, quote);
    }
    read_starving(b.data, false);
    read_starving(b.data, true);
    sv_buf_release(&b);
}

static void test_tokens(void **state)
{
    (void)state;
    static const char *const AROUND[] = {"@",         "[@,@]",        "[\"a\",\"b\",@,1.5]", "{\"k\":@,\"l\":\"\"}",
                                         "[[[@]], x", "{\"a\":{@:1}}"};
    static const char *const TAILS[] = {"", "e5", "e-7", "e+0", "\\n", "\\\"", "\\u00e9", "\xC3\xA9"};
    for (int n = 1; n < 70; n++) {
        for (size_t k = 0; k < sizeof AROUND / sizeof *AROUND; k++) {
            for (size_t t = 0; t < sizeof TAILS / sizeof *TAILS; t++) {
                read_token(AROUND[k], n, TAILS[t], "\"");
                read_token(AROUND[k], n, TAILS[t], "");
            }
        }
    }
}

static void test_written(void **state)
{
    (void)state;
    json_t *v = json_pack("{s:[i, f, {s:s}], s:b}", "a", 1, 2.5, "b", "a longer text of many bytes", "c", 1);
    struct sv_buf want = {0};
    sv_json_write(&want, v);
    for (long n = 0;; n++) {
        struct sv_buf out = {0};
        fail_after(n, false);
        sv_json_write(&out, v);
        fail_no_more();
        assert_true(out.failed == failed);
        if (!failed)
            assert_string_equal(out.data, want.data);
        sv_buf_release(&out);
        if (!failed)
            break;
    }
    sv_buf_release(&want);
    json_decref(v);
}

/* ---- prompts --------------------------------------------------------------------------------------------------- */

#define LONG_TEXT "0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789"

/* The library reads a template's variables with jansson, on the thread that watches. */
static void test_template(void **state)
{
    (void)state;
    static const char *const VARS[] = {
        "{\"x\":1.2345678901234567e-300,\"messages\":[\"" LONG_TEXT "\",\"0123456789abcd\",\"0123456789abcde\"]}",
        "{\"messages\":[\"a\",\"b\",-9223372036854775807,1.23456789012e+50]}",
        "{\"0123456789abcdef0123456789abcd\":1,\"messages\":[\"0123456789abcdef0123456789abcd\",12345678901234567]}",
    };
    for (size_t k = 0; k < 2 * sizeof VARS / sizeof *VARS; k++) {
        const char *vars = VARS[k / 2], *template = "{{ messages | tojson }}{{ x }}";
        struct sennit_text want = {0}, got = {0};
        assert_int_equal(sennit_template_render(template, vars, NULL, &want, NULL), SENNIT_OK);
        for (long n = 0;; n++) {
            assert_in_range(n, 0, 1000);
            fail_after(n, k & 1);
            sv_json_watch();
            sennit_status st = sennit_template_render(template, vars, NULL, &got, NULL);
            bool starved = sv_json_starved();
            fail_no_more();
            assert_true(starved == failed);
            if (!failed) {
                assert_int_equal(st, SENNIT_OK);
                assert_string_equal(got.data, want.data);
            }
            sennit_text_free(&got);
            if (!failed)
                break;
        }
        sennit_text_free(&want);
    }
}

/* Tokens of a chat's prompt; 0 after an error. */
static uint64_t prepare(const struct sv_facts *facts, struct sv_error *err)
{
    static char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"" LONG_TEXT "\"}],\"max_tokens\":1,\"n\":2,"
                         "\"chat_template_kwargs\":{\"a\":[\"" LONG_TEXT "\",1.2345678901234567e-300]}}";
    struct sv_job job = {.endpoint = SV_CHAT, .body = body, .n_body = sizeof body - 1};
    sv_prepare_job(facts, &job);
    uint64_t n_prompt = job.failed ? 0 : sv_answer_usage(job.answer).n_prompt;
    *err = job.error;
    for (uint32_t i = 0; i < job.n_choices; i++)
        sennit_request_free(job.choices[i].request);
    sv_free(job.choices);
    sv_answer_free(job.answer);
    return n_prompt;
}

static void check_prepare(const struct sv_facts *facts)
{
    struct sv_error err;
    uint64_t want = prepare(facts, &err);
    if (want < sizeof LONG_TEXT)
        fail_msg("%s", err.message);
    for (int how = 0; how < 2; how++) {
        for (long n = 0;; n++) {
            assert_in_range(n, 0, 10000);
            fail_after(n, how);
            uint64_t got = prepare(facts, &err);
            fail_no_more();
            if (failed ? got || err.http != 503 : got != want)
                fail_msg("allocation %ld: %llu tokens, %d %s", n, (unsigned long long)got, err.http, err.message);
            if (!failed)
                break;
        }
    }
}

static void test_prompts(void **state)
{
    (void)state;
    struct tiny_spec spec = tiny_spec_default();
    struct sennit_error err;
    struct sennit_model *model = NULL;
    struct sv_facts facts = {.alias = "m", .queue = 16, .max_tokens = 16};
    struct sennit_engine_options options = {.n_threads = 1, .no_pin = true, .max_rows = 2, .cache_bytes = 8 << 20};
    char path[] = "/tmp/sennit-serve-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    tiny_model_write(&spec, path);
    assert_int_equal(sennit_model_open(&model, path, NULL, &err), SENNIT_OK);
    unlink(path);
    facts.model = model;
    facts.info = sennit_model_get_info(model);
    facts.tokenizer = sennit_model_tokenizer(model);
    assert_int_equal(sennit_engine_create(&facts.engine, model, &options, &err), SENNIT_OK);
    check_prepare(&facts);
    sennit_engine_free(facts.engine);
    sennit_model_free(model);
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
        cmocka_unit_test(test_calls),   cmocka_unit_test(test_answers), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_tokens),  cmocka_unit_test(test_written), cmocka_unit_test(test_template),
        cmocka_unit_test(test_prompts),
    };
    sv_json_init();
    if (!tokenizer_get())
        return 1;
    sv_alloc_hook = allow;
    return cmocka_run_group_tests(tests, NULL, teardown);
}
