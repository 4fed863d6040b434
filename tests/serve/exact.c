/* Every answer of a crowded server is the one that its request gets alone, byte for byte: texts, log-probabilities,
 * finish reasons and usage, streamed or not, greedy or with a seed, while other clients come, go and hang up.
 *
 *   exact [--smollm2]    the real model instead of the tiny one; skipped without its file
 *
 * The answers that count come from another server with one row, one thread and whole prompts. Each prompt carries a
 * nonce; no answer may hold another's. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/calls.h"

enum { N_CLIENTS = 16, MOST_PROBLEMS = 64, N_ROUNDS = 3, MOST_PROMPT = 700, MOST_ANSWER = 64, LONG_ENOUGH = 16 };

struct problem {
    char nonce[32];
    char *body; /* JSON without "stream" */
    bool chat;
    uint32_t n_echo; /* tokens of the prompt in the log-probabilities */
    bool logprobs;
    size_t n_prompt; /* tokens, as the library counts them */
    struct answer want;
};

static struct {
    const struct sennit_model *model;
    struct server crowd;
    struct problem problems[MOST_PROBLEMS];
    uint32_t n_problems, per_client;
    uint32_t most_prompt, most_answer;
} all;

/* ---- problems -------------------------------------------------------------------------------------------------- */

/* About n tokens of text that begins with the nonce. */
static char *make_text(const struct problem *p, uint64_t *state, size_t n)
{
    static const char *const words[] = {"hello", " world", " the", " of", " and", " lo", "\n", " caf\xc3\xa9", " 7"};
    char *text = calloc(1, n * 8 + 64);
    CHECK(text, "no memory");
    size_t at = (size_t)snprintf(text, 64, "%s:", p->nonce);
    for (size_t i = 0; i < n; i++) {
        const char *word = words[run_random(state) % (sizeof words / sizeof *words)];
        memcpy(text + at, word, strlen(word));
        at += strlen(word);
    }
    return text;
}

static json_t *make_ids(uint64_t *state, size_t n)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(ids, json_integer((json_int_t)(3 + run_random(state) % 290)));
    return ids;
}

static json_t *chat_body(struct problem *p, const char *text)
{
    json_t *body = json_pack("{s:[{s:s,s:s},{s:s,s:s}]}", "messages", "role", "system", "content", "Be brief.",
                             "role", "user", "content", text);
    struct sennit_tokens tokens = {0};
    char *vars = json_dumps(body, 0);
    MUST(sennit_chat_tokenize(all.model, vars, NULL, &tokens, err));
    p->n_prompt = tokens.n_ids;
    sennit_tokens_free(&tokens);
    free(vars);
    return body;
}

static json_t *text_body(struct problem *p, const char *text)
{
    struct sennit_tokens tokens = {0};
    MUST(sennit_tokenize(sennit_model_tokenizer(all.model), text, strlen(text),
                         SENNIT_TOKENIZE_BOS | SENNIT_TOKENIZE_SPECIAL, &tokens, err));
    p->n_prompt = tokens.n_ids;
    sennit_tokens_free(&tokens);
    return json_pack("{s:s}", "prompt", text);
}

static json_t *prompt_body(struct problem *p, uint32_t i, uint64_t *state)
{
    size_t n = 1 + run_random(state) % all.most_prompt;
    if (i % 4 == 0) {
        p->n_prompt = n;
        return with(json_object(), "prompt", make_ids(state, n));
    }
    char *text = make_text(p, state, n < 12 ? 1 : n - 11);
    p->chat = i % 4 != 1;
    json_t *body = p->chat ? chat_body(p, text) : text_body(p, text);
    free(text);
    return body;
}

