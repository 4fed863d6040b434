/* Tokenizers and chat templates: validate, then call inward. */
#include "api/owned.h"
#include "model/model.h"

#include <stdio.h>
#include <time.h>

static const size_t MOST_TEXT = (size_t)1 << 30;

/* ---- tokenizer ------------------------------------------------------------------------------------------------- */

sennit_status sennit_tokenizer_open(struct sennit_tokenizer **out, const char *path,
                                    const struct sennit_model_options *options, struct sennit_error *err)
{
    if (!out || !path)
        return sn_fail(err, SENNIT_INVALID, "out and path must not be NULL");
    struct sennit_model_options o = options ? *options : (struct sennit_model_options){0};
    struct sn_heap heap;
    sn_heap_init(&heap, &o.allocator);
    struct sennit_tokenizer *t = sn_calloc(&heap, SN_USE_MISC, 1, sizeof *t);
    if (!t)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the tokenizer");
    sn_heap_init(&t->own_heap, &o.allocator);
    t->heap = &t->own_heap;
    struct sn_gguf *g;
    sennit_status st = sn_gguf_open(&g, t->heap, path, err);
    if (st == SENNIT_OK) {
        st = sn_vocab_load(&t->t, t->heap, g, o.pre, &o.logger, err);
        if (st != SENNIT_OK)
            sn_error_prefix(err, "%s", path);
        sn_gguf_close(g);
    }
    if (st != SENNIT_OK) {
        sennit_tokenizer_free(t);
        return st;
    }
    *out = t;
    return SENNIT_OK;
}

void sennit_tokenizer_free(struct sennit_tokenizer *t)
{
    if (!t)
        return;
    sn_tokenizer_free(t->t);
    struct sennit_allocator host = t->own_heap.host;
    host.fn(host.ctx, t, sizeof *t, 0);
}

uint32_t sennit_vocab_size(const struct sennit_tokenizer *t)
{
    return (uint32_t)sn_tokenizer_vocab_size(t->t);
}

/* Hands ids over to the caller, on success or failure of the tokenization before. */
static sennit_status hand_over(const struct sennit_tokenizer *t, sennit_status st, struct sn_tokens *ids,
                               const struct sn_tok_report *report, struct sennit_tokens *out,
                               struct sennit_error *err)
{
    if (st == SENNIT_OK)
        st = sn_own_tokens(t->heap, ids->ids, ids->n, out, err);
    if (st == SENNIT_OK) {
        out->n_replaced = report->n_invalid_bytes;
        out->n_dropped = report->n_dropped_bytes;
    }
    sn_tokens_free(ids);
    return st;
}

sennit_status sennit_tokenize(const struct sennit_tokenizer *t, const char *text, size_t n_bytes, uint32_t flags,
                              struct sennit_tokens *out, struct sennit_error *err)
{
    if (!t || !out || (!text && n_bytes))
        return sn_fail(err, SENNIT_INVALID, "tokenizer, text and out must not be NULL");
    if (flags & ~(uint32_t)(SENNIT_TOKENIZE_BOS | SENNIT_TOKENIZE_SPECIAL))
        return sn_fail(err, SENNIT_INVALID, "unknown flags %#x", flags);
    struct sn_tokens ids;
    struct sn_tok_report report = {0};
    sn_tokens_init(&ids, t->heap);
    unsigned f = (flags & SENNIT_TOKENIZE_BOS ? SN_TOK_ADD_BOS : 0u) |
                 (flags & SENNIT_TOKENIZE_SPECIAL ? SN_TOK_PARSE_SPECIAL : 0u);
    sennit_status st = sn_tokenize(t->t, text, n_bytes, f, &ids, &report, err);
    return hand_over(t, st, &ids, &report, out, err);
}

sennit_status sennit_detokenize(const struct sennit_tokenizer *t, const int32_t *ids, size_t n_ids, bool special,
                                struct sennit_text *out, struct sennit_error *err)
{
    if (!t || !out || (!ids && n_ids))
        return sn_fail(err, SENNIT_INVALID, "tokenizer, ids and out must not be NULL");
    struct sn_buf b;
    struct sn_detok d;
    sn_buf_init(&b, t->heap, SN_USE_TEXT, MOST_TEXT);
    sn_detok_init(&d, t->t, !special);
    sennit_status st = SENNIT_OK;
    for (size_t i = 0; st == SENNIT_OK && i < n_ids; i++)
        st = sn_detok_feed(&d, ids[i], &b, err);
    if (st == SENNIT_OK)
        st = sn_detok_flush(&d, &b, err);
    if (st == SENNIT_OK)
        st = sn_own_text(t->heap, b.data ? b.data : "", b.len, out, err);
    sn_buf_free(&b);
    return st;
}

