/* Where an answer begins and ends: stop strings at every place, token limits, the edge of the context, several
 * answers to a prompt, echo, bias, seeds and the reasons for which answers finish. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/calls.h"

enum { CONTEXT = 128, BYTE = TINY_N_SPECIAL /* the id of byte 0 */ };

#define PROMPT_TOKENS "sennit_tokens_total{kind=\"prompt\"}"

static struct server server;

/* ---- answers of known letters ---------------------------------------------------------------------------------- */

/* A bias that leaves the model printable ASCII. */
static json_t *ascii_only(void)
{
    json_t *bias = json_object();
    char id[16];
    for (int i = 0; i < BYTE + 256; i++) {
        bool printable = i >= BYTE + ' ' && i < BYTE + 127;
        snprintf(id, sizeof id, "%d", i);
        if (!printable)
            json_object_set_new(bias, id, json_integer(-100));
    }
    return bias;
}

/* A bias towards the two bytes of an e with an acute accent, and three letters. */
static json_t *accents(void)
{
    json_t *bias = json_object();
    char id[16];
    static const int wanted[] = {0xC3, 0xA9, 'a', 'b', 'c'};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        snprintf(id, sizeof id, "%d", BYTE + wanted[i]);
        json_object_set_new(bias, id, json_integer(60));
    }
    return bias;
}

static json_t *letters(json_t *bias, int max_tokens)
{
    return with(bodyf("{'prompt': 'hello world', 'max_tokens': %d, 'temperature': 4, 'seed': 5}", max_tokens),
                "logit_bias", bias);
}

static json_t *streamed(json_t *body, bool stream)
{
    if (stream)
        with(body, "stream", json_true());
    return body;
}

static void ask_ok(json_t *body, struct answer *a)
{
    char *text = json_dumps(body, JSON_COMPACT);
    ask(&server, body, a);
    CHECK(a->http == 200 && !a->error && a->result == HTTP_OK, "status %d (%s: %s) for %.400s", a->http,
          http_result_name(a->result), a->error ? json_string_value(json_object_get(a->error, "message")) : "", text);
    free(text);
}

static void expect(json_t *body, const char *text, const char *finish)
{
    struct answer a;
    char *said = json_dumps(body, JSON_COMPACT);
    ask_ok(body, &a);
    CHECK(strcmp(answer_text(&a, 0), text) == 0, "the text is '%s' instead of '%s' for %s", answer_text(&a, 0), text,
          said);
    CHECK(strcmp(answer_finish(&a, 0), finish) == 0, "finish_reason is %s instead of %s for %s", answer_finish(&a, 0),
          finish, said);
    free(said);
    answer_free(&a);
}

/* ---- stop strings ---------------------------------------------------------------------------------------------- */

static bool between_characters(const char *at)
{
    return (*at & 0xC0) != 0x80;
}

/* Every substring of some lengths of the answer's text as stop string: the text ends before its first place. */
static void stops_at_every_place(json_t *(*bias)(void), int n_tokens)
{
    static const size_t lengths[] = {1, 2, 3, 5, 9};
    struct answer whole;
    ask_ok(letters(bias(), n_tokens), &whole);
    const char *text = answer_text(&whole, 0);
    size_t n_text = strlen(text), n_cuts = 0;
    CHECK(strcmp(answer_finish(&whole, 0), "length") == 0 && n_text >= 24, "'%s' ends by itself", text);
    for (size_t from = 0; from<n_text; from += LESS> 1 ? 3 : 1)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            size_t n = lengths[k];
            if (from + n > n_text || !between_characters(text + from) || !between_characters(text + from + n))
                continue;
            char stop[16], want[512];
            snprintf(stop, sizeof stop, "%.*s", (int)n, text + from);
            if (strstr(stop, "\xEF\xBF\xBD"))
                continue; /* stands for bytes that are no character */
            snprintf(want, sizeof want, "%.*s", (int)(strstr(text, stop) - text), text);
            for (int stream = 0; stream < 2; stream++)
                expect(with_text(streamed(letters(bias(), n_tokens), stream), "stop", stop), want, "stop");
            n_cuts++;
        }
    CHECK(n_cuts > 20 / LESS, "only %zu stop strings in '%s'", n_cuts, text);
    answer_free(&whole);
}

