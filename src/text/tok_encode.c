/* Text to ids.
 *
 * One run works on one contiguous, well-formed text and a list of its trusted spans. It is cut at
 * special tokens (leftmost, then longest); what lies between them goes through the pre-tokenizer as
 * a text of its own, and each word through BPE. All memory of a run is in struct run, so that a
 * tokenizer serves many threads. */
#include "text/tok_internal.h"
#include "text/utf8.h"

/* Trust changes at `end`; spans are in order and cover the text. */
struct span {
    size_t end;
    bool trusted;
};

struct run {
    const struct sn_tokenizer *t;
    struct sn_tokens *out;
    struct sn_tok_report report;
    struct sn_pretok_scratch *pretok;
    struct sn_bpe_scratch bpe;
};

/* ---- token array ---- */

void sn_tokens_init(struct sn_tokens *v, struct sn_heap *heap)
{
    *v = (struct sn_tokens){.heap = heap};
}

sennit_status sn_tokens_push(struct sn_tokens *v, int32_t id)
{
    if (v->n == v->cap) {
        size_t cap = sn_max_size(64, v->cap * 2);
        int32_t *ids =
            sn_realloc(v->heap, SN_USE_TEXT, v->ids, v->cap * sizeof *ids, cap * sizeof *ids);
        if (!ids)
            return SENNIT_NOMEM;
        v->ids = ids;
        v->cap = cap;
    }
    v->ids[v->n++] = id;
    return SENNIT_OK;
}

void sn_tokens_free(struct sn_tokens *v)
{
    sn_free(v->heap, SN_USE_TEXT, v->ids, v->cap * sizeof *v->ids);
    sn_tokens_init(v, v->heap);
}

/* ---- one run ---- */

static sennit_status push(struct run *r, int32_t id, struct sennit_error *err)
{
    if (sn_tokens_push(r->out, id) == SENNIT_OK)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_NOMEM, "no memory for %zu token ids", r->out->n + 1);
}

static sennit_status encode_word(void *ctx, const char *word, size_t n, struct sennit_error *err)
{
    struct run *r = ctx;
    if (r->t->row->ignore_merges) {
        int32_t whole = sn_tok_find_bytes(r->t, word, n);
        if (whole >= 0)
            return push(r, whole, err);
    }
    return sn_bpe_encode(&r->t->bpe, &r->bpe, word, n, r->out, &r->report.n_dropped_bytes, err);
}

static sennit_status encode_plain(struct run *r, const char *text, size_t n,
                                  struct sennit_error *err)
{
    return sn_pretok_split(r->t->pretok, r->pretok, text, n, encode_word, r, err);
}

static sennit_status encode_spans(struct run *r, const char *text, size_t n,
                                  const struct span *span, struct sennit_error *err)
{
    const struct sn_tokenizer *t = r->t;
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        if (!t->special_first[(unsigned char)text[i]]) {
            i++;
            continue;
        }
        while (span->end <= i)
            span++;
        int32_t id = sn_tok_match_special(t, text + i, n - i, span->trusted ? span->end - i : 0);
        if (id < 0) {
            i++;
            continue;
        }
        SN_TRY(encode_plain(r, text + from, i - from, err));
        SN_TRY(push(r, id, err));
        i += t->tokens[id].len;
        from = i;
    }
    return encode_plain(r, text + from, n - from, err);
}

static sennit_status run(const struct sn_tokenizer *t, const char *text, size_t n,
                         const struct span *spans, unsigned flags, struct sn_tokens *out,
                         struct sn_tok_report *report, struct sennit_error *err)
{
    struct run r = {.t = t, .out = out};
    if (report)
        r.report = *report;
    SN_TRY(sn_pretok_scratch_create(&r.pretok, t->pretok, err));
    sennit_status status = SENNIT_OK;
    if (flags & SN_TOK_ADD_BOS && t->add_bos)
        status = push(&r, t->bos, err);
    if (status == SENNIT_OK)
        status = encode_spans(&r, text, n, spans, err);
    if (status == SENNIT_OK && flags & SN_TOK_ADD_EOS && t->add_eos)
        status = push(&r, t->eos, err);
    sn_bpe_scratch_free(&r.bpe, &t->bpe);
    sn_pretok_scratch_free(r.pretok, t->pretok);
    if (status == SENNIT_OK && report)
        *report = r.report;
    return status;
}