static void make_problem(struct problem *p, uint32_t i, uint64_t *state)
{
    snprintf(p->nonce, sizeof p->nonce, "nonce-%016llx", (unsigned long long)run_random(state));
    json_t *body = prompt_body(p, i, state);
    with(body, "max_tokens", json_integer((json_int_t)(1 + run_random(state) % all.most_answer)));
    with(body, "temperature", i % 2 ? json_real(0.8) : json_integer(0));
    with(body, "seed", json_integer(1000 + i));
    if (run_random(state) % 2)
        with(body, "ignore_eos", json_true());
    p->logprobs = i % 8 < 6;
    if (p->logprobs && p->chat) {
        with(body, "logprobs", json_true());
        with(body, "top_logprobs", json_integer(3));
    } else if (p->logprobs) {
        with(body, "logprobs", json_integer(3));
    }
    if (i % 4 == 1 && i % 8 < 4) {
        with(body, "echo", json_true());
        p->n_echo = p->logprobs ? (uint32_t)p->n_prompt : 0;
    }
    p->body = json_dumps(body, JSON_COMPACT);
    json_decref(body);
}

static json_t *body_of(const struct problem *p, bool stream)
{
    json_t *body = json_loads(p->body, 0, NULL);
    CHECK(body, "%s", p->body);
    if (stream) {
        with(body, "stream", json_true());
        with(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    }
    return body;
}

/* ---- checks ---------------------------------------------------------------------------------------------------- */

static void check_whole(const struct problem *p, const struct answer *a)
{
    CHECK(a->result == HTTP_OK && a->http == 200 && !a->error, "%s, status %d: %s", http_result_name(a->result),
          a->http, a->error ? json_string_value(json_object_get(a->error, "message")) : "");
    CHECK(json_array_size(a->choices) == 1 && a->has_usage, "%zu choices", json_array_size(a->choices));
    CHECK(a->n_prompt == p->n_prompt, "usage says %llu prompt tokens, the library %zu",
          (unsigned long long)a->n_prompt, p->n_prompt);
    if (p->logprobs) /* an end token is counted, and has its entry, or neither */
        CHECK(answer_n_logprobs(a, 0) == a->n_completion + p->n_echo,
              "%zu log-probabilities, %llu tokens and %u of echo", answer_n_logprobs(a, 0),
              (unsigned long long)a->n_completion, p->n_echo);
    for (uint32_t i = 0; i < all.n_problems; i++)
        CHECK(p == &all.problems[i] || !strstr(a->choices_text, all.problems[i].nonce),
              "%s is in the answer to %s: %s", all.problems[i].nonce, p->nonce, a->choices_text);
    CHECK(!p->n_echo || strstr(answer_text(a, 0), p->nonce), "the echo lacks its nonce");
}

static void check_same(const struct problem *p, const struct answer *a, bool stream)
{
    check_whole(p, a);
    CHECK(strcmp(a->choices_text, p->want.choices_text) == 0, "%s, alone:\n%s\nnow:\n%s\nfor %.500s",
          stream ? "streamed" : "whole", p->want.choices_text, a->choices_text, p->body);
    CHECK(a->n_completion == p->want.n_completion, "usage says %llu answer tokens, alone %llu",
          (unsigned long long)a->n_completion, (unsigned long long)p->want.n_completion);
    CHECK(a->seed == p->want.seed, "seed %lld, alone %lld", (long long)a->seed, (long long)p->want.seed);
}

static void check_distinct(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < all.n_problems; i++)
        for (uint32_t j = 0; j < i; j++) {
            const struct answer *a = &all.problems[i].want, *b = &all.problems[j].want;
            if (a->n_completion < LONG_ENOUGH || b->n_completion < LONG_ENOUGH)
                continue;
            n++;
            CHECK(strcmp(a->choices_text, b->choices_text) != 0, "problems %u and %u have the same answer: %s", i, j,
                  a->choices_text);
        }
    CHECK(n > 0, "no answers to compare");
}

/* ---- clients --------------------------------------------------------------------------------------------------- */