static void stop_strings(void)
{
    stops_at_every_place(ascii_only, 24);
}

static void stop_multibyte(void)
{
    stops_at_every_place(accents, 70);
    struct answer whole;
    ask_ok(letters(accents(), 70), &whole);
    CHECK(strstr(answer_text(&whole, 0), "\xC3\xA9"), "no accent in '%s'", answer_text(&whole, 0));
    answer_free(&whole);
    /* Half a character is no text: refused before it can mean anything. */
    static const char *const halves[] = {"\"\xC3\"", "\"\xA9\"", "\"\\ud83d\"", "[\"a\", \"\xE2\x82\"]"};
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        struct http_conn c;
        struct http_response r = {0};
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\": \"a\", \"stop\": %s}", halves[i]);
        CHECK(http_connect(&c, server.port), "cannot connect");
        http_request(&c, "POST", "/v1/completions", "", body, strlen(body));
        enum http_result result = http_read(&c, &r, 10000);
        CHECK(result == HTTP_OK && r.status == 400, "%s: status %d for %s", http_result_name(result), r.status, body);
        json_t *root;
        error_of(r.body, r.n_body, &root);
        json_decref(root);
        http_response_free(&r);
        http_close(&c);
    }
}

/* What might have become a stop string and did not is given at the end; the earliest of several counts. */
static void stop_incomplete(void)
{
    struct answer whole;
    ask_ok(letters(ascii_only(), 24), &whole);
    char text[512], stop[600], want[512];
    snprintf(text, sizeof text, "%s", answer_text(&whole, 0));
    size_t n = strlen(text);
    for (int stream = 0; stream < 2; stream++) {
        for (size_t tail = 1; tail <= n; tail++) {
            snprintf(stop, sizeof stop, "%s~never~", text + n - tail);
            expect(with_text(streamed(letters(ascii_only(), 24), stream), "stop", stop), text, "length");
        }
        json_t *several = json_pack("[s,s,s#,s#]", "~no~", "~never~", text + 10, 2, text + 6, 3);
        snprintf(stop, sizeof stop, "%.3s", text + 6);
        snprintf(want, sizeof want, "%.2s", text + 10);
        size_t first = (size_t)(strstr(text, stop) - text), second = (size_t)(strstr(text, want) - text);
        snprintf(want, sizeof want, "%.*s", (int)(first < second ? first : second), text);
        expect(with(streamed(letters(ascii_only(), 24), stream), "stop", several), want, "stop");
    }
    answer_free(&whole);
    expect(with(letters(ascii_only(), 24), "stop", json_null()), text, "length");
    expect_refusal(&server, with_text(letters(ascii_only(), 24), "stop", ""), 400, "stop", NULL);
    expect_refusal(&server, with(letters(ascii_only(), 24), "stop", json_integer(3)), 400, "stop", NULL);
    json_t *many = json_array();
    for (int i = 0; i < 1000; i++)
        json_array_append_new(many, json_string("x"));
    expect_refusal(&server, with(letters(ascii_only(), 24), "stop", many), 400, "stop", NULL);
}

/* ---- limits ---------------------------------------------------------------------------------------------------- */

static void max_tokens(void)
{
    static const struct {
        const char *path, *name;
    } ways[] = {{"prompt", "max_tokens"}, {"messages", "max_tokens"}, {"messages", "max_completion_tokens"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int n = 0; n < 4; n++)
            for (int stream = 0; stream < 2; stream++) {
                json_t *body = strcmp(ways[i].path, "prompt") == 0
                                   ? bodyf("{'prompt': 'hello'}")
                                   : bodyf("{'messages': [{'role': 'user', 'content': 'hello'}]}");
                with(with(body, ways[i].name, json_integer(n)), "ignore_eos", json_true());
                with(body, "stream_options", stream ? json_pack("{s:b}", "include_usage", 1) : json_null());
                struct answer a;
                ask_ok(streamed(body, stream), &a);
                CHECK(a.has_usage && a.n_completion == (uint64_t)n, "%s %d: usage says %llu", ways[i].name, n,
                      (unsigned long long)a.n_completion);
                CHECK(strcmp(answer_finish(&a, 0), "length") == 0, "%s %d: finish_reason %s", ways[i].name, n,
                      answer_finish(&a, 0));
                CHECK(n > 0 || *answer_text(&a, 0) == '\0', "no tokens, but the text '%s'", answer_text(&a, 0));
                answer_free(&a);
            }
    expect_refusal(&server, bodyf("{'prompt': 'a', 'max_tokens': -1}"), 400, "max_tokens", NULL);
    expect_refusal(&server, bodyf("{'prompt': 'a', 'max_tokens': 1.5}"), 400, "max_tokens", NULL);
    expect_refusal(&server, bodyf("{'prompt': 'a', 'max_tokens': '5'}"), 400, "max_tokens", NULL);
}

static json_t *ids(size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_integer(BYTE + 'a' + (json_int_t)(i % 26)));
    return array;
}

