/* Answers: a stream and a whole object of the same random events say the same, in the API's shapes. */
#include <setjmp.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "events.h"
#include "serve/text.h"
#include "support/tiny_model.h"

/* One request of random choices. */
struct scene {
    struct sv_answer_options o;
    struct script choices[MOST_ANSWERS];
    struct sennit_text echo[MOST_ANSWERS]; /* by prompt */
};

static void scene_make(struct scene *s, uint64_t *rng)
{
    memset(s, 0, sizeof *s);
    struct sv_answer_options *o = &s->o;
    o->endpoint = tiny_random(rng) % 2 ? SV_CHAT : SV_COMPLETION;
    o->logprobs = tiny_random(rng) % 2;
    o->include_usage = tiny_random(rng) % 2;
    o->echo = o->endpoint == SV_COMPLETION && tiny_random(rng) % 2;
    o->n_per_prompt = 1 + (uint32_t)(tiny_random(rng) % 3);
    o->n_choices = o->n_per_prompt * (o->endpoint == SV_CHAT ? 1 : 1 + (uint32_t)(tiny_random(rng) % 2));
    o->id = "chatcmpl-1";
    o->created = 1700000000;
    o->model = "tiny \"model\"";
    o->fingerprint = "fp";
    o->seed = tiny_random(rng);
    o->tokenizer = tokenizer_get();
    bool special = tiny_random(rng) % 2;
    for (uint32_t i = 0; i < o->n_choices; i++) {
        struct script *c = &s->choices[i], *first = &s->choices[i - i % o->n_per_prompt];
        script_make(c, o->tokenizer, rng, o->logprobs);
        memcpy(c->prompt, first->prompt, sizeof c->prompt);
        c->n_prompt = first->n_prompt;
        if (c == first)
            assert_int_equal(
                sennit_detokenize(o->tokenizer, c->prompt, c->n_prompt, special, &s->echo[i / o->n_per_prompt], NULL),
                SENNIT_OK);
    }
}

static void scene_release(struct scene *s)
{
    for (uint32_t i = 0; i < s->o.n_choices; i++)
        script_release(&s->choices[i]);
    for (uint32_t i = 0; i < MOST_ANSWERS; i++)
        sennit_text_free(&s->echo[i]);
}

/* Plays all events in a random interleaving; *out gets the stream or the whole object. */
static void play(struct scene *s, bool stream, uint64_t rng, struct sv_buf *out)
{
    struct sv_answer_options o = s->o;
    o.stream = stream;
    struct sv_answer *a = sv_answer_create(&o);
    assert_non_null(a);
    for (uint32_t p = 0; p * o.n_per_prompt < o.n_choices; p++) {
        const struct script *c = &s->choices[p * o.n_per_prompt];
        sv_answer_prompt(a, p, c->prompt, c->n_prompt, o.echo ? s->echo[p].data : NULL, s->echo[p].n_bytes);
    }
    for (uint32_t i = 0; i < o.n_choices; i++)
        s->choices[i].next = 0;
    for (uint32_t open = o.n_choices, done[MOST_ANSWERS] = {0}; open > 0;) {
        uint32_t i = (uint32_t)(tiny_random(&rng) % o.n_choices);
        struct sennit_event ev;
        if (done[i])
            continue;
        if (script_next(&s->choices[i], o.echo && o.logprobs, &ev)) {
            sv_answer_event(a, i, &ev, stream ? out : NULL);
        } else {
            done[i] = 1;
            open--;
        }
    }
    sv_answer_finish(a, out);
    assert_false(sv_answer_failed(a) || out->failed);
    sv_answer_free(a);
}

/* ---- a client that puts a stream together ---------------------------------------------------------------------- */

struct joined {
    struct sv_buf text;
    json_t *lists[4]; /* content | tokens, token_logprobs, top_logprobs, text_offset */
    char finish[16];
    bool role;
};
static const char *const LISTS[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};

static json_t *str(const json_t *v, const char *key, const char *want)
{
    json_t *x = json_object_get(v, key);
    if (want)
        assert_string_equal(json_string_value(x), want);
    return x;
}