/* Comes, reads a little and goes, in one of three ways. */
static void hang_up(const struct problem *p, uint64_t *state)
{
    struct http_conn c;
    struct http_response r = {0};
    ask_begin(&all.crowd, &c, body_of(p, run_random(state) % 2));
    if (run_random(state) % 3)
        http_wait_readable(&c, (int)(run_random(state) % 30));
    if (run_random(state) % 2 && http_read_head(&c, &r, 20) == HTTP_OK)
        for (uint64_t n = run_random(state) % 5; n > 0; n--)
            http_read_event(&c, &r, 10);
    http_response_free(&r);
    if (run_random(state) % 2)
        http_reset(&c);
    else
        http_close(&c);
}

static void *client(void *number)
{
    uint32_t first = *(uint32_t *)number * all.per_client;
    uint64_t state = 77 + first;
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        uint32_t from = (uint32_t)run_random(&state) % all.per_client;
        for (uint32_t k = 0; k < all.per_client; k++) {
            struct problem *p = &all.problems[first + (from + k) % all.per_client];
            sleep_ms((uint32_t)(run_random(&state) % 20));
            if (run_random(&state) % 4 == 0)
                hang_up(p, &state);
            struct answer a;
            bool stream = (round + k) % 2;
            ask(&all.crowd, body_of(p, stream), &a);
            check_same(p, &a, stream);
            answer_free(&a);
        }
    }
    return NULL;
}

static void crowd(const char *path, const char *rows, const char *chunk)
{
    pthread_t threads[N_CLIENTS];
    uint32_t numbers[N_CLIENTS];
    server_start(&all.crowd, path, "--max-rows", rows, "--chunk", chunk, NULL);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, client, &numbers[i]) == 0, "no thread");
    }
    for (uint32_t i = 0; i < N_CLIENTS; i++)
        pthread_join(threads[i], NULL);
    CHECK(server_wait_idle(&all.crowd, 5000 * SLOW), "something is left");
    server_stop(&all.crowd);
}

/* Two answers alone are the same too: a cold server, and one whose pages and connections were used. */
static void alone(const char *path)
{
    struct server s;
    server_start(&s, path, "--max-rows", "1", "--threads", "1", NULL);
    for (uint32_t i = 0; i < all.n_problems; i++) {
        struct problem *p = &all.problems[i];
        ask(&s, body_of(p, false), &p->want);
        check_whole(p, &p->want);
    }
    for (uint32_t i = 0; i < all.n_problems; i += 7) {
        struct answer a;
        ask(&s, body_of(&all.problems[i], true), &a);
        check_same(&all.problems[i], &a, true);
        answer_free(&a);
    }
    server_stop(&s);
}

int main(int argc, char **argv)
{
    bool real = argc > 1 && strcmp(argv[1], "--smollm2") == 0;
    const char *path = real ? run_smollm2_path() : server_tiny_model(2048);
    if (!path) {
        puts("SKIPPED: no SmolLM2 file; scripts/fetch-smollm2.sh fetches it, or set SENNIT_SMOLLM2");
        return 77;
    }
    struct sennit_model *model = NULL;
    MUST(sennit_model_open(&model, path, NULL, err));
    all.model = model;
    all.per_client = real || LESS > 4 ? 1 : LESS > 1 ? 2 : 4;
    all.n_problems = N_CLIENTS * all.per_client;
    all.most_prompt = MOST_PROMPT;
    all.most_answer = real ? 32 : MOST_ANSWER;
    uint64_t state = 20;
    for (uint32_t i = 0; i < all.n_problems; i++)
        make_problem(&all.problems[i], i, &state);
    alone(path);
    check_distinct();
    crowd(path, "16", "512"); /* as by default: nobody waits for a row */
    if (!real)
        crowd(path, "6", "48");
    for (uint32_t i = 0; i < all.n_problems; i++) {
        answer_free(&all.problems[i].want);
        free(all.problems[i].body);
    }
    sennit_model_free(model);
    printf("%u answers to each of %u prompts from %d clients: all as alone\n", N_ROUNDS, all.n_problems, N_CLIENTS);
    return 0;
}