size_t sennit_token_bytes(const struct sennit_tokenizer *t, int32_t id, bool special, char *buf, size_t cap)
{
    const char *text;
    size_t n;
    if (!t || sn_token_text(t->t, id, &text, &n) != SENNIT_OK || (!special && sn_token_is_control(t->t, id)))
        return 0;
    if (buf && n)
        memcpy(buf, text, sn_min_size(n, cap));
    return n;
}

/* ---- templates ------------------------------------------------------------------------------------------------- */

static sennit_status parse_vars(const char *text, json_t **out, struct sennit_error *err)
{
    json_error_t problem;
    json_t *vars = json_loads(text, JSON_ALLOW_NUL, &problem);
    if (!vars && (problem.text[0] == '\0' || json_error_code(&problem) == json_error_out_of_memory))
        return sn_fail(err, SENNIT_NOMEM, "no memory to read the variables");
    if (!vars)
        return sn_fail(err, SENNIT_INVALID, "the variables are not JSON: %s (line %d, column %d)", problem.text,
                       problem.line, problem.column);
    if (!json_is_object(vars)) {
        json_decref(vars);
        return sn_fail(err, SENNIT_INVALID, "the variables must be a JSON object with a `messages` member");
    }
    *out = vars;
    return SENNIT_OK;
}

/* "YYYY-MM-DD[THH:MM[:SS]][Z]" -> seconds since 1970 in UTC. */
static sennit_status parse_time(const char *text, int64_t *out, struct sennit_error *err)
{
    struct tm tm = {0};
    char sep = 'T', rest[2] = "";
    int n = sscanf(text, "%4d-%2d-%2d%c%2d:%2d:%2d%1s", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &sep, &tm.tm_hour,
                   &tm.tm_min, &tm.tm_sec, rest);
    bool shape = (n == 3 || n == 6 || n == 7 || (n == 8 && rest[0] == 'Z')) && (sep == 'T' || sep == ' ');
    if (!shape || tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour < 0 ||
        tm.tm_hour > 23 || tm.tm_min < 0 || tm.tm_min > 59 || tm.tm_sec < 0 || tm.tm_sec > 60)
        return sn_fail(err, SENNIT_INVALID, "'%s' is not a time; write it as 2026-01-31T12:00:00", text);
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *out = (int64_t)timegm(&tm);
    return SENNIT_OK;
}

static sennit_status render_opts(const struct sennit_render_options *o, struct sn_render_opts *out,
                                 struct sennit_error *err)
{
    *out = (struct sn_render_opts){0};
    if (o && o->now)
        return parse_time(o->now, &out->now_unix, err);
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    out->now_unix = (int64_t)now;
    out->utc_offset_s = (int32_t)local.tm_gmtoff;
    return SENNIT_OK;
}

static sennit_status check_length(const struct sennit_render_options *o, const struct sn_buf *text,
                                  struct sennit_error *err)
{
    if (!o || o->most_bytes == 0 || text->len <= o->most_bytes)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_RANGE, "the rendered text has %zu bytes; at most %llu are wanted", text->len,
                   (unsigned long long)o->most_bytes);
}

sennit_status sennit_template_render(const char *template_text, const char *vars_json,
                                     const struct sennit_render_options *options, struct sennit_text *out,
                                     struct sennit_error *err)
{
    if (!template_text || !vars_json || !out)
        return sn_fail(err, SENNIT_INVALID, "template_text, vars_json and out must not be NULL");
    struct sn_render_opts opts;
    SN_TRY(render_opts(options, &opts, err));
    struct sn_heap heap;
    sn_heap_init(&heap, NULL);
    struct sn_template *t = NULL;
    json_t *vars = NULL;
    struct sn_buf b;
    sn_buf_init(&b, &heap, SN_USE_TEXT, MOST_TEXT);
    sennit_status st = sn_template_parse(&t, &heap, template_text, strlen(template_text), err);
    if (st == SENNIT_OK)
        st = parse_vars(vars_json, &vars, err);
    if (st == SENNIT_OK)
        st = sn_template_render(t, vars, &opts, &b, NULL, err);
    if (st == SENNIT_OK)
        st = check_length(options, &b, err);
    if (st == SENNIT_OK)
        st = sn_own_text(&heap, b.data ? b.data : "", b.len, out, err);
    sn_buf_free(&b);
    sn_template_free(t);
    json_decref(vars);
    return st;
}

