/* Answers: events in, JSON out.
 *
 * Streamed or not, an event first adds its text and its log-probabilities to its choice. A stream then writes what is
 * there as a chunk and clears it; else it stays until the whole object is written. So both hold the same. */
#include "serve/answer.h"

#include <inttypes.h>
#include <string.h>

#include "serve/alloc.h"
#include "serve/logprobs.h"

enum { MOST_PENDING_BYTES = 16384 }; /* of a prompt's log-probabilities that wait to be given out together */

struct choice {
    struct sv_buf text;
    struct sv_logprobs logprobs;
    uint64_t n_generated;
    sennit_finish finish; /* NONE until its END */
    bool begun;           /* the first chunk's part (role, echo) is done */
    bool first_prompt;    /* a prompt token was seen */
    bool answering;       /* a token of the answer was seen */
};

struct prompt {
    char *echo; /* [n_echo], or NULL */
    size_t n_echo, n_ids;
};

struct sv_answer {
    struct sv_answer_options o; /* its strings are not used after creation */
    struct sv_buf head;         /* a chunk up to its choices, or the whole object's beginning */
    struct choice *choices;     /* [o.n_choices] */
    struct prompt *prompts;     /* [n_prompts] */
    uint32_t n_prompts;
    bool failed;
};

/* ---- making ---------------------------------------------------------------------------------------------------- */

static void write_head(struct sv_answer *a)
{
    const struct sv_answer_options *o = &a->o;
    struct sv_buf *b = &a->head;
    sv_buf_puts(b, o->stream ? "data: {\"id\":" : "{\"id\":");
    sv_buf_json_string(b, o->id, strlen(o->id));
    sv_buf_puts(b, ",\"object\":\"");
    sv_buf_puts(b, o->endpoint == SV_COMPLETION ? "text_completion"
                   : o->stream                  ? "chat.completion.chunk"
                                                : "chat.completion");
    sv_buf_printf(b, "\",\"created\":%" PRId64 ",\"model\":", o->created);
    sv_buf_json_string(b, o->model, strlen(o->model));
    sv_buf_puts(b, ",\"system_fingerprint\":");
    sv_buf_json_string(b, o->fingerprint, strlen(o->fingerprint));
    /* With sign, so that it can be sent back as it is: the request's field is a signed number of 64 bits. */
    sv_buf_printf(b, ",\"seed\":%" PRId64 ",\"choices\":[", (int64_t)o->seed);
}

struct sv_answer *sv_answer_create(const struct sv_answer_options *options)
{
    struct sv_answer *a = sv_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->o = *options;
    if (a->o.n_per_prompt == 0)
        a->o.n_per_prompt = 1;
    a->n_prompts = (a->o.n_choices + a->o.n_per_prompt - 1) / a->o.n_per_prompt;
    a->choices = sv_calloc(a->o.n_choices, sizeof *a->choices);
    a->prompts = sv_calloc(a->n_prompts, sizeof *a->prompts);
    write_head(a);
    a->o.id = a->o.model = a->o.fingerprint = NULL;
    if (a->choices && a->prompts && !a->head.failed)
        return a;
    sv_answer_free(a);
    return NULL;
}

void sv_answer_free(struct sv_answer *a)
{
    if (!a)
        return;
    for (uint32_t i = 0; a->choices && i < a->o.n_choices; i++) {
        sv_buf_release(&a->choices[i].text);
        sv_logprobs_release(&a->choices[i].logprobs);
    }
    for (uint32_t i = 0; a->prompts && i < a->n_prompts; i++)
        sv_free(a->prompts[i].echo);
    sv_buf_release(&a->head);
    sv_free(a->choices);
    sv_free(a->prompts);
    sv_free(a);
}

void sv_answer_prompt(struct sv_answer *a, uint32_t prompt, const int32_t *ids, size_t n_ids, const char *echo_text,
                      size_t n_echo)
{
    (void)ids; /* events of the prompt bring their ids */
    if (prompt >= a->n_prompts)
        return;
    struct prompt *p = &a->prompts[prompt];
    p->n_ids = n_ids;
    if (!a->o.echo || !echo_text)
        return;
    sv_free(p->echo);
    p->echo = sv_copy(echo_text, n_echo);
    p->n_echo = p->echo ? n_echo : 0;
    if (!p->echo)
        a->failed = true;
}