static void check_head(const struct scene *s, const json_t *v, const char *object)
{
    assert_true(json_is_object(v));
    str(v, "id", s->o.id);
    str(v, "object", object);
    str(v, "model", s->o.model);
    str(v, "system_fingerprint", s->o.fingerprint);
    assert_int_equal(json_integer_value(json_object_get(v, "created")), s->o.created);
    assert_true((uint64_t)json_integer_value(json_object_get(v, "seed")) == s->o.seed);
}

static void check_usage(const struct scene *s, const json_t *u)
{
    json_int_t prompt = 0, answer = 0;
    for (uint32_t i = 0; i < s->o.n_choices; i++) {
        prompt += i % s->o.n_per_prompt == 0 ? s->choices[i].n_prompt : 0;
        answer += s->choices[i].n_ids;
    }
    assert_int_equal(json_integer_value(json_object_get(u, "prompt_tokens")), prompt);
    assert_int_equal(json_integer_value(json_object_get(u, "completion_tokens")), answer);
    assert_int_equal(json_integer_value(json_object_get(u, "total_tokens")), prompt + answer);
    assert_non_null(json_object_get(json_object_get(u, "prompt_tokens_details"), "cached_tokens"));
    assert_non_null(json_object_get(json_object_get(u, "completion_tokens_details"), "reasoning_tokens"));
}