static sennit_status set_token_var(json_t *vars, const char *name, const struct sn_tokenizer *t, int32_t id)
{
    const char *text = "";
    size_t n = 0;
    if (json_object_get(vars, name))
        return SENNIT_OK;
    if (id >= 0)
        SN_TRY(sn_token_text(t, id, &text, &n));
    return json_object_set_new(vars, name, json_stringn(text, n)) == 0 ? SENNIT_OK : SENNIT_NOMEM;
}

static sennit_status set_defaults(const struct sennit_model *m, json_t *vars, struct sennit_error *err)
{
    sennit_status st = set_token_var(vars, "bos_token", m->vocab.t, m->info.bos_id);
    if (st == SENNIT_OK)
        st = set_token_var(vars, "eos_token", m->vocab.t, m->info.eos_id);
    if (st == SENNIT_OK && !json_object_get(vars, "add_generation_prompt") &&
        json_object_set_new(vars, "add_generation_prompt", json_true()) != 0)
        st = SENNIT_NOMEM;
    return st == SENNIT_OK ? st : sn_fail(err, st, "cannot set the template's own variables");
}

/* One begin token, whether the template wrote it or not. */
static void drop_second_bos(const struct sn_tokenizer *t, struct sn_tokens *ids)
{
    int32_t bos = sn_tokenizer_bos(t);
    if (bos < 0 || ids->n < 2 || ids->ids[0] != bos || ids->ids[1] != bos)
        return;
    memmove(ids->ids, ids->ids + 1, (ids->n - 1) * sizeof *ids->ids);
    ids->n--;
}

static sennit_status tokenize_spans(const struct sennit_model *m, const struct sn_buf *text,
                                    const struct sn_span_list *spans, struct sn_tokens *ids,
                                    struct sn_tok_report *report, struct sennit_error *err)
{
    struct sn_heap *heap = m->vocab.heap;
    struct sn_text_segment *segments = sn_calloc(heap, SN_USE_TEXT, spans->n, sizeof *segments);
    if (!segments && spans->n)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %zu pieces of text", spans->n);
    for (size_t i = 0; i < spans->n; i++) {
        const struct sn_span *s = &spans->items[i];
        segments[i] = (struct sn_text_segment){text->data + s->start, s->end - s->start, s->trusted};
    }
    sennit_status st = sn_tokenize_segments(m->vocab.t, segments, spans->n, SN_TOK_ADD_BOS, ids, report, err);
    sn_free(heap, SN_USE_TEXT, segments, spans->n * sizeof *segments);
    if (st == SENNIT_OK)
        drop_second_bos(m->vocab.t, ids);
    return st;
}

sennit_status sennit_chat_tokenize(const struct sennit_model *m, const char *vars_json,
                                   const struct sennit_render_options *options, struct sennit_tokens *out,
                                   struct sennit_error *err)
{
    if (!m || !vars_json || !out)
        return sn_fail(err, SENNIT_INVALID, "model, vars_json and out must not be NULL");
    if (!m->chat_template)
        return sn_fail(err, SENNIT_NOT_FOUND,
                       "the model file has no chat template (tokenizer.chat_template); give it plain text instead");
    if (!m->parsed_template)
        return sn_fail(err, m->template_error.code, "the model's chat template: %s", m->template_error.message);
    struct sn_render_opts opts;
    SN_TRY(render_opts(options, &opts, err));
    json_t *vars = NULL;
    SN_TRY(parse_vars(vars_json, &vars, err));
    struct sn_buf text;
    struct sn_span_list spans;
    struct sn_tokens ids;
    struct sn_tok_report report = {0};
    sn_buf_init(&text, m->vocab.heap, SN_USE_TEXT, MOST_TEXT);
    sn_span_list_init(&spans, m->vocab.heap);
    sn_tokens_init(&ids, m->vocab.heap);
    sennit_status st = set_defaults(m, vars, err);
    if (st == SENNIT_OK)
        st = sn_template_render(m->parsed_template, vars, &opts, &text, &spans, err);
    if (st == SENNIT_OK)
        st = check_length(options, &text, err);
    if (st == SENNIT_OK)
        st = tokenize_spans(m, &text, &spans, &ids, &report, err);
    sn_buf_free(&text);
    sn_span_list_free(&spans);
    json_decref(vars);
    return hand_over(&m->vocab, st, &ids, &report, out, err);
}