static const struct prompt *prompt_of(const struct sv_answer *a, uint32_t choice)
{
    return &a->prompts[choice / a->o.n_per_prompt];
}

/* ---- parts of the JSON ----------------------------------------------------------------------------------------- */

static void add_text(const struct choice *c, struct sv_buf *out)
{
    sv_buf_json_string(out, c->text.data, c->text.n_bytes);
}

/* `"logprobs":{...},"finish_reason":"stop"}`, with nulls for what is not there. */
static void add_tail(const struct sv_answer *a, const struct choice *c, bool logprobs, bool finish,
                     struct sv_buf *out)
{
    sv_buf_puts(out, ",\"logprobs\":");
    if (logprobs)
        sv_logprobs_write(&c->logprobs, a->o.endpoint, out);
    else
        sv_buf_puts(out, "null");
    if (!finish) {
        sv_buf_puts(out, ",\"finish_reason\":null}");
        return;
    }
    sv_buf_puts(out, ",\"finish_reason\":\"");
    sv_buf_puts(out, sennit_finish_name(c->finish));
    sv_buf_puts(out, "\"}");
}

struct sv_usage sv_answer_usage(const struct sv_answer *a)
{
    struct sv_usage u = {0};
    for (uint32_t i = 0; i < a->n_prompts; i++)
        u.n_prompt += a->prompts[i].n_ids;
    for (uint32_t i = 0; i < a->o.n_choices; i++)
        u.n_completion += a->choices[i].n_generated;
    return u;
}

/* No request resumes from kept state and no token is hidden reasoning, so the details are zeros that are true. */
static void add_usage(const struct sv_answer *a, struct sv_buf *out)
{
    struct sv_usage u = sv_answer_usage(a);
    sv_buf_printf(out,
                  "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                  ",\"total_tokens\":%" PRIu64 ",\"prompt_tokens_details\":{\"cached_tokens\":0},"
                  "\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
                  u.n_prompt, u.n_completion, u.n_prompt + u.n_completion);
}

/* ---- chunks ---------------------------------------------------------------------------------------------------- */

static void begin_chunk(const struct sv_answer *a, uint32_t index, struct sv_buf *out)
{
    sv_buf_add(out, a->head.data, a->head.n_bytes);
    sv_buf_printf(out, "{\"index\":%u,", index);
}