static json_t *edge(size_t n_prompt, int max_tokens)
{
    return with(bodyf("{'max_tokens': %d, 'ignore_eos': true}", max_tokens), "prompt", ids(n_prompt));
}

static void context_edge(void)
{
    static const size_t prompts[] = {1, 64, 100, CONTEXT - 1, CONTEXT};
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
        for (int beyond = -1; beyond <= 1; beyond++) {
            int n = (int)(CONTEXT - prompts[i]) + beyond;
            if (n < 0)
                continue;
            if (beyond > 0) {
                char number[16];
                snprintf(number, sizeof number, "%d", CONTEXT);
                expect_refusal(&server, edge(prompts[i], n), 400, NULL, number);
                snprintf(number, sizeof number, "%d", CONTEXT + 1);
                expect_refusal(&server, edge(prompts[i], n), 400, NULL, number);
                expect_refusal(&server, streamed(edge(prompts[i], n), true), 400, NULL, number);
                continue;
            }
            struct answer a;
            ask_ok(edge(prompts[i], n), &a);
            CHECK(a.n_prompt == prompts[i] && a.n_completion == (uint64_t)n, "%zu + %d: usage says %llu + %llu",
                  prompts[i], n, (unsigned long long)a.n_prompt, (unsigned long long)a.n_completion);
            answer_free(&a);
        }
    struct answer a; /* without a limit, a conversation may fill the context */
    ask_ok(bodyf("{'messages': [{'role': 'user', 'content': 'hello'}], 'ignore_eos': true}"), &a);
    CHECK(a.n_prompt + a.n_completion == CONTEXT, "%llu + %llu tokens", (unsigned long long)a.n_prompt,
          (unsigned long long)a.n_completion);
    answer_free(&a);
}

static void empty_prompts(void)
{
    expect_refusal(&server, bodyf("{'prompt': ''}"), 400, "prompt", NULL);
    expect_refusal(&server, bodyf("{'prompt': []}"), 400, "prompt", NULL);
    expect_refusal(&server, bodyf("{'prompt': ['a', '']}"), 400, "prompt", NULL);
    expect_refusal(&server, bodyf("{'max_tokens': 3}"), 400, "prompt", NULL);
    expect_refusal(&server, bodyf("{'messages': []}"), 400, "messages", NULL);
    expect_refusal(&server, bodyf("{'prompt': [%d]}", TINY_MAX_VOCAB), 400, "prompt", NULL);
    expect_refusal(&server, bodyf("{'prompt': [-1]}"), 400, "prompt", NULL);
}

/* ---- several answers ------------------------------------------------------------------------------------------- */

static json_t *several(int n, bool stream)
{
    json_t *body = bodyf("{'prompt': 'hello world and the of', 'n': %d, 'max_tokens': 12, 'temperature': 0.9,"
                         " 'seed': 9, 'ignore_eos': true, 'logprobs': 1, 'stream_options': %s}",
                         n, stream ? "{\"include_usage\": true}" : "null");
    return streamed(body, stream);
}