static void join_logprobs(const struct scene *s, struct joined *j, const json_t *l)
{
    if (json_is_null(l))
        return;
    assert_true(s->o.logprobs && json_is_object(l));
    if (s->o.endpoint == SV_CHAT) {
        assert_true(json_is_null(json_object_get(l, "refusal")) && json_object_size(l) == 2);
        assert_int_equal(json_array_extend(j->lists[0], json_object_get(l, "content")), 0);
        return;
    }
    assert_int_equal(json_object_size(l), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(json_array_extend(j->lists[i], json_object_get(l, LISTS[i])), 0);
}

static void join_text(struct joined *j, const json_t *v)
{
    if (v) {
        assert_true(json_is_string(v));
        sv_buf_add(&j->text, json_string_value(v), json_string_length(v));
    }
}

static void join_choice(const struct scene *s, struct joined *js, const json_t *c)
{
    struct joined *j = &js[json_integer_value(json_object_get(c, "index"))];
    const json_t *finish = json_object_get(c, "finish_reason"), *delta = json_object_get(c, "delta");
    assert_int_equal(json_object_size(c), 4);
    assert_true(j->finish[0] == '\0'); /* nothing after the end */
    if (s->o.endpoint == SV_CHAT) {
        const json_t *role = json_object_get(delta, "role");
        assert_true(json_is_object(delta) && (role != NULL) == !j->role);
        j->role = true;
        join_text(j, json_object_get(delta, "content"));
        assert_true(json_is_null(finish) || json_object_size(delta) == 0);
    } else {
        join_text(j, json_object_get(c, "text"));
    }
    assert_non_null(finish);
    if (json_is_string(finish))
        snprintf(j->finish, sizeof j->finish, "%s", json_string_value(finish));
    join_logprobs(s, j, json_object_get(c, "logprobs"));
}

static json_t *load(const char *text, size_t n)
{
    json_error_t problem;
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (!v)
        fail_msg("%s in %.*s", problem.text, (int)n, text);
    return v;
}

static void join_chunk(const struct scene *s, struct joined *js, const json_t *v, bool last)
{
    const json_t *choices = json_object_get(v, "choices"), *usage = json_object_get(v, "usage");
    check_head(s, v, s->o.endpoint == SV_CHAT ? "chat.completion.chunk" : "text_completion");
    assert_true(json_is_array(choices));
    assert_int_equal(json_array_size(choices), last && s->o.include_usage ? 0 : 1);
    if (!s->o.include_usage)
        assert_null(usage);
    else if (last)
        check_usage(s, usage);
    else
        assert_true(json_is_null(usage));
    if (json_array_size(choices))
        join_choice(s, js, json_array_get(choices, 0));
}

static void join(const struct scene *s, const struct sv_buf *stream, struct joined *js)
{
    static const char DONE[] = "data: [DONE]\n\n";
    const char *at = stream->data, *end = stream->data + stream->n_bytes - (sizeof DONE - 1);
    assert_true(stream->n_bytes >= sizeof DONE - 1);
    assert_string_equal(end, DONE);
    for (uint32_t i = 0; i < MOST_ANSWERS; i++) {
        for (int k = 0; k < 4; k++)
            js[i].lists[k] = json_array();
    }
    while (at < end) {
        const char *stop = strstr(at, "\n\n");
        assert_memory_equal(at, "data: ", 6);
        assert_null(memchr(at, '\n', (size_t)(stop - at)));
        json_t *v = load(at + 6, (size_t)(stop - at) - 6);
        at = stop + 2;
        join_chunk(s, js, v, at == end);
        json_decref(v);
    }
}

/* ---- the whole object against the stream and the script -------------------------------------------------------- */

/* Characters of the text that ids[0 .. n) give, without an incomplete one at the end. */
static uint64_t chars_of(const struct sennit_tokenizer *t, const int32_t *ids, size_t n, bool special)
{
    char raw[MOST_TOKENS * 64];
    size_t n_raw = 0, len;
    uint64_t n_chars = 0;
    for (size_t i = 0; i < n; i++)
        n_raw += sennit_token_bytes(t, ids[i], special, raw + n_raw, sizeof raw - n_raw);
    assert_true(n_raw <= sizeof raw);
    for (size_t i = 0; i < n_raw; i += len) {
        if (sv_utf8_step(raw + i, n_raw - i, &len) == SV_UTF8_SHORT)
            break;
        n_chars++;
    }
    return n_chars;
}

static uint64_t count_chars(const char *s, size_t n)
{
    uint64_t n_chars = 0;
    for (size_t i = 0; i < n; i++)
        n_chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    return n_chars;
}

static void check_float(const json_t *v, float want)
{
    assert_true(json_is_number(v));
    assert_true((float)json_number_value(v) == want);
}

static void check_chat_token(const struct scene *s, const json_t *item, int32_t id, float logprob)
{
    char raw[64], got[64];
    size_t n = sennit_token_bytes(s->o.tokenizer, id, true, raw, sizeof raw), i;
    const json_t *bytes = json_object_get(item, "bytes"), *x;
    check_float(json_object_get(item, "logprob"), logprob);
    assert_int_equal(json_array_size(bytes), n);
    json_array_foreach((json_t *)bytes, i, x) got[i] = (char)json_integer_value(x);
    assert_memory_equal(got, raw, n);
    const char *token = json_string_value(json_object_get(item, "token"));
    if (sv_utf8_valid(raw, n))
        assert_memory_equal(token, raw, n);
    else
        assert_non_null(strstr(token, "\xEF\xBF\xBD"));
}

static void check_chat_logprobs(const struct scene *s, const struct script *c, const json_t *content)
{
    assert_int_equal(json_array_size(content), c->n_ids);
    for (uint32_t i = 0; i < c->n_ids; i++) {
        const json_t *item = json_array_get(content, i), *top = json_object_get(item, "top_logprobs");
        check_chat_token(s, item, c->ids[i], c->lp[i].logprob);
        assert_int_equal(json_object_size(item), 4);
        assert_int_equal(json_array_size(top), c->n_top);
        for (uint32_t k = 0; k < c->n_top; k++)
            check_chat_token(s, json_array_get(top, k), c->top[i][k].id, c->top[i][k].logprob);
    }
}

static void name_of(const struct scene *s, int32_t id, char *out, size_t size)
{
    char raw[64];
    size_t n = sennit_token_bytes(s->o.tokenizer, id, true, raw, sizeof raw);
    if (sv_utf8_valid(raw, n) && !memchr(raw, 0, n)) {
        snprintf(out, size, "%.*s", (int)n, raw);
        return;
    }
    size_t at = (size_t)snprintf(out, size, "bytes:");
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, size - at, "\\x%02x", (unsigned char)raw[i]);
}

