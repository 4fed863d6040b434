/* Ids to text, one token at a time, whole characters only. */
#include "text/tok_internal.h"
#include "text/utf8.h"

void sn_detok_init(struct sn_detok *d, const struct sn_tokenizer *t, bool skip_control)
{
    *d = (struct sn_detok){.t = t, .skip_control = skip_control};
}

static sennit_status out_failed(sennit_status status, struct sennit_error *err)
{
    if (status == SENNIT_OK)
        return status;
    return sn_fail(err, status,
                   status == SENNIT_NOMEM ? "no memory for decoded text"
                                          : "decoded text is too long");
}

/* Puts bytes of s behind the tail until the tail is decided. Returns how many bytes of s were
 * taken. */
static sennit_status settle_tail(struct sn_detok *d, const char *s, size_t n, size_t *taken,
                                 struct sn_buf *out)
{
    *taken = 0;
    while (d->n_tail > 0 && *taken < n) {
        d->tail[d->n_tail] = s[*taken];
        size_t len;
        enum sn_utf8_kind kind = sn_utf8_step(d->tail, (size_t)d->n_tail + 1, &len);
        if (kind == SN_UTF8_BAD) { /* the new byte does not belong: it starts something else */
            SN_TRY(sn_buf_append(out, SN_UTF8_REPLACEMENT, 3));
            d->n_tail = 0;
            return SENNIT_OK;
        }
        if (kind == SN_UTF8_OK)
            SN_TRY(sn_buf_append(out, d->tail, len));
        ++*taken;
        d->n_tail = kind == SN_UTF8_OK ? 0 : (unsigned char)(d->n_tail + 1);
    }
    return SENNIT_OK;
}

static sennit_status feed_bytes(struct sn_detok *d, const char *s, size_t n, struct sn_buf *out)
{
    size_t taken;
    SN_TRY(settle_tail(d, s, n, &taken, out));
    s += taken;
    n -= taken;
    while (n > 0) {
        size_t good = sn_utf8_valid_prefix(s, n);
        SN_TRY(sn_buf_append(out, s, good));
        s += good;
        n -= good;
        if (n == 0)
            break;
        size_t len;
        if (sn_utf8_step(s, n, &len) == SN_UTF8_SHORT) {
            memcpy(d->tail, s, n);
            d->n_tail = (unsigned char)n;
            break;
        }
        SN_TRY(sn_buf_append(out, SN_UTF8_REPLACEMENT, 3));
        s += len;
        n -= len;
    }
    return SENNIT_OK;
}

sennit_status sn_detok_feed(struct sn_detok *d, int32_t id, struct sn_buf *out,
                            struct sennit_error *err)
{
    const char *text;
    size_t n;
    if (sn_token_text(d->t, id, &text, &n) != SENNIT_OK)
        return sn_fail(err, SENNIT_RANGE, "token id %d is outside of the vocabulary of %zu", id,
                       d->t->n_tokens);
    if (d->skip_control && sn_token_is_control(d->t, id))
        return SENNIT_OK;
    return out_failed(feed_bytes(d, text, n, out), err);
}

sennit_status sn_detok_flush(struct sn_detok *d, struct sn_buf *out, struct sennit_error *err)
{
    if (d->n_tail == 0)
        return SENNIT_OK;
    d->n_tail = 0;
    return out_failed(sn_buf_append(out, SN_UTF8_REPLACEMENT, 3), err);
}