static void several_answers(void)
{
    struct answer five;
    ask_ok(several(5, false), &five);
    for (int n = 1; n <= 5; n++)
        for (int stream = 0; stream < 2; stream++) {
            struct answer a;
            CHECK(server_wait_idle(&server, 5000 * SLOW), "not idle");
            double before = server_metric(&server, PROMPT_TOKENS);
            ask_ok(several(n, stream), &a);
            CHECK(server_wait_idle(&server, 5000 * SLOW), "not idle");
            double read = server_metric(&server, PROMPT_TOKENS) - before;
            CHECK(json_array_size(a.choices) == (size_t)n, "%zu choices of %d", json_array_size(a.choices), n);
            CHECK(a.n_prompt == five.n_prompt && a.n_completion == 12u * (unsigned)n, "usage for n %d: %llu + %llu",
                  n, (unsigned long long)a.n_prompt, (unsigned long long)a.n_completion);
            /* once, but for the last token, which each answer reads to begin */
            CHECK(read >= (double)a.n_prompt && read < (double)a.n_prompt + n,
                  "a prompt of %llu tokens was read as %g for n %d", (unsigned long long)a.n_prompt, read, n);
            for (size_t i = 0; i < (size_t)n; i++) {
                CHECK(json_equal(json_array_get(a.choices, i), json_array_get(five.choices, i)),
                      "choice %zu of %d is not the one of 5:\n%s\n%s", i, n, a.choices_text, five.choices_text);
                for (size_t j = 0; j < i; j++)
                    CHECK(strcmp(answer_text(&a, i), answer_text(&a, j)) != 0, "choices %zu and %zu are the same", i,
                          j);
            }
            answer_free(&a);
        }
    answer_free(&five);
    expect_refusal(&server, bodyf("{'prompt': 'a', 'n': 0}"), 400, "n", NULL);
    expect_refusal(&server, bodyf("{'prompt': 'a', 'n': 100000}"), 400, "n", NULL);
}

/* Choice p * n + i answers prompt p, as it would have alone. */
static void several_prompts(void)
{
    static const char *const prompts[] = {"hello", "world of", "and the"};
    for (int stream = 0; stream < 2; stream++) {
        struct answer all;
        ask_ok(
            streamed(bodyf("{'prompt': ['hello', 'world of', 'and the'], 'n': 2, 'max_tokens': 8, 'temperature': 0.9,"
                           " 'seed': 4}"),
                     stream),
            &all);
        CHECK(json_array_size(all.choices) == 6, "%zu choices", json_array_size(all.choices));
        for (size_t p = 0; p < 3; p++) {
            struct answer one;
            ask_ok(bodyf("{'prompt': '%s', 'n': 2, 'max_tokens': 8, 'temperature': 0.9, 'seed': 4}", prompts[p]),
                   &one);
            for (size_t i = 0; i < 2; i++)
                CHECK(strcmp(answer_text(&all, p * 2 + i), answer_text(&one, i)) == 0,
                      "prompt %zu, answer %zu: '%s', '%s'", p, i, answer_text(&all, p * 2 + i), answer_text(&one, i));
            answer_free(&one);
        }
        answer_free(&all);
    }
}

/* ---- echo, bias, seed ------------------------------------------------------------------------------------------ */

static const json_t *logprobs_of(const struct answer *a, const char *name)
{
    const json_t *list = json_object_get(json_object_get(json_array_get(a->choices, 0), "logprobs"), name);
    CHECK(json_is_array(list), "no %s in %s", name, a->choices_text);
    return list;
}

