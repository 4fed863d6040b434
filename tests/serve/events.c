#include "events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/tiny_model.h"

static struct sennit_tokenizer *tokenizer;

const struct sennit_tokenizer *tokenizer_get(void)
{
    struct tiny_spec spec = tiny_spec_default();
    struct sennit_error err;
    char path[] = "/tmp/sennit-serve-XXXXXX";
    if (tokenizer)
        return tokenizer;
    int fd = mkstemp(path);
    if (fd < 0)
        return NULL;
    close(fd);
    tiny_model_write(&spec, path);
    if (sennit_tokenizer_open(&tokenizer, path, NULL, &err) != SENNIT_OK)
        fprintf(stderr, "%s\n", err.message);
    unlink(path);
    return tokenizer;
}

void tokenizer_free(void)
{
    sennit_tokenizer_free(tokenizer);
    tokenizer = NULL;
}

static uint32_t below(uint64_t *rng, uint32_t n)
{
    return (uint32_t)(tiny_random(rng) % n);
}

/* Often a byte of a character of several bytes, sometimes a control token. */
static int32_t random_id(uint64_t *rng, uint32_t n_vocab)
{
    static const int32_t BYTES[] = {0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xC3, 0xA9, 0xFF, '"', '\\', '\n', 0};
    char byte[1];
    uint32_t what = below(rng, 8);
    if (what == 0)
        return (int32_t)below(rng, TINY_N_SPECIAL);
    if (what > 5)
        return (int32_t)below(rng, n_vocab);
    int32_t want = BYTES[below(rng, sizeof BYTES / sizeof *BYTES)];
    for (int32_t id = TINY_N_SPECIAL; id < TINY_N_SPECIAL + 256; id++) {
        if (sennit_token_bytes(tokenizer, id, false, byte, 1) == 1 && (unsigned char)byte[0] == want)
            return id;
    }
    return TINY_N_SPECIAL;
}

static float random_logprob(uint64_t *rng)
{
    return -20 * (tiny_uniform(rng) + 1);
}

static void random_tokens(uint64_t *rng, uint32_t n_vocab, uint32_t n, int32_t *ids, struct sennit_logprob *lp,
                          struct sennit_logprob top[][MOST_TOP])
{
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = random_id(rng, n_vocab);
        lp[i].logprob = random_logprob(rng);
        for (uint32_t j = 0; j < MOST_TOP; j++)
            top[i][j] = (struct sennit_logprob){random_id(rng, n_vocab), random_logprob(rng)};
        if (below(rng, 2))
            top[i][below(rng, MOST_TOP)] = (struct sennit_logprob){ids[i], lp[i].logprob};
    }
}

/* Text comes out in whole characters, with delays. */
static void random_cuts(struct script *s, uint64_t *rng)
{
    size_t at = 0;
    for (uint32_t i = 0; i < s->n_ids; i++) {
        uint32_t n = below(rng, 5);
        for (uint32_t k = 0; k < n && at < s->text.n_bytes; k++) {
            at++;
            while (at < s->text.n_bytes && ((unsigned char)s->text.data[at] & 0xC0) == 0x80)
                at++;
        }
        s->cut[i] = at;
    }
}

void script_make(struct script *s, const struct sennit_tokenizer *t, uint64_t *rng, bool top)
{
    uint32_t n_vocab = sennit_vocab_size(t);
    struct sennit_error err;
    memset(s, 0, sizeof *s);
    s->n_prompt = 1 + below(rng, MOST_TOKENS);
    s->n_ids = below(rng, MOST_TOKENS + 1);
    s->n_top = top ? below(rng, MOST_TOP + 1) : 0;
    random_tokens(rng, n_vocab, s->n_prompt, s->prompt, s->prompt_lp, s->prompt_top);
    random_tokens(rng, n_vocab, s->n_ids, s->ids, s->lp, s->top);
    if (sennit_detokenize(t, s->ids, s->n_ids, false, &s->text, &err) != SENNIT_OK)
        abort();
    random_cuts(s, rng);
    s->finish = below(rng, 2) ? SENNIT_FINISH_STOP : SENNIT_FINISH_LENGTH;
}

void script_release(struct script *s)
{
    sennit_text_free(&s->text);
}

static void give_token(const struct script *s, uint32_t i, struct sennit_event *ev)
{
    size_t from = i ? s->cut[i - 1] : 0;
    ev->kind = SENNIT_EVENT_TOKEN;
    ev->id = s->ids[i];
    ev->logprob = s->lp[i].logprob;
    ev->top = s->top[i];
    ev->n_top = s->n_top;
    ev->text = s->text.data + from;
    ev->n_text = s->cut[i] - from;
}

bool script_next(struct script *s, bool want_prompt, struct sennit_event *ev)
{
    uint32_t n_prompt = want_prompt ? s->n_prompt : 0, at = s->next++;
    memset(ev, 0, sizeof *ev);
    if (at == 0) {
        ev->kind = SENNIT_EVENT_START;
        return true;
    }
    if (at - 1 < n_prompt) {
        uint32_t i = at - 1;
        ev->kind = SENNIT_EVENT_PROMPT;
        ev->id = s->prompt[i];
        ev->logprob = i ? s->prompt_lp[i].logprob : 0;
        ev->top = s->prompt_top[i];
        ev->n_top = i ? s->n_top : 0;
        return true;
    }
    at -= 1 + n_prompt;
    if (at < s->n_ids) {
        give_token(s, at, ev);
        return true;
    }
    if (at > s->n_ids)
        return false;
    size_t from = s->n_ids ? s->cut[s->n_ids - 1] : 0;
    ev->kind = SENNIT_EVENT_END;
    ev->finish = s->finish;
    ev->n_prompt = s->n_prompt;
    ev->n_generated = s->n_ids;
    ev->text = s->text.data + from;
    ev->n_text = s->text.n_bytes - from;
    return true;
}