static sennit_status append_clean(struct sn_buf *buf, const char *text, size_t n,
                                  struct sn_tok_report *report, struct sennit_error *err)
{
    sennit_status status = sn_utf8_replace(buf, text, n, report ? &report->n_invalid_bytes : NULL);
    if (status == SENNIT_TOO_BIG)
        return sn_fail(err, status, "the text is longer than %zu bytes; split it",
                       SN_TOK_MAX_BYTES);
    if (status != SENNIT_OK)
        return sn_fail(err, status, "no memory to tokenize %zu bytes", n);
    return SENNIT_OK;
}

sennit_status sn_tokenize(const struct sn_tokenizer *t, const char *text, size_t n_bytes,
                          unsigned flags, struct sn_tokens *out, struct sn_tok_report *report,
                          struct sennit_error *err)
{
    if (n_bytes > SN_TOK_MAX_BYTES)
        return sn_fail(err, SENNIT_TOO_BIG, "the text has %zu bytes; one call takes at most %zu",
                       n_bytes, SN_TOK_MAX_BYTES);
    struct span span = {.end = SIZE_MAX, .trusted = (flags & SN_TOK_PARSE_SPECIAL) != 0};
    if (sn_utf8_valid_prefix(text, n_bytes) == n_bytes) {
        span.end = sn_max_size(n_bytes, 1);
        return run(t, text, n_bytes, &span, flags, out, report, err);
    }
    struct sn_buf clean;
    struct sn_tok_report fresh = report ? *report : (struct sn_tok_report){0};
    sn_buf_init(&clean, t->heap, SN_USE_TEXT, SN_TOK_MAX_BYTES);
    sennit_status status = append_clean(&clean, text, n_bytes, &fresh, err);
    span.end = sn_max_size(clean.len, 1);
    if (status == SENNIT_OK)
        status = run(t, clean.data, clean.len, &span, flags, out, &fresh, err);
    sn_buf_free(&clean);
    if (status == SENNIT_OK && report)
        *report = fresh;
    return status;
}

/* Joins the segments in `clean`; neighbours of equal trust become one span. spans has room for
 * n_segments + 1. */
static sennit_status join_segments(const struct sn_text_segment *seg, size_t n_segments,
                                   struct sn_buf *clean, struct span *spans,
                                   struct sn_tok_report *report, struct sennit_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < n_segments; i++) {
        if (seg[i].n_bytes == 0)
            continue;
        SN_TRY(append_clean(clean, seg[i].text, seg[i].n_bytes, report, err));
        if (n > 0 && spans[n - 1].trusted == seg[i].trusted)
            n--;
        spans[n++] = (struct span){clean->len, seg[i].trusted};
    }
    spans[n] = (struct span){SIZE_MAX, false};
    return SENNIT_OK;
}

sennit_status sn_tokenize_segments(const struct sn_tokenizer *t,
                                   const struct sn_text_segment *segments, size_t n_segments,
                                   unsigned flags, struct sn_tokens *out,
                                   struct sn_tok_report *report, struct sennit_error *err)
{
    struct sn_tok_report fresh = report ? *report : (struct sn_tok_report){0};
    struct span *spans = sn_calloc(t->heap, SN_USE_TEXT, n_segments + 1, sizeof *spans);
    if (!spans)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %zu segments", n_segments);
    struct sn_buf clean;
    sn_buf_init(&clean, t->heap, SN_USE_TEXT, SN_TOK_MAX_BYTES);
    sennit_status status = join_segments(segments, n_segments, &clean, spans, &fresh, err);
    if (status == SENNIT_OK)
        status = run(t, clean.data, clean.len, spans, flags, out, &fresh, err);
    sn_buf_free(&clean);
    sn_free(t->heap, SN_USE_TEXT, spans, (n_segments + 1) * sizeof *spans);
    if (status == SENNIT_OK && report)
        *report = fresh;
    return status;
}