/* Entry k of the lists is the token `id`. */
static void check_entry(const struct scene *s, const json_t *l, uint32_t k, int32_t id, float logprob,
                        const struct sennit_logprob *tops, uint32_t n_top, uint64_t offset)
{
    char name[256];
    const json_t *top = json_array_get(json_object_get(l, "top_logprobs"), k);
    name_of(s, id, name, sizeof name);
    assert_string_equal(json_string_value(json_array_get(json_object_get(l, "tokens"), k)), name);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(l, "text_offset"), k)), offset);
    check_float(json_array_get(json_object_get(l, "token_logprobs"), k), logprob);
    assert_in_range(json_object_size(top), 1, n_top + 1);
    assert_non_null(json_object_get(top, name));
    if (n_top) {
        name_of(s, tops[0].id, name, sizeof name);
        check_float(json_object_get(top, name), tops[0].logprob);
    }
}

static void check_completion_logprobs(const struct scene *s, uint32_t index, const json_t *l)
{
    const struct script *c = &s->choices[index];
    const struct sennit_text *echo = &s->echo[index / s->o.n_per_prompt];
    uint32_t n_prompt = s->o.echo ? c->n_prompt : 0;
    uint64_t start = s->o.echo ? count_chars(echo->data, echo->n_bytes) : 0;
    struct sennit_text shown = {0};
    assert_int_equal(sennit_detokenize(s->o.tokenizer, c->prompt, c->n_prompt, true, &shown, NULL), SENNIT_OK);
    bool special = echo->n_bytes == shown.n_bytes;
    sennit_text_free(&shown);
    for (int i = 0; i < 4; i++)
        assert_int_equal(json_array_size(json_object_get(l, LISTS[i])), n_prompt + c->n_ids);
    if (n_prompt) {
        assert_true(json_is_null(json_array_get(json_object_get(l, "token_logprobs"), 0)));
        assert_true(json_is_null(json_array_get(json_object_get(l, "top_logprobs"), 0)));
        assert_int_equal(json_integer_value(json_array_get(json_object_get(l, "text_offset"), 0)), 0);
    }
    for (uint32_t i = 1; i < n_prompt; i++)
        check_entry(s, l, i, c->prompt[i], c->prompt_lp[i].logprob, c->prompt_top[i], c->n_top,
                    chars_of(s->o.tokenizer, c->prompt, i, special));
    for (uint32_t i = 0; i < c->n_ids; i++)
        check_entry(s, l, n_prompt + i, c->ids[i], c->lp[i].logprob, c->top[i], c->n_top,
                    start + chars_of(s->o.tokenizer, c->ids, i, false));
}

static void check_choice(const struct scene *s, uint32_t i, const json_t *c, const struct joined *j)
{
    bool chat = s->o.endpoint == SV_CHAT;
    const json_t *message = json_object_get(c, "message"), *l = json_object_get(c, "logprobs");
    const json_t *text = chat ? str(message, "content", NULL) : str(c, "text", NULL);
    const struct script *script = &s->choices[i];
    const struct sennit_text *echo = &s->echo[i / s->o.n_per_prompt];
    size_t n_echo = s->o.echo ? echo->n_bytes : 0;
    assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
    assert_int_equal(json_object_size(c), 4);
    assert_int_equal(json_string_length(text), n_echo + script->text.n_bytes);
    assert_memory_equal(json_string_value(text), s->o.echo ? echo->data : "", n_echo);
    assert_memory_equal(json_string_value(text) + n_echo, script->text.data, script->text.n_bytes);
    assert_int_equal(j->text.n_bytes, json_string_length(text));
    if (j->text.n_bytes)
        assert_memory_equal(j->text.data, json_string_value(text), j->text.n_bytes);
    str(c, "finish_reason", sennit_finish_name(script->finish));
    assert_string_equal(j->finish, sennit_finish_name(script->finish));
    if (chat) {
        str(message, "role", "assistant");
        assert_true(json_is_null(json_object_get(message, "refusal")) && json_object_size(message) == 3);
    }
    if (!s->o.logprobs) {
        assert_true(json_is_null(l));
        return;
    }
    for (int k = 0; k < (chat ? 1 : 4); k++)
        assert_true(json_equal(j->lists[k], json_object_get(l, chat ? "content" : LISTS[k])));
    if (chat)
        check_chat_logprobs(s, script, json_object_get(l, "content"));
    else
        check_completion_logprobs(s, i, l);
}