static void end_chunk(const struct sv_answer *a, struct sv_buf *out)
{
    sv_buf_puts(out, a->o.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

static void chunk_role(const struct sv_answer *a, uint32_t index, struct sv_buf *out)
{
    begin_chunk(a, index, out);
    sv_buf_puts(out, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
    end_chunk(a, out);
}

/* What the choice has gathered; nothing when that is nothing. */
static void chunk_content(const struct sv_answer *a, uint32_t index, bool finish, struct sv_buf *out)
{
    struct choice *c = &a->choices[index];
    bool chat = a->o.endpoint == SV_CHAT, logprobs = sv_logprobs_any(&c->logprobs);
    if (c->text.n_bytes == 0 && !logprobs && !finish)
        return;
    begin_chunk(a, index, out);
    sv_buf_puts(out, chat ? "\"delta\":{\"content\":" : "\"text\":");
    add_text(c, out);
    if (chat)
        sv_buf_puts(out, "}");
    add_tail(a, c, logprobs, finish, out);
    end_chunk(a, out);
    c->text.n_bytes = 0;
    sv_logprobs_clear(&c->logprobs);
}

static void chunk_finish(const struct sv_answer *a, uint32_t index, struct sv_buf *out)
{
    begin_chunk(a, index, out);
    sv_buf_puts(out, "\"delta\":{}");
    add_tail(a, &a->choices[index], false, true, out);
    end_chunk(a, out);
}

/* A prompt's log-probabilities are given out together with its text, or when they are many. */
static bool hold_back(const struct sv_answer *a, const struct choice *c, sennit_event_kind kind)
{
    if (!a->o.echo || !a->o.logprobs || (kind != SENNIT_EVENT_START && kind != SENNIT_EVENT_PROMPT))
        return false;
    return sv_logprobs_bytes(&c->logprobs) < MOST_PENDING_BYTES;
}

static void stream_event(const struct sv_answer *a, uint32_t index, sennit_event_kind kind, bool first,
                         struct sv_buf *out)
{
    const struct choice *c = &a->choices[index];
    bool chat = a->o.endpoint == SV_CHAT, end = kind == SENNIT_EVENT_END;
    if (first && chat)
        chunk_role(a, index, out);
    if (hold_back(a, c, kind))
        return;
    chunk_content(a, index, end && !chat, out);
    if (end && chat)
        chunk_finish(a, index, out);
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static void gather_prompt(const struct sv_answer *a, uint32_t index, const struct sennit_event *ev)
{
    struct choice *c = &a->choices[index];
    const struct prompt *p = prompt_of(a, index);
    if (!a->o.echo || !a->o.logprobs)
        return;
    sv_logprobs_add(&c->logprobs, a->o.endpoint, a->o.tokenizer, ev, !c->first_prompt);
    sv_offsets_prompt(&c->logprobs.at, a->o.tokenizer, ev->id, p->echo, p->n_echo);
    c->first_prompt = true;
}

static void gather_token(const struct sv_answer *a, struct choice *c, const struct sennit_event *ev)
{
    c->n_generated++;
    if (!a->o.logprobs)
        return;
    if (!c->answering)
        sv_offsets_end_prompt(&c->logprobs.at);
    c->answering = true;
    sv_logprobs_add(&c->logprobs, a->o.endpoint, a->o.tokenizer, ev, false);
    sv_offsets_answer(&c->logprobs.at, a->o.tokenizer, ev->id);
}

/* Adds the event to its choice. */
static void gather(const struct sv_answer *a, uint32_t index, const struct sennit_event *ev)
{
    struct choice *c = &a->choices[index];
    const struct prompt *p = prompt_of(a, index);
    if (!c->begun && p->n_echo)
        sv_buf_add(&c->text, p->echo, p->n_echo);
    c->begun = true;
    if (ev->kind == SENNIT_EVENT_PROMPT)
        gather_prompt(a, index, ev);
    if (ev->kind == SENNIT_EVENT_TOKEN)
        gather_token(a, c, ev);
    if ((ev->kind == SENNIT_EVENT_TOKEN || ev->kind == SENNIT_EVENT_END) && ev->n_text)
        sv_buf_add(&c->text, ev->text, ev->n_text);
    if (ev->kind == SENNIT_EVENT_END)
        c->finish = ev->finish;
}

void sv_answer_event(struct sv_answer *a, uint32_t choice, const struct sennit_event *ev, struct sv_buf *out)
{
    if (choice >= a->o.n_choices || a->failed || ev->kind == SENNIT_EVENT_NONE)
        return;
    struct choice *c = &a->choices[choice];
    bool first = !c->begun;
    gather(a, choice, ev);
    if (c->text.failed || sv_logprobs_failed(&c->logprobs)) {
        a->failed = true;
        return;
    }
    if (!a->o.stream || !out)
        return;
    stream_event(a, choice, ev->kind, first, out);
    a->failed = out->failed;
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static void whole_choice(const struct sv_answer *a, uint32_t index, struct sv_buf *out)
{
    const struct choice *c = &a->choices[index];
    bool chat = a->o.endpoint == SV_CHAT;
    sv_buf_printf(out, "%s{\"index\":%u,", index ? "," : "", index);
    sv_buf_puts(out, chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    add_text(c, out);
    if (chat)
        sv_buf_puts(out, ",\"refusal\":null}");
    add_tail(a, c, a->o.logprobs, true, out);
}

void sv_answer_finish(struct sv_answer *a, struct sv_buf *out)
{
    if (a->failed)
        return;
    if (!a->o.stream) {
        sv_buf_add(out, a->head.data, a->head.n_bytes);
        for (uint32_t i = 0; i < a->o.n_choices; i++)
            whole_choice(a, i, out);
        sv_buf_puts(out, "],");
        add_usage(a, out);
        sv_buf_puts(out, "}");
    } else {
        if (a->o.include_usage) {
            sv_buf_add(out, a->head.data, a->head.n_bytes);
            sv_buf_puts(out, "],");
            add_usage(a, out);
            sv_buf_puts(out, "}\n\n");
        }
        sv_buf_puts(out, "data: [DONE]\n\n");
    }
    a->failed = out->failed;
}

void sv_answer_break(struct sv_answer *a, const struct sv_error *err, struct sv_buf *out)
{
    (void)a;
    sv_buf_puts(out, "data: ");
    sv_error_write(err, out);
    sv_buf_puts(out, "\n\n");
}

bool sv_answer_failed(const struct sv_answer *a)
{
    return a->failed;
}