/* The prompt's own log-probabilities are those that its tokens had when they were answers. */
static void echo(void)
{
    enum { N_PROMPT = 5, N_ANSWER = 6, FORCED = BYTE + 'x' };
    for (int stream = 0; stream < 2; stream++) {
        struct answer made, read;
        json_t *body =
            bodyf("{'max_tokens': %d, 'logprobs': 2, 'echo': true, 'logit_bias': {'%d': 100}}", N_ANSWER, FORCED);
        ask_ok(streamed(with(body, "prompt", ids(N_PROMPT)), stream), &made);
        CHECK(strcmp(answer_text(&made, 0), "abcdexxxxxx") == 0, "the text is '%s'", answer_text(&made, 0));
        json_t *both = ids(N_PROMPT);
        for (int i = 0; i < N_ANSWER; i++)
            json_array_append_new(both, json_integer(FORCED));
        body = bodyf("{'max_tokens': 0, 'logprobs': 2, 'echo': true}");
        ask_ok(streamed(with(body, "prompt", both), stream), &read);
        CHECK(strcmp(answer_text(&read, 0), "abcdexxxxxx") == 0 &&
                  read.n_prompt == (stream ? 0 : N_PROMPT + N_ANSWER),
              "the text is '%s', %llu tokens", answer_text(&read, 0), (unsigned long long)read.n_prompt);
        const json_t *a = logprobs_of(&made, "token_logprobs"), *b = logprobs_of(&read, "token_logprobs");
        CHECK(json_array_size(a) == N_PROMPT + N_ANSWER && json_equal(a, b), "%s\n%s", made.choices_text,
              read.choices_text);
        CHECK(json_equal(logprobs_of(&made, "top_logprobs"), logprobs_of(&read, "top_logprobs")), "%s\n%s",
              made.choices_text, read.choices_text);
        CHECK(json_is_null(json_array_get(a, 0)) && json_is_real(json_array_get(a, 1)),
              "the first has a probability: %s", made.choices_text);
        json_t *offsets = json_array();
        for (int i = 0; i < N_PROMPT + N_ANSWER; i++)
            json_array_append_new(offsets, json_integer(i));
        CHECK(json_equal(logprobs_of(&made, "text_offset"), offsets), "%s", made.choices_text);
        json_decref(offsets);
        answer_free(&made);
        answer_free(&read);
    }
    expect(bodyf("{'prompt': 'hello world', 'echo': true, 'max_tokens': 0}"), "hello world", "length");
    expect(bodyf("{'prompt': 'hello world', 'echo': true, 'max_tokens': 2, 'logit_bias': {'%d': 100}}", BYTE + '!'),
           "hello world!!", "length");
}

static void bias(void)
{
    expect(bodyf("{'prompt': 'a', 'max_tokens': 5, 'logit_bias': {'%d': 100}}", BYTE + 'x'), "xxxxx", "length");
    expect(bodyf("{'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 5, 'logit_bias': {'%d': 100}}",
                 BYTE + 'y'),
           "yyyyy", "length");
    expect_refusal(&server, bodyf("{'prompt': 'a', 'logit_bias': {'%d': 1}}", TINY_MAX_VOCAB), 400, "logit_bias",
                   NULL);
    expect_refusal(&server, bodyf("{'prompt': 'a', 'logit_bias': {'x': 1}}"), 400, "logit_bias", NULL);
    expect_refusal(&server, bodyf("{'prompt': 'a', 'logit_bias': {'5': 'much'}}"), 400, "logit_bias", NULL);
    expect_refusal(&server, bodyf("{'prompt': 'a', 'logit_bias': [5]}"), 400, "logit_bias", NULL);
}

/* Who gives no seed is told the one that was used, and gets the same answer with it. */
static void seeds(void)
{
    struct answer first, other, again;
    ask_ok(bodyf("{'prompt': 'hello', 'max_tokens': 20, 'ignore_eos': true}"), &first);
    ask_ok(bodyf("{'prompt': 'hello', 'max_tokens': 20, 'ignore_eos': true}"), &other);
    CHECK(first.seed >= 0 && other.seed >= 0 && first.seed != other.seed, "seeds %lld and %lld",
          (long long)first.seed, (long long)other.seed);
    CHECK(strcmp(first.choices_text, other.choices_text) != 0, "two seeds, one answer: %s", first.choices_text);
    ask_ok(with(bodyf("{'prompt': 'hello', 'max_tokens': 20, 'ignore_eos': true, 'stream': true}"), "seed",
                json_integer(first.seed)),
           &again);
    CHECK(strcmp(first.choices_text, again.choices_text) == 0, "seed %lld gave\n%s\nand now\n%s",
          (long long)first.seed, first.choices_text, again.choices_text);
    answer_free(&first);
    answer_free(&other);
    answer_free(&again);
}

/* Settings that leave nothing but the likeliest token are greedy, whatever the temperature; penalties let no token
 * come twice. */