static void test_stream_equals_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        uint64_t rng = seed;
        struct scene s;
        struct sv_buf stream = {0}, whole = {0};
        struct joined js[MOST_ANSWERS] = {0};
        scene_make(&s, &rng);
        play(&s, true, rng, &stream);
        play(&s, false, rng + 1, &whole);
        join(&s, &stream, js);
        json_t *v = load(whole.data, whole.n_bytes);
        check_head(&s, v, s.o.endpoint == SV_CHAT ? "chat.completion" : "text_completion");
        check_usage(&s, json_object_get(v, "usage"));
        assert_int_equal(json_array_size(json_object_get(v, "choices")), s.o.n_choices);
        for (uint32_t i = 0; i < s.o.n_choices; i++)
            check_choice(&s, i, json_array_get(json_object_get(v, "choices"), i), &js[i]);
        json_decref(v);
        for (uint32_t i = 0; i < MOST_ANSWERS; i++) {
            sv_buf_release(&js[i].text);
            for (int k = 0; k < 4; k++)
                json_decref(js[i].lists[k]);
        }
        sv_buf_release(&stream);
        sv_buf_release(&whole);
        scene_release(&s);
    }
}

/* ---- single things --------------------------------------------------------------------------------------------- */

static struct sv_answer *simple(enum sv_endpoint endpoint, bool stream, bool logprobs)
{
    struct sv_answer_options o = {.endpoint = endpoint,
                                  .stream = stream,
                                  .logprobs = logprobs,
                                  .id = "i",
                                  .created = 5,
                                  .model = "m",
                                  .fingerprint = "f",
                                  .seed = UINT64_MAX,
                                  .tokenizer = tokenizer_get(),
                                  .n_choices = 1,
                                  .n_per_prompt = 1};
    return sv_answer_create(&o);
}

static void test_bytes_of_a_stream(void **state)
{
    (void)state;
    struct sv_answer *a = simple(SV_CHAT, true, false);
    struct sv_buf out = {0};
    struct sennit_event ev = {.kind = SENNIT_EVENT_START};
    sv_answer_event(a, 0, &ev, &out);
    ev = (struct sennit_event){.kind = SENNIT_EVENT_TOKEN, .id = 5, .text = "", .n_text = 0};
    sv_answer_event(a, 0, &ev, &out);
    ev = (struct sennit_event){.kind = SENNIT_EVENT_TOKEN, .id = 5, .text = "a\n\"\x01", .n_text = 4};
    sv_answer_event(a, 0, &ev, &out);
    ev = (struct sennit_event){.kind = SENNIT_EVENT_END, .finish = SENNIT_FINISH_STOP};
    sv_answer_event(a, 0, &ev, &out);
    sv_answer_finish(a, &out);
#define HEAD                                                                                                         \
    "data: {\"id\":\"i\",\"object\":\"chat.completion.chunk\",\"created\":5,\"model\":\"m\","                        \
    "\"system_fingerprint\":\"f\",\"seed\":-1,\"choices\":[{\"index\":0,\"delta\":"
    assert_string_equal(out.data, HEAD "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                                       "\"finish_reason\":null}]}\n\n" HEAD
                                       "{\"content\":\"a\\n\\\"\\u0001\"},\"logprobs\":null,\"finish_reason\":null}]}"
                                       "\n\n" HEAD "{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n"
                                       "data: [DONE]\n\n");
    sv_buf_release(&out);
    struct sv_error err;
    sv_fail(&err, 500, NULL, NULL, "broken \"%s\"", "x");
    sv_answer_break(a, &err, &out);
    assert_string_equal(out.data, "data: {\"error\":{\"message\":\"broken \\\"x\\\"\",\"type\":\"server_error\","
                                  "\"param\":null,\"code\":null}}\n\n");
    sv_buf_release(&out);
    sv_answer_free(a);
}

