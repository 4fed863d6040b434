/* Tokens and their log-probabilities in the two forms of the API.
 *
 * Chat: an item per token, whose text has U+FFFD for bytes that are no character, beside the exact bytes.
 * Completions: parallel lists; a token that is not whole characters, or has a NUL, is "bytes:\xNN...". */
#include "serve/logprobs.h"

#include <math.h>
#include <string.h>

#include "serve/alloc.h"
#include "serve/text.h"

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

/* A token's bytes; nearly all fit the array. */
struct token {
    char small[128];
    char *data;
    size_t n;
};

static bool get_token(struct token *t, const struct sennit_tokenizer *tokenizer, int32_t id)
{
    t->data = t->small;
    t->n = sennit_token_bytes(tokenizer, id, true, t->small, sizeof t->small);
    if (t->n <= sizeof t->small)
        return true;
    t->data = sv_alloc(t->n);
    if (!t->data)
        return false;
    sennit_token_bytes(tokenizer, id, true, t->data, t->n);
    return true;
}

static void drop_token(struct token *t)
{
    if (t->data != t->small)
        sv_free(t->data);
}

static void add_bytes(struct sv_buf *b, const struct token *t)
{
    char list[5 * 64];
    size_t n = 0;
    sv_buf_add(b, "[", 1);
    for (size_t i = 0; i < t->n; i++) {
        unsigned char c = (unsigned char)t->data[i];
        if (i)
            list[n++] = ',';
        if (c >= 100)
            list[n++] = (char)('0' + c / 100);
        if (c >= 10)
            list[n++] = (char)('0' + c / 10 % 10);
        list[n++] = (char)('0' + c % 10);
        if (n > sizeof list - 5) {
            sv_buf_add(b, list, n);
            n = 0;
        }
    }
    sv_buf_add(b, list, n);
    sv_buf_add(b, "]", 1);
}

/* The completion endpoint's name of a token, with quotes. Many readers of JSON refuse a NUL in a member's name. */
static void add_name(struct sv_buf *b, const struct token *t)
{
    if (sv_utf8_valid(t->data, t->n) && !memchr(t->data, '\0', t->n)) {
        sv_buf_json_string(b, t->data, t->n);
        return;
    }
    sv_buf_puts(b, "\"bytes:");
    for (size_t i = 0; i < t->n; i++)
        sv_buf_printf(b, "\\\\x%02x", (unsigned char)t->data[i]);
    sv_buf_add(b, "\"", 1);
}

/* Nine digits give a float back exactly. What JSON cannot say becomes the API's "very unlikely". */
static void add_float(struct sv_buf *b, float x)
{
    if (isfinite(x))
        sv_buf_printf(b, "%.9g", (double)x);
    else
        sv_buf_puts(b, "-9999.0");
}

static void comma(struct sv_buf *b)
{
    if (b->n_bytes)
        sv_buf_add(b, ",", 1);
}

/* ---- chat ------------------------------------------------------------------------------------------------------ */

static void add_chat_token(struct sv_buf *b, const struct sennit_tokenizer *tokenizer, int32_t id, float logprob)
{
    struct token t;
    if (!get_token(&t, tokenizer, id)) {
        b->failed = true;
        return;
    }
    sv_buf_puts(b, "{\"token\":");
    sv_buf_json_string(b, t.data, t.n);
    sv_buf_puts(b, ",\"logprob\":");
    add_float(b, logprob);
    sv_buf_puts(b, ",\"bytes\":");
    add_bytes(b, &t);
    drop_token(&t);
}

static void add_chat(struct sv_logprobs *l, const struct sennit_tokenizer *tokenizer, const struct sennit_event *ev)
{
    struct sv_buf *b = &l->items;
    comma(b);
    add_chat_token(b, tokenizer, ev->id, ev->logprob);
    sv_buf_puts(b, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < ev->n_top; i++) {
        if (i)
            sv_buf_add(b, ",", 1);
        add_chat_token(b, tokenizer, ev->top[i].id, ev->top[i].logprob);
        sv_buf_add(b, "}", 1);
    }
    sv_buf_puts(b, "]}");
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

/* The members of one object, for a vocabulary may have two tokens of one text, and an object must not have a member
 * twice: the likelier one, which comes first, stays. */
enum { MOST_MEMBERS = 65 };
struct members {
    size_t start[MOST_MEMBERS], n_bytes[MOST_MEMBERS]; /* of the names in the buffer */
    uint32_t n;
};

static bool is_new(const struct members *m, const struct sv_buf *b, size_t start)
{
    size_t n = b->n_bytes - start;
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->n_bytes[i] == n && memcmp(b->data + m->start[i], b->data + start, n) == 0)
            return false;
    }
    return true;
}

static void add_member(struct sv_buf *b, struct members *m, const struct sennit_tokenizer *tokenizer, int32_t id,
                       float logprob)
{
    struct token t;
    size_t before = b->n_bytes;
    if (m->n == MOST_MEMBERS)
        return;
    if (!get_token(&t, tokenizer, id)) {
        b->failed = true;
        return;
    }
    if (m->n)
        sv_buf_add(b, ",", 1);
    size_t start = b->n_bytes;
    add_name(b, &t);
    drop_token(&t);
    if (b->failed)
        return;
    if (!is_new(m, b, start)) {
        b->n_bytes = before;
        return;
    }
    m->start[m->n] = start;
    m->n_bytes[m->n++] = b->n_bytes - start;
    sv_buf_add(b, ":", 1);
    add_float(b, logprob);
}

