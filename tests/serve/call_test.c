/* Requests: every field in its right and wrong forms, on both endpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/call.h"
#include "serve/json.h"
#include "serve/text.h"

static struct sv_call call;
static struct sv_error err;

static bool parse_n(enum sv_endpoint endpoint, const char *body, size_t n)
{
    sv_call_release(&call);
    memset(&err, 0, sizeof err);
    return sv_call_parse(endpoint, body, n, false, &call, &err);
}

/* A chat request with further members, as text that begins with a comma or is empty. */
static bool chat(const char *more)
{
    char body[65536];
    int n = snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]%s}", more);
    assert_in_range(n, 1, sizeof body - 1);
    return parse_n(SV_CHAT, body, (size_t)n);
}

static bool completion(const char *more)
{
    char body[65536];
    int n = snprintf(body, sizeof body, "{\"prompt\":\"hi\"%s}", more);
    assert_in_range(n, 1, sizeof body - 1);
    return parse_n(SV_COMPLETION, body, (size_t)n);
}

static bool message(const char *json)
{
    char body[65536];
    int n = snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},%s]}", json);
    assert_in_range(n, 1, sizeof body - 1);
    return parse_n(SV_CHAT, body, (size_t)n);
}

static void expect_error(const char *param, const char *part)
{
    if (err.http != 400 || strcmp(err.param, param) != 0 || !strstr(err.message, part))
        fail_msg("want 400, param '%s', '...%s...'; got %d, '%s', '%s'", param, part, err.http, err.param,
                 err.message);
    assert_string_equal(err.type, "invalid_request_error");
    assert_non_null(err.code);
    struct sv_call zero;
    memset(&zero, 0, sizeof zero);
    assert_memory_equal(&call, &zero, sizeof zero);
}

static void ok_(bool ok, const char *what)
{
    if (!ok)
        fail_msg("%s: refused: %s", what, err.message);
}
#define CHAT(more)                       ok_(chat(more), more)
#define COMPLETION(more)                 ok_(completion(more), more)
#define MESSAGE(json)                    ok_(message(json), json)
#define NO_CHAT(more, param, part)       (assert_false(chat(more)), expect_error(param, part))
#define NO_COMPLETION(more, param, part) (assert_false(completion(more)), expect_error(param, part))
#define NO_MESSAGE(json, param, part)    (assert_false(message(json)), expect_error(param, part))

/* Member `index` of the messages that the template gets. */
static json_t *vars(void)
{
    return json_loads(call.vars_json, JSON_ALLOW_NUL, NULL);
}

static void expect_message(size_t index, const char *json)
{
    json_t *v = vars(), *want = json_loads(json, JSON_ALLOW_NUL, NULL);
    assert_non_null(want);
    if (!json_equal(json_array_get(json_object_get(v, "messages"), index), want))
        fail_msg("want %s in %s", json, call.vars_json);
    json_decref(v);
    json_decref(want);
}

/* ---- the body -------------------------------------------------------------------------------------------------- */

static void not_json(const char *body, size_t n, const char *part)
{
    assert_false(parse_n(SV_CHAT, body, n));
    expect_error("", part);
    assert_true(sv_utf8_valid(err.message, strlen(err.message)));
}

static void test_body(void **state)
{
    (void)state;
    not_json("", 0, "empty");
    not_json("{", 1, "string or '}' expected near end of file");
    not_json("{} x", 4, "end of file expected near 'x'");
    not_json("[]", 2, "must be a JSON object, not an empty array");
    not_json("7", 1, "must be");
    not_json("{\"a\":1,\"a\":2}", 13, "duplicate object key near '\"a\"' (line 1, column 10)");
    not_json("{\"a\":\"\xff\"}", 9, "unable to decode byte 0xff");
    not_json("{\"a\":\"\\ud800\"}", 14, "invalid Unicode '\\uD800'");
    not_json("{\"a\":\"\xed\xa0\x80\"}", 11, "unable to decode byte 0xed");
    not_json("\xEF\xBB\xBF{}", 5, "byte order mark");
    not_json("{\"n\":99999999999999999999}", 26, "too big integer");
    not_json("{\"n\":1e999}", 11, "real number overflow");
    not_json("{\"n\":NaN}", 9, "invalid token near 'NaN'");
    not_json("{\"a\0b\":1}", 9, "control character");
    not_json("{}\0", 3, "a NUL byte (line 1, column 3)");
    char deep[400];
    memset(deep, '[', sizeof deep);
    not_json(deep, sizeof deep, "too many levels of arrays and objects: the most is 100 (line 1, column 101)");
    assert_false(parse_n(SV_CHAT, "{}", 2));
    expect_error("messages", "missing");
    assert_false(parse_n(SV_COMPLETION, "{\"prompt\":null}", 15));
    expect_error("prompt", "missing");
}