static void sampling(void)
{
    static const struct {
        const char *name;
        double value;
    } greedy[] = {{"temperature", 0}, {"top_k", 1}, {"top_p", 1e-6},
                  {"top_p", 1e-60},   {"top_p", 0}, {"min_p", 0.9999999}};
    for (int chat = 0; chat < 2; chat++) {
        struct answer a, hot;
        json_t *body = bodyf("{'max_tokens': 20, 'temperature': 3, 'seed': 8, 'ignore_eos': true}");
        if (chat)
            with(body, "messages", json_pack("[{s:s,s:s}]", "role", "user", "content", "hello"));
        else
            with_text(body, "prompt", "hello");
        ask_ok(json_deep_copy(body), &hot);
        char *likeliest = NULL;
        for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i++) {
            json_t *value = greedy[i].value == 1 ? json_integer(1) : json_real(greedy[i].value);
            ask_ok(with(json_deep_copy(body), greedy[i].name, value), &a);
            CHECK(strcmp(answer_text(&a, 0), answer_text(&hot, 0)) != 0, "%s changes nothing", greedy[i].name);
            if (!likeliest)
                likeliest = strdup(answer_text(&a, 0));
            CHECK(strcmp(answer_text(&a, 0), likeliest) == 0, "%s gives '%s', greedy is '%s'", greedy[i].name,
                  answer_text(&a, 0), likeliest);
            answer_free(&a);
        }
        free(likeliest);
        answer_free(&hot);
        json_decref(body);
    }
}

static size_t n_different(json_t *body)
{
    struct answer a;
    ask_ok(with(body, "logprobs", json_integer(0)), &a);
    const json_t *tokens = logprobs_of(&a, "tokens");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        size_t j = 0;
        while (!json_equal(json_array_get(tokens, j), json_array_get(tokens, i)))
            j++;
        n += i == j;
    }
    answer_free(&a);
    return n;
}

static void penalties(void)
{
    enum { N = 12 };
    static const struct {
        const char *name;
        double value;
    } kinds[] = {{"presence_penalty", 2}, {"frequency_penalty", 2}, {"repetition_penalty", 1000}};
    json_t *body = bodyf("{'prompt': 'hello', 'max_tokens': %d, 'temperature': 0, 'ignore_eos': true, "
                         "'logit_bias': {'%d': 90}}",
                         N, BYTE + 'x');
    CHECK(n_different(json_deep_copy(body)) == 1, "a bias of 90 is not the end of it");
    with(body, "logit_bias", json_null());
    size_t plain = n_different(json_deep_copy(body));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = n_different(with(json_deep_copy(body), kinds[i].name, json_real(kinds[i].value)));
        CHECK(n > plain, "with %s %zu different tokens of %d, without %zu", kinds[i].name, n, N, plain);
    }
    json_decref(body);
}

static void finish_reasons(void)
{
    for (int stream = 0; stream < 2; stream++) {
        expect(streamed(bodyf("{'prompt': 'a', 'max_tokens': 5, 'logit_bias': {'%d': 100}}", TINY_IM_END), stream),
               "", "stop");
        expect(streamed(
                   bodyf("{'messages': [{'role': 'user', 'content': 'a'}], 'logit_bias': {'%d': 100}}", TINY_IM_END),
                   stream),
               "", "stop");
        expect(streamed(bodyf("{'prompt': 'a', 'max_tokens': 2, 'ignore_eos': true, 'logit_bias': {'%d': 100}}",
                              TINY_IM_END),
                        stream),
               "", "length");
        expect(streamed(bodyf("{'prompt': 'a', 'max_tokens': 5, 'stop': 'x', 'logit_bias': {'%d': 100}}", BYTE + 'x'),
                        stream),
               "", "stop");
        expect(streamed(bodyf("{'prompt': 'a', 'max_tokens': 1, 'logit_bias': {'%d': 100}}", BYTE + 'x'), stream),
               "x", "length");
    }
}

int main(int argc, char **argv)
{
    server_start(&server, server_tiny_model(CONTEXT), "--max-rows", "6", "--threads", "1", NULL);
    RUN_TEST(stop_strings);
    RUN_TEST(stop_multibyte);
    RUN_TEST(stop_incomplete);
    RUN_TEST(max_tokens);
    RUN_TEST(context_edge);
    RUN_TEST(empty_prompts);
    RUN_TEST(several_answers);
    RUN_TEST(several_prompts);
    RUN_TEST(echo);
    RUN_TEST(bias);
    RUN_TEST(seeds);
    RUN_TEST(sampling);
    RUN_TEST(penalties);
    RUN_TEST(finish_reasons);
    CHECK(server_wait_idle(&server, 5000 * SLOW), "something is left");
    server_stop(&server);
    return 0;
}