/* {token: logprob}: the alternatives, and the token itself where it is none of them. */
static void add_alternatives(struct sv_buf *b, const struct sennit_tokenizer *tokenizer,
                             const struct sennit_event *ev)
{
    struct members m = {.n = 0};
    bool own = false;
    sv_buf_add(b, "{", 1);
    for (uint32_t i = 0; i < ev->n_top; i++) {
        own = own || ev->top[i].id == ev->id;
        add_member(b, &m, tokenizer, ev->top[i].id, ev->top[i].logprob);
    }
    if (!own)
        add_member(b, &m, tokenizer, ev->id, ev->logprob);
    sv_buf_add(b, "}", 1);
}

static void add_completion(struct sv_logprobs *l, const struct sennit_tokenizer *tokenizer,
                           const struct sennit_event *ev, bool no_value)
{
    struct token t;
    if (!get_token(&t, tokenizer, ev->id)) {
        l->items.failed = true;
        return;
    }
    comma(&l->items);
    comma(&l->token_logprobs);
    comma(&l->top);
    comma(&l->text_offset);
    add_name(&l->items, &t);
    drop_token(&t);
    sv_buf_printf(&l->text_offset, "%llu", (unsigned long long)l->at.n_chars);
    if (no_value) {
        sv_buf_puts(&l->token_logprobs, "null");
        sv_buf_puts(&l->top, "null");
        return;
    }
    add_float(&l->token_logprobs, ev->logprob);
    add_alternatives(&l->top, tokenizer, ev);
}

void sv_logprobs_add(struct sv_logprobs *l, enum sv_endpoint endpoint, const struct sennit_tokenizer *tokenizer,
                     const struct sennit_event *ev, bool no_value)
{
    if (endpoint == SV_CHAT)
        add_chat(l, tokenizer, ev);
    else
        add_completion(l, tokenizer, ev, no_value);
}

/* ---- offsets --------------------------------------------------------------------------------------------------- */

/* Bytes of text behind a token; each wrong sequence is one character of three bytes, as in the text itself. */
static void pass(struct sv_offsets *at, const char *data, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len;
        at->part[at->n_part++] = data[i++];
        enum sv_utf8 kind = sv_utf8_step(at->part, at->n_part, &len);
        if (kind == SV_UTF8_SHORT)
            continue;
        bool again = kind == SV_UTF8_BAD && len < at->n_part; /* the last byte begins something new */
        at->n_chars++;
        at->n_echo += kind == SV_UTF8_OK ? len : 3;
        at->n_part = 0;
        if (again)
            i--;
    }
}

static void pass_token(struct sv_offsets *at, const struct sennit_tokenizer *tokenizer, int32_t id, bool special)
{
    char buf[128];
    size_t n = sennit_token_bytes(tokenizer, id, special, buf, sizeof buf);
    if (n <= sizeof buf) {
        pass(at, buf, n);
        return;
    }
    char *data = sv_alloc(n);
    if (!data) {
        at->failed = true;
        return;
    }
    sennit_token_bytes(tokenizer, id, special, data, n);
    pass(at, data, n);
    sv_free(data);
}

void sv_offsets_answer(struct sv_offsets *at, const struct sennit_tokenizer *tokenizer, int32_t id)
{
    pass_token(at, tokenizer, id, false);
}

void sv_offsets_prompt(struct sv_offsets *at, const struct sennit_tokenizer *tokenizer, int32_t id, const char *echo,
                       size_t n_echo)
{
    char name[128];
    size_t n = sennit_token_bytes(tokenizer, id, true, name, sizeof name);
    bool control = n > 0 && sennit_token_bytes(tokenizer, id, false, NULL, 0) == 0;
    if (control) {
        size_t from = at->n_echo + (at->n_part ? 3 : 0); /* its name would end an incomplete character */
        if (n > sizeof name || from + n > n_echo || memcmp(echo + from, name, n) != 0)
            return;
    }
    pass_token(at, tokenizer, id, control);
}

void sv_offsets_end_prompt(struct sv_offsets *at)
{
    if (at->n_part) {
        at->n_chars++;
        at->n_echo += 3;
    }
    at->n_part = 0;
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

bool sv_logprobs_any(const struct sv_logprobs *l)
{
    return l->items.n_bytes > 0;
}

size_t sv_logprobs_bytes(const struct sv_logprobs *l)
{
    return l->items.n_bytes + l->token_logprobs.n_bytes + l->top.n_bytes + l->text_offset.n_bytes;
}

static void add_list(struct sv_buf *out, const char *before, const struct sv_buf *list)
{
    sv_buf_puts(out, before);
    if (list->data)
        sv_buf_add(out, list->data, list->n_bytes);
}

void sv_logprobs_write(const struct sv_logprobs *l, enum sv_endpoint endpoint, struct sv_buf *out)
{
    if (endpoint == SV_CHAT) {
        add_list(out, "{\"content\":[", &l->items);
        sv_buf_puts(out, "],\"refusal\":null}");
        return;
    }
    add_list(out, "{\"tokens\":[", &l->items);
    add_list(out, "],\"token_logprobs\":[", &l->token_logprobs);
    add_list(out, "],\"top_logprobs\":[", &l->top);
    add_list(out, "],\"text_offset\":[", &l->text_offset);
    sv_buf_puts(out, "]}");
}

void sv_logprobs_clear(struct sv_logprobs *l)
{
    l->items.n_bytes = l->token_logprobs.n_bytes = l->top.n_bytes = l->text_offset.n_bytes = 0;
}

bool sv_logprobs_failed(const struct sv_logprobs *l)
{
    return l->at.failed || l->items.failed || l->token_logprobs.failed || l->top.failed || l->text_offset.failed;
}

void sv_logprobs_release(struct sv_logprobs *l)
{
    sv_buf_release(&l->items);
    sv_buf_release(&l->token_logprobs);
    sv_buf_release(&l->top);
    sv_buf_release(&l->text_offset);
}