static void test_defaults(void **state)
{
    (void)state;
    CHAT("");
    assert_int_equal(call.n, 1);
    assert_int_equal(call.n_prompts, 0);
    assert_null(call.prompts);
    assert_null(call.model);
    assert_false(call.stream || call.include_usage || call.echo || call.logprobs || call.ignore_eos);
    assert_false(call.has_max_tokens || call.has_seed);
    assert_true(call.parse_special);
    assert_true(call.sampling.temperature == 1 && call.sampling.top_p == 1 && call.sampling.min_p == 0);
    assert_true(call.sampling.repetition_penalty == 1 && call.sampling.presence_penalty == 0);
    assert_int_equal(call.sampling.top_k, 0);
    assert_string_equal(call.vars_json, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    COMPLETION("");
    assert_null(call.vars_json);
    assert_int_equal(call.n_prompts, 1);
    assert_string_equal(call.prompts[0].text, "hi");
    /* null is absent, for every field. */
    CHAT(",\"model\":null,\"max_tokens\":null,\"max_completion_tokens\":null,\"temperature\":null,\"top_p\":null,"
         "\"top_k\":null,\"min_p\":null,\"repetition_penalty\":null,\"presence_penalty\":null,"
         "\"frequency_penalty\":null,\"logit_bias\":null,\"stop\":null,\"n\":null,\"seed\":null,\"stream\":null,"
         "\"stream_options\":null,\"logprobs\":null,\"top_logprobs\":null,\"chat_template_kwargs\":null,"
         "\"ignore_eos\":null,\"add_generation_prompt\":null,\"user\":null,\"metadata\":null,\"store\":null,"
         "\"service_tier\":null,\"parallel_tool_calls\":null,\"response_format\":null,\"tools\":null,"
         "\"tool_choice\":null,\"functions\":null,\"function_call\":null,\"modalities\":null,\"audio\":null,"
         "\"prediction\":null,\"web_search_options\":null,\"reasoning_effort\":null,\"verbosity\":null,"
         "\"safety_identifier\":null,\"prompt_cache_key\":null,\"prompt_cache_retention\":null");
    COMPLETION(",\"logprobs\":null,\"echo\":null,\"best_of\":null,\"suffix\":null,\"parse_special\":null");
    assert_false(call.logprobs);
}

static void test_unknown(void **state)
{
    (void)state;
    NO_CHAT(",\"temprature\":1", "temprature", "did you mean 'temperature'");
    NO_CHAT(",\"max_token\":1", "max_token", "did you mean 'max_tokens'");
    NO_CHAT(",\"grammar_of_the_whole_world\":1", "grammar_of_the_whole_world", "unknown field");
    NO_CHAT(",\"unheard\":null", "unheard", "unknown field");
    NO_CHAT(",\"\":1", "", "unknown field ''");
    NO_CHAT(",\"prompt\":\"x\"", "prompt", "/v1/completions");
    NO_COMPLETION(",\"messages\":[]", "messages", "/v1/chat/completions");
    NO_COMPLETION(",\"chat_template_kwargs\":{}", "chat_template_kwargs", "/v1/chat/completions");
    /* A name that is longer than any buffer, in characters of three bytes. */
    char more[4096] = ",\"";
    for (int i = 0; i < 1000; i++)
        memcpy(more + 2 + 3 * i, "\xE2\x82\xAC", 3);
    memcpy(more + 3002, "\":1", 4);
    assert_false(chat(more));
    assert_int_equal(err.http, 400);
    assert_true(sv_utf8_valid(err.param, strlen(err.param)) && sv_utf8_valid(err.message, strlen(err.message)));
    assert_non_null(strstr(err.param, "..."));
    json_t *j = sv_error_json(&err);
    assert_non_null(j);
    json_decref(j);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static void test_numbers(void **state)
{
    (void)state;
    CHAT(",\"temperature\":0");
    assert_true(call.sampling.temperature == 0);
    CHAT(",\"temperature\":0.0001");
    CHAT(",\"temperature\":100");
    NO_CHAT(",\"temperature\":0.00001", "temperature", "0.0001");
    NO_CHAT(",\"temperature\":-0.1", "temperature", "from 0 to 100, not -0.1");
    NO_CHAT(",\"temperature\":100.1", "temperature", "not 100.1");
    NO_CHAT(",\"temperature\":1e300", "temperature", "not 1e+300");
    NO_CHAT(",\"temperature\":\"1\"", "temperature", "not the string \"1\"");
    NO_CHAT(",\"temperature\":true", "temperature", "not true");
    CHAT(",\"top_p\":0.25,\"min_p\":0.5,\"top_k\":40,\"repetition_penalty\":1.5,\"presence_penalty\":-2,"
         "\"frequency_penalty\":2");
    assert_true(call.sampling.top_p == 0.25f && call.sampling.min_p == 0.5f && call.sampling.top_k == 40);
    assert_true(call.sampling.repetition_penalty == 1.5f && call.sampling.presence_penalty == -2);
    assert_true(call.sampling.frequency_penalty == 2);
    NO_CHAT(",\"top_p\":-0.1", "top_p", "from 0");
    NO_CHAT(",\"top_p\":1.0000001", "top_p", "to 1 (off)");
    NO_CHAT(",\"top_p\":[]", "top_p", "not an empty array");
    NO_CHAT(",\"min_p\":1", "min_p", "below 1");
    NO_CHAT(",\"min_p\":0.99999999999", "min_p", "below 1");
    NO_CHAT(",\"repetition_penalty\":0", "repetition_penalty", "from 0.001");
    NO_CHAT(",\"presence_penalty\":2.5", "presence_penalty", "from -2 to 2");
    CHAT(",\"top_k\":-1");
    assert_int_equal(call.sampling.top_k, 0);
    NO_CHAT(",\"top_k\":-2", "top_k", "not -2");
    NO_CHAT(",\"top_k\":1.5", "top_k", "whole number");
    CHAT(",\"seed\":-1");
    assert_true(call.has_seed && call.seed == UINT64_MAX);
    CHAT(",\"seed\":9223372036854775807");
    assert_true(call.seed == INT64_MAX);
    NO_CHAT(",\"seed\":1.0", "seed", "whole number");
    NO_CHAT(",\"seed\":\"1\"", "seed", "whole number");
}

static void test_lengths(void **state)
{
    (void)state;
    CHAT(",\"max_tokens\":0");
    assert_true(call.has_max_tokens && call.max_tokens == 0);
    CHAT(",\"max_completion_tokens\":1");
    assert_true(call.has_max_tokens && call.max_tokens == 1);
    CHAT(",\"max_tokens\":4294967295");
    assert_true(call.max_tokens == UINT32_MAX);
    CHAT(",\"max_tokens\":7,\"max_completion_tokens\":7");
    CHAT(",\"max_tokens\":7,\"max_completion_tokens\":null");
    NO_CHAT(",\"max_tokens\":7,\"max_completion_tokens\":8", "max_completion_tokens", "two names");
    NO_CHAT(",\"max_tokens\":4294967296", "max_tokens", "4294967295, not 4294967296");
    NO_CHAT(",\"max_tokens\":-1", "max_tokens", "not -1");
    NO_CHAT(",\"max_tokens\":1.5", "max_tokens", "not 1.5");
    NO_CHAT(",\"max_tokens\":5.0", "max_tokens", "not 5.0");
    NO_CHAT(",\"max_tokens\":1e300", "max_tokens", "not 1e+300");
    NO_COMPLETION(",\"max_completion_tokens\":1", "max_completion_tokens", "not of this endpoint");
}

static void test_choices(void **state)
{
    (void)state;
    CHAT(",\"n\":128");
    assert_int_equal(call.n, 128);
    NO_CHAT(",\"n\":0", "n", "from 1 to 128");
    NO_CHAT(",\"n\":129", "n", "from 1 to 128");
    COMPLETION(",\"best_of\":2,\"n\":2");
    COMPLETION(",\"best_of\":1");
    NO_COMPLETION(",\"best_of\":2", "best_of", "equal to n");
    NO_COMPLETION(",\"best_of\":\"2\"", "best_of", "whole number");
    assert_true(parse_n(SV_COMPLETION, "{\"n\":64,\"prompt\":[\"a\",\"b\"]}", 27));
    assert_false(parse_n(SV_COMPLETION, "{\"n\":65,\"prompt\":[\"a\",\"b\"]}", 27));
    expect_error("n", "130 answers");
}

static void test_flags(void **state)
{
    (void)state;
    CHAT(",\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":false}");
    assert_true(call.stream && call.include_usage);
    CHAT(",\"stream\":true,\"stream_options\":{\"include_usage\":null}");
    assert_false(call.include_usage);
    NO_CHAT(",\"stream_options\":{\"include_usage\":true}", "stream_options", "\"stream\": true");
    NO_CHAT(",\"stream\":false,\"stream_options\":{}", "stream_options", "\"stream\": true");
    NO_CHAT(",\"stream\":true,\"stream_options\":{\"include_usag\":true}", "stream_options", "include_usage");
    NO_CHAT(",\"stream\":true,\"stream_options\":{\"include_obfuscation\":true}",
            "stream_options.include_obfuscation", "must be false");
    NO_CHAT(",\"stream\":1", "stream", "true or false, not 1");
    CHAT(",\"logprobs\":true");
    assert_true(call.logprobs && call.n_top == 0);
    CHAT(",\"top_logprobs\":20,\"logprobs\":true");
    assert_int_equal(call.n_top, 20);
    CHAT(",\"top_logprobs\":0");
    NO_CHAT(",\"top_logprobs\":1", "top_logprobs", "logprobs");
    NO_CHAT(",\"top_logprobs\":1,\"logprobs\":false", "top_logprobs", "logprobs");
    NO_CHAT(",\"top_logprobs\":21,\"logprobs\":true", "top_logprobs", "from 0 to 20");
    NO_CHAT(",\"logprobs\":5", "logprobs", "true or false");
    COMPLETION(",\"logprobs\":0");
    assert_true(call.logprobs && call.n_top == 0);
    COMPLETION(",\"logprobs\":20,\"echo\":true,\"parse_special\":false,\"ignore_eos\":true");
    assert_true(call.logprobs && call.n_top == 20 && call.echo && !call.parse_special && call.ignore_eos);
    NO_COMPLETION(",\"logprobs\":true", "logprobs", "how many");
    NO_COMPLETION(",\"logprobs\":21", "logprobs", "from 0 to 20");
    NO_COMPLETION(",\"top_logprobs\":2", "top_logprobs", "not of this endpoint");
    CHAT(",\"model\":\"m\"");
    assert_string_equal(call.model, "m");
    NO_CHAT(",\"model\":\"a\\u0000b\"", "model", "NUL");
    NO_CHAT(",\"model\":3", "model", "a string, not 3");
}

static void test_stop_and_bias(void **state)
{
    (void)state;
    CHAT(",\"stop\":\"x\"");
    assert_int_equal(call.n_stop, 1);
    CHAT(",\"stop\":[\"a\",\"\xE2\x82\xAC\"]");
    assert_int_equal(call.n_stop, 2);
    assert_string_equal(call.stop[1], "\xE2\x82\xAC");
    CHAT(",\"stop\":[]");
    assert_int_equal(call.n_stop, 0);
    NO_CHAT(",\"stop\":\"\"", "stop", "at least one character");
    NO_CHAT(",\"stop\":[\"a\",\"\"]", "stop[1]", "at least one character");
    NO_CHAT(",\"stop\":[null]", "stop[0]", "not null");
    NO_CHAT(",\"stop\":\"a\\u0000\"", "stop", "NUL");
    NO_CHAT(",\"stop\":{}", "stop", "not an object");
    NO_CHAT(",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\","
            "\"15\",\"16\",\"17\"]",
            "stop", "17 strings");
    CHAT(",\"logit_bias\":{\"0\":-100,\"42\":99.5,\"2147483647\":1}");
    assert_int_equal(call.sampling.n_biases, 3);
    assert_int_equal(call.sampling.biases[2].id, INT32_MAX);
    assert_true(call.sampling.biases[1].bias == 99.5f);
    CHAT(",\"logit_bias\":{}");
    NO_CHAT(",\"logit_bias\":{\"2147483648\":1}", "logit_bias", "token ids");
    NO_CHAT(",\"logit_bias\":{\"07\":1}", "logit_bias", "token ids");
    NO_CHAT(",\"logit_bias\":{\"-1\":1}", "logit_bias", "token ids");
    NO_CHAT(",\"logit_bias\":{\"\":1}", "logit_bias", "token ids");
    NO_CHAT(",\"logit_bias\":{\"hi\":1}", "logit_bias", "'hi'");
    NO_CHAT(",\"logit_bias\":{\"1\":100.5}", "logit_bias.1", "from -100 to 100, not 100.5");
    NO_CHAT(",\"logit_bias\":{\"1\":null}", "logit_bias.1", "not null");
    NO_CHAT(",\"logit_bias\":[1]", "logit_bias", "an object");
}

/* ---- fields without effect, and refused ones ------------------------------------------------------------------- */

static void test_others(void **state)
{
    (void)state;
    CHAT(",\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"safety_identifier\":\"s\",\"prompt_cache_key\":\"k\",\"prompt_"
         "cache_options\":{},"
         "\"store\":false,\"service_tier\":\"auto\",\"parallel_tool_calls\":true,\"tools\":[],\"functions\":[],"
         "\"tool_choice\":\"none\",\"function_call\":\"auto\",\"modalities\":[\"text\"],"
         "\"response_format\":{\"type\":\"text\"}");
    assert_string_equal(call.vars_json, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    NO_CHAT(",\"user\":1", "user", "a string");
    NO_CHAT(",\"metadata\":\"x\"", "metadata", "an object");
    NO_CHAT(",\"store\":true", "store", "stores no answers");
    NO_CHAT(",\"service_tier\":\"flex\"", "service_tier", "one tier");
    NO_CHAT(",\"tools\":[{\"type\":\"function\"}]", "tools", "does not call tools");
    NO_CHAT(",\"tool_choice\":\"required\"", "tool_choice", "does not call tools");
    NO_CHAT(",\"tool_choice\":{\"type\":\"function\"}", "tool_choice", "does not call tools");
    NO_CHAT(",\"functions\":[{}]", "functions", "functions");
    NO_CHAT(",\"function_call\":{\"name\":\"f\"}", "function_call", "functions");
    NO_CHAT(",\"modalities\":[\"text\",\"audio\"]", "modalities", "text only");
    NO_CHAT(",\"moderation\":{\"model\":\"m\"}", "moderation", "does not judge");
    NO_CHAT(",\"audio\":{}", "audio", "text only");
    NO_CHAT(",\"prediction\":{}", "prediction", "predicted");
    NO_CHAT(",\"web_search_options\":{}", "web_search_options", "search");
    NO_CHAT(",\"reasoning_effort\":\"low\"", "reasoning_effort", "chat_template_kwargs");
    NO_CHAT(",\"verbosity\":\"low\"", "verbosity", "message");
    NO_CHAT(",\"response_format\":{\"type\":\"json_object\"}", "response_format.type", "not supported yet");
    NO_CHAT(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}", "response_format.type",
            "'json_schema'");
    NO_CHAT(",\"response_format\":{}", "response_format.type", "a string, not null");
    NO_CHAT(",\"response_format\":\"text\"", "response_format", "an object");
    NO_CHAT(",\"response_format\":{\"type\":\"text\",\"x\":1}", "response_format", "unknown member");
    NO_COMPLETION(",\"suffix\":\"x\"", "suffix", "middle");
}

static void test_template_variables(void **state)
{
    (void)state;
    CHAT(",\"chat_template_kwargs\":{\"enable_thinking\":false,\"x\":[1]},\"add_generation_prompt\":false");
    json_t *v = vars();
    assert_true(json_is_false(json_object_get(v, "enable_thinking")));
    assert_true(json_is_false(json_object_get(v, "add_generation_prompt")));
    assert_int_equal(json_object_size(v), 4);
    json_decref(v);
    NO_CHAT(",\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs", "must not set 'messages'");
    NO_CHAT(",\"chat_template_kwargs\":{\"bos_token\":\"\"}", "chat_template_kwargs", "'bos_token'");
    NO_CHAT(",\"chat_template_kwargs\":{\"eos_token\":\"\"}", "chat_template_kwargs", "'eos_token'");
    NO_CHAT(",\"chat_template_kwargs\":{\"add_generation_prompt\":true}", "chat_template_kwargs", "field");
    NO_CHAT(",\"chat_template_kwargs\":[]", "chat_template_kwargs", "an object");
    NO_CHAT(",\"add_generation_prompt\":0", "add_generation_prompt", "true or false");
}

/* ---- prompts --------------------------------------------------------------------------------------------------- */

static bool prompt(const char *json)
{
    char body[4096];
    int n = snprintf(body, sizeof body, "{\"prompt\":%s}", json);
    return parse_n(SV_COMPLETION, body, (size_t)n);
}

static void test_prompts(void **state)
{
    (void)state;
    assert_true(prompt("\"\""));
    assert_true(call.n_prompts == 1 && call.prompts[0].text && call.prompts[0].n_text == 0);
    assert_true(prompt("\"a\\u0000b\""));
    assert_int_equal(call.prompts[0].n_text, 3);
    assert_memory_equal(call.prompts[0].text, "a\0b", 4);
    assert_true(prompt("[\"a\",\"\"]"));
    assert_true(call.n_prompts == 2 && call.prompts[1].n_text == 0 && call.prompts[1].text);
    assert_true(prompt("[0,1,2147483647]"));
    assert_true(call.n_prompts == 1 && call.prompts[0].n_ids == 3 && !call.prompts[0].text);
    assert_int_equal(call.prompts[0].ids[2], INT32_MAX);
    assert_true(prompt("[[1],[2,3]]"));
    assert_true(call.n_prompts == 2 && call.prompts[1].n_ids == 2 && call.prompts[1].ids[0] == 2);
    static const char *const BAD[][3] = {
        {"[]", "prompt", "an empty array is none"},
        {"[[]]", "prompt[0]", "at least one id"},
        {"[[1],[]]", "prompt[1]", "at least one id"},
        {"{}", "prompt", "not an object"},
        {"5", "prompt", "not 5"},
        {"[1.5]", "prompt[0]", "not 1.5"},
        {"[null]", "prompt[0]", "not null"},
        {"[\"a\",1]", "prompt[1]", "a string, as the first is"},
        {"[1,\"a\"]", "prompt[1]", "a token id"},
        {"[1,[1]]", "prompt[1]", "a token id"},
        {"[[1],\"a\"]", "prompt[1]", "an array of token ids"},
        {"[[1,\"a\"]]", "prompt[0][1]", "a token id"},
        {"[-1]", "prompt[0]", "vocabulary"},
        {"[2147483648]", "prompt[0]", "vocabulary"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        assert_false(prompt(BAD[i][0]));
        expect_error(BAD[i][1], BAD[i][2]);
    }
    char many[1024] = "[\"\"";
    for (int i = 0; i < 128; i++)
        memcpy(many + strlen(many), ",\"\"", 4);
    memcpy(many + strlen(many), "]", 2);
    assert_false(prompt(many));
    expect_error("prompt", "129 prompts");
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

static void test_roles_and_content(void **state)
{
    (void)state;
    MESSAGE("{\"role\":\"assistant\"}");
    expect_message(1, "{\"role\":\"assistant\",\"content\":\"\"}");
    MESSAGE("{\"role\":\"assistant\",\"content\":null}");
    expect_message(1, "{\"role\":\"assistant\",\"content\":\"\"}");
    MESSAGE("{\"role\":\"developer\",\"content\":\"d\"}");
    expect_message(1, "{\"role\":\"system\",\"content\":\"d\"}");
    static const char DEVELOPER[] = "{\"messages\":[{\"role\":\"developer\",\"content\":\"d\"}]}";
    sv_call_release(&call);
    assert_true(sv_call_parse(SV_CHAT, DEVELOPER, sizeof DEVELOPER - 1, true, &call, &err));
    expect_message(0, "{\"role\":\"developer\",\"content\":\"d\"}");
    MESSAGE("{\"role\":\"user\",\"content\":\"a\\u0000b\"}");
    expect_message(1, "{\"role\":\"user\",\"content\":\"a\\u0000b\"}");
    MESSAGE(
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}");
    expect_message(1, "{\"role\":\"user\",\"content\":\"ab\"}");
    MESSAGE("{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}");
    expect_message(1, "{\"role\":\"assistant\",\"content\":\"no\"}");
    MESSAGE("{\"role\":\"function\",\"name\":\"f\",\"content\":\"\"}");
    expect_message(1, "{\"role\":\"function\",\"name\":\"f\",\"content\":\"\"}");
    NO_MESSAGE("{\"content\":\"x\"}", "messages[1].role", "missing");
    NO_MESSAGE("{\"role\":\"bot\",\"content\":\"x\"}", "messages[1].role", "not the string \"bot\"");
    NO_MESSAGE("{\"role\":\"user\\u0000\",\"content\":\"x\"}", "messages[1].role", "system, developer");
    NO_MESSAGE("{\"role\":1,\"content\":\"x\"}", "messages[1].role", "not 1");
    NO_MESSAGE("{\"role\":\"user\"}", "messages[1].content", "missing");
    NO_MESSAGE("{\"role\":\"tool\",\"content\":null}", "messages[1].content", "not null");
    NO_MESSAGE("{\"role\":\"user\",\"content\":[]}", "messages[1].content", "not an empty array");
    NO_MESSAGE("{\"role\":\"user\",\"content\":5}", "messages[1].content", "not 5");
    NO_MESSAGE("{\"role\":\"user\",\"content\":[\"a\"]}", "messages[1].content[0]", "an object");
    NO_MESSAGE("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}",
               "messages[1].content[0].type", "text only");
    NO_MESSAGE("{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}", "messages[1].content[0].type",
               "text only");
    NO_MESSAGE("{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}",
               "messages[1].content[0].type", "text only");
    NO_MESSAGE("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}", "messages[1].content[0].text", "a string");
    NO_MESSAGE("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"txt\":1}]}",
               "messages[1].content[0]", "unknown member");
    NO_MESSAGE("7", "messages[1]", "an object");
}

static void test_messages_list(void **state)
{
    (void)state;
    assert_false(parse_n(SV_CHAT, "{\"messages\":[]}", 15));
    expect_error("messages", "at least one message");
    assert_false(parse_n(SV_CHAT, "{\"messages\":\"hi\"}", 17));
    expect_error("messages", "not the string \"hi\"");
    assert_false(parse_n(SV_CHAT, "{\"messages\":null}", 17));
    expect_error("messages", "missing");
}

static void test_members(void **state)
{
    (void)state;
    MESSAGE("{\"role\":\"assistant\",\"content\":\"x\",\"refusal\":null,\"annotations\":[],\"audio\":null,"
            "\"function_call\":null,\"tool_calls\":null,\"reasoning_content\":\"r\",\"name\":null}");
    expect_message(1, "{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":\"r\"}");
    MESSAGE("{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"c1\"}");
    expect_message(1, "{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"c1\"}");
    NO_MESSAGE("{\"role\":\"user\",\"content\":\"x\",\"nam\":\"n\"}", "messages[1]", "did you mean 'name'");
    NO_MESSAGE("{\"role\":\"user\",\"content\":\"x\",\"zzzzzzzzz\":null}", "messages[1]", "unknown member");
    NO_MESSAGE("{\"role\":\"user\",\"content\":\"x\",\"name\":1}", "messages[1].name", "a string or null");
    NO_MESSAGE("{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\"}}", "messages[1].function_call", "null");
}

static void expect_no_arguments(const char *json, const char *part)
{
    char body[8192];
    int n = snprintf(body, sizeof body,
                     "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\","
                     "\"function\":{\"name\":\"f\",\"arguments\":%s}}]}",
                     json);
    assert_in_range(n, 1, sizeof body - 1);
    assert_false(message(body));
    expect_error("messages[1].tool_calls[0].function.arguments", part);
}

static void test_tool_calls(void **state)
{
    (void)state;
    MESSAGE("{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\","
            "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": [1, 2.5]}\"}}]}");
    expect_message(1, "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\","
                      "\"function\":{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5]}}}]}");
    static const char *const BROKEN[] = {"\"{\"",
                                         "\"}\"",
                                         "\"\"",
                                         "\"{]\"",
                                         "\"{\\\"a\\\":}\"",
                                         "\"{} {}\"",
                                         "\"{'a':1}\"",
                                         "\"nul\"",
                                         "\"{\\u0000}\"",
                                         "\"\\u0000\"",
                                         "\"{\\\"a\\\":1,\\\"a\\\":2}\""};
    for (size_t i = 0; i < sizeof BROKEN / sizeof *BROKEN; i++)
        expect_no_arguments(BROKEN[i], "not JSON");
    expect_no_arguments("\"null\"", "no other JSON value");
    expect_no_arguments("\"[1]\"", "no other JSON value");
    expect_no_arguments("\"3\"", "no other JSON value");
    expect_no_arguments("{}", "not an object");
    expect_no_arguments("null", "not null");
    char deep[4096] = "\"";
    for (int i = 0; i < 300; i++)
        memcpy(deep + 1 + 7 * i, "{\\\"a\\\":", 8);
    memcpy(deep + 1 + 2100, "\"", 2);
    expect_no_arguments(deep, "too many levels of arrays and objects: the most is 64");
    NO_MESSAGE("{\"role\":\"assistant\",\"tool_calls\":{}}", "messages[1].tool_calls", "an array");
    NO_MESSAGE("{\"role\":\"assistant\",\"tool_calls\":[1]}", "messages[1].tool_calls[0]", "an object");
    NO_MESSAGE("{\"role\":\"assistant\",\"tool_calls\":[{}]}", "messages[1].tool_calls[0].id", "a string");
    NO_MESSAGE("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"type\":\"custom\"}]}",
               "messages[1].tool_calls[0].type", "\"function\"");
    NO_MESSAGE("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\"}]}", "messages[1].tool_calls[0].function",
               "name and arguments");
    NO_MESSAGE("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"arguments\":\"{}\"}}]}",
               "messages[1].tool_calls[0].function.name", "a string");
    NO_MESSAGE("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"idx\":0}]}", "messages[1].tool_calls[0]",
               "unknown member");
}

static int teardown(void **state)
{
    (void)state;
    sv_call_release(&call);
    sv_call_release(&call); /* twice is fine */
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_body),          cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_unknown),       cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_lengths),       cmocka_unit_test(test_choices),
        cmocka_unit_test(test_flags),         cmocka_unit_test(test_stop_and_bias),
        cmocka_unit_test(test_others),        cmocka_unit_test(test_template_variables),
        cmocka_unit_test(test_prompts),       cmocka_unit_test(test_roles_and_content),
        cmocka_unit_test(test_messages_list), cmocka_unit_test(test_members),
        cmocka_unit_test(test_tool_calls),
    };
    sv_json_init();
    return cmocka_run_group_tests(tests, NULL, teardown);
}