static void test_floats(void **state)
{
    (void)state;
    static const float VALUES[] = {0, -0.1f, -1e-30f, -3.4e38f, -INFINITY, NAN, INFINITY, -1.40129846e-45f};
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++) {
        struct sv_answer *a = simple(SV_CHAT, false, true);
        struct sv_buf out = {0};
        struct sennit_event ev = {.kind = SENNIT_EVENT_TOKEN, .id = 5, .logprob = VALUES[i]};
        sv_answer_event(a, 0, &ev, NULL);
        sv_answer_finish(a, &out);
        json_t *v = load(out.data, out.n_bytes),
               *l = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs");
        float want = i >= 4 && i <= 6 ? -9999.0f : VALUES[i];
        check_float(json_object_get(json_array_get(json_object_get(l, "content"), 0), "logprob"), want);
        json_decref(v);
        sv_buf_release(&out);
        sv_answer_free(a);
    }
}

/* A long prompt's log-probabilities come in several chunks. */
static void test_long_prompt(void **state)
{
    (void)state;
    struct sv_answer_options o = {.endpoint = SV_COMPLETION,
                                  .stream = true,
                                  .echo = true,
                                  .logprobs = true,
                                  .id = "i",
                                  .model = "m",
                                  .fingerprint = "f",
                                  .tokenizer = tokenizer_get(),
                                  .n_choices = 1,
                                  .n_per_prompt = 1};
    enum { N = 4000 };
    static int32_t ids[N];
    struct sv_answer *a = sv_answer_create(&o);
    size_t longest = 0, n_chunks = 0;
    sv_answer_prompt(a, 0, ids, N, "", 0);
    for (int i = -1; i <= N; i++) {
        struct sv_buf out = {0};
        struct sennit_event ev = {.kind = i < 0   ? SENNIT_EVENT_START
                                          : i < N ? SENNIT_EVENT_PROMPT
                                                  : SENNIT_EVENT_END,
                                  .finish = SENNIT_FINISH_LENGTH};
        sv_answer_event(a, 0, &ev, &out);
        n_chunks += out.n_bytes > 0;
        longest = out.n_bytes > longest ? out.n_bytes : longest;
        sv_buf_release(&out);
    }
    assert_true(longest < 40000 && n_chunks >= 5 && n_chunks < 100);
    sv_answer_free(a);
}

static void test_text(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"plain", "\"plain\""},
        {"\"\\\b\f\n\r\t\x1f\x7f/", "\"\\\"\\\\\\b\\f\\n\\r\\t\\u001f\x7f/\""},
        {"\xE2\x82\xAC\xF0\x9F\x98\x80", "\"\xE2\x82\xAC\xF0\x9F\x98\x80\""},
        {"a\xFF"
         "b",
         "\"a\xEF\xBF\xBD"
         "b\""},
        {"\xE2\x82", "\"\xEF\xBF\xBD\""},
        {"\xE2\x82x", "\"\xEF\xBF\xBDx\""},
        {"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xF4\x90\x80\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xC0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct sv_buf b = {0};
        sv_buf_json_string(&b, CASES[i][0], strlen(CASES[i][0]));
        assert_string_equal(b.data, CASES[i][1]);
        sv_buf_release(&b);
    }
    struct sv_buf b = {0};
    sv_buf_json_string(&b, "\0", 1);
    assert_string_equal(b.data, "\"\\u0000\"");
    sv_buf_release(&b);
    for (int n = 0; n < 1000; n += 7) {
        sv_buf_printf(&b, "%0*d", n + 1, 7);
        assert_int_equal(b.n_bytes, n + 1);
        assert_int_equal(strlen(b.data), n + 1);
        sv_buf_release(&b);
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
        cmocka_unit_test(test_text),        cmocka_unit_test(test_bytes_of_a_stream),   cmocka_unit_test(test_floats),
        cmocka_unit_test(test_long_prompt), cmocka_unit_test(test_stream_equals_whole),
    };
    if (!tokenizer_get())
        return 1;
    return cmocka_run_group_tests(tests, NULL, teardown);
}
