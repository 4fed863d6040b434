/* Creation of a tokenizer from a description of its vocabulary, and lookups in it. */
#include "text/tok_internal.h"
#include "text/utf8.h"

#include <stdlib.h>

enum { MAX_TOKENS = 1 << 24, MAX_SPECIAL_BYTES = 4096 };

/* Ways in which models name the end of an answer or turn. Files often give just one of them as EOS.
 */
static const char *const ending_names[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "<|end_of_turn|>",
    "</s>",
    "<|EOT|>",
    "<end_of_utterance>",
    "<|endofturn|>",
    "[EOS]",
    "[EOT]",
    "<|eot|>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81"
    "of\xE2\x96\x81"
    "sentence\xEF\xBD\x9C>",
};
/* Which of them ends a turn, most specific first. */
static const char *const turn_names[] = {
    "<|eot_id|>",      "<|im_end|>",         "<|end|>",      "<end_of_turn>", "<|eot|>", "<EOT>",
    "<|end_of_turn|>", "<end_of_utterance>", "<|endoftext|>"};

/* ---- byte alphabet ---- */

/* Byte-level vocabularies write each byte as one printable character: the printable ones of Latin-1
 * as themselves, the 68 others as U+0100, U+0101, ... in ascending order. */

static bool stands_for_itself(unsigned c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD);
}

/* The byte of a character of the alphabet, or -1. */
static int alphabet_byte(uint32_t c)
{
    if (c < 0x100)
        return stands_for_itself(c) ? (int)c : -1;
    if (c > 0x143)
        return -1;
    unsigned k =
        c - 0x100; /* the k-th byte that does not stand for itself: 0x00-0x20, 0x7F-0xA0, 0xAD */
    return k <= 0x20 ? (int)k : k <= 0x42 ? (int)(k - 0x21 + 0x7F) : 0xAD;
}

bool sn_tok_decode_name(const char *name, size_t n, char *out, size_t *n_out)
{
    size_t k = 0;
    while (n > 0) {
        size_t len;
        if (sn_utf8_step(name, n, &len) != SN_UTF8_OK)
            return false;
        int byte = alphabet_byte(sn_utf8_code_point(name, len));
        if (byte < 0)
            return false;
        out[k++] = (char)byte;
        name += len;
        n -= len;
    }
    *n_out = k;
    return true;
}

/* ---- tokens ---- */

static bool is_special_type(int type)
{
    return type == SN_TOKEN_CONTROL || type == SN_TOKEN_UNKNOWN || type == SN_TOKEN_USER_DEFINED;
}

static sennit_status grow_blob(struct sn_tokenizer *t, size_t more, struct sennit_error *err)
{
    if (more > UINT32_MAX - t->blob_bytes)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.tokens: the tokens together are longer than 4 GiB");
    size_t need = t->blob_bytes + more;
    if (need <= t->blob_cap)
        return SENNIT_OK;
    size_t cap = sn_max_size(need, sn_max_size(4096, t->blob_cap * 2));
    char *blob = sn_realloc(t->heap, SN_USE_TEXT, t->blob, t->blob_cap, cap);
    if (!blob)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the text of %zu tokens", t->n_tokens);
    t->blob = blob;
    t->blob_cap = cap;
    return SENNIT_OK;
}

static sennit_status add_token(struct sn_tokenizer *t, size_t i, const char *name, size_t n,
                               int type, struct sennit_error *err)
{
    if (!name)
        return sn_fail(err, SENNIT_FORMAT, "tokenizer.ggml.tokens[%zu] is not a string", i);
    if (type < SN_TOKEN_UNDEFINED || type > SN_TOKEN_BYTE)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.token_type[%zu] is %d; known types are 0 to 6", i, type);
    if (is_special_type(type) && n > MAX_SPECIAL_BYTES)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.tokens[%zu] is a special token of %zu bytes; at most %d are"
                       " accepted",
                       i, n, MAX_SPECIAL_BYTES);
    SN_TRY(grow_blob(t, n, err));
    struct sn_token *tok = &t->tokens[i];
    *tok =
        (struct sn_token){.at = (uint32_t)t->blob_bytes, .len = (uint32_t)n, .type = (uint8_t)type};
    char *dest = t->blob + t->blob_bytes;
    size_t len = n;
    if (!is_special_type(type) && sn_tok_decode_name(name, n, dest, &len)) {
        tok->len = (uint32_t)len;
        tok->flags |= SN_TOKEN_BYTES;
    } else if (n > 0) {
        memcpy(dest, name,
               n); /* not in the alphabet: the text is the token, as the reference decodes it */
    }
    t->blob_bytes += tok->len;
    return SENNIT_OK;
}

static sennit_status load_tokens(struct sn_tokenizer *t, const struct sn_vocab_desc *d,
                                 struct sennit_error *err)
{
    if (d->n_tokens == 0 || d->n_tokens > MAX_TOKENS)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.tokens has %zu tokens; 1 to %d are accepted", d->n_tokens,
                       MAX_TOKENS);
    t->n_tokens = d->n_tokens;
    t->tokens = sn_calloc(t->heap, SN_USE_TEXT, d->n_tokens, sizeof *t->tokens);
    if (!t->tokens)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %zu tokens", d->n_tokens);
    SN_TRY(grow_blob(t, 1, err)); /* so that blob is never NULL, even if all tokens are empty */
    for (size_t i = 0; i < d->n_tokens; i++) {
        size_t n = 0;
        const char *name = d->token(d->ctx, i, &n);
        SN_TRY(add_token(t, i, name, n, d->types ? d->types[i] : SN_TOKEN_NORMAL, err));
    }
    return SENNIT_OK;
}

/* ---- lookup by bytes ---- */

static size_t hash_bytes(const char *s, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001B3u;
    return (size_t)(h ^ h >> 29);
}

static bool has_text(const struct sn_tokenizer *t, int32_t id, const char *s, size_t n)
{
    return t->tokens[id].len == n && memcmp(sn_tok_text(t, id), s, n) == 0;
}

static size_t find_slot(const struct sn_tokenizer *t, const char *s, size_t n)
{
    size_t i = hash_bytes(s, n) & (t->n_slots - 1);
    while (t->table[i] >= 0 && !has_text(t, t->table[i], s, n))
        i = (i + 1) & (t->n_slots - 1);
    return i;
}

int32_t sn_tok_find_bytes(const struct sn_tokenizer *t, const char *bytes, size_t n)
{
    return t->table[find_slot(t, bytes, n)];
}

static sennit_status build_table(struct sn_tokenizer *t, struct sennit_error *err)
{
    t->n_slots = 16;
    while (t->n_slots < 2 * t->n_tokens)
        t->n_slots *= 2;
    t->table = sn_alloc(t->heap, SN_USE_TEXT, t->n_slots * sizeof *t->table);
    if (!t->table)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the lookup table of %zu tokens",
                       t->n_tokens);
    memset(t->table, 0xFF, t->n_slots * sizeof *t->table);
    for (size_t i = 0; i < t->n_tokens; i++) {
        const struct sn_token *tok = &t->tokens[i];
        if (!(tok->flags & SN_TOKEN_BYTES) || tok->len == 0)
            continue;
        int32_t *slot = &t->table[find_slot(t, sn_tok_text(t, (int32_t)i), tok->len)];
        if (*slot >= 0)
            return sn_fail(err, SENNIT_FORMAT,
                           "tokenizer.ggml.tokens: tokens %d and %zu have the same text '%.*s'",
                           *slot, i, (int)sn_min_size(tok->len, 64), sn_tok_text(t, (int32_t)i));
        *slot = (int32_t)i;
    }
    return SENNIT_OK;
}

/* ---- special tokens ---- */

static int compare_texts(const struct sn_tokenizer *t, int32_t a, int32_t b)
{
    size_t na = t->tokens[a].len, nb = t->tokens[b].len;
    int c = memcmp(sn_tok_text(t, a), sn_tok_text(t, b), sn_min_size(na, nb));
    return c ? c : na < nb ? -1 : na > nb ? 1 : 0;
}

static int compare_special(const void *a, const void *b, void *ctx)
{
    return compare_texts(ctx, *(const int32_t *)a, *(const int32_t *)b);
}

static sennit_status build_special(struct sn_tokenizer *t, struct sennit_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_tokens; i++)
        n += is_special_type(t->tokens[i].type) && t->tokens[i].len > 0;
    if (n == 0)
        return SENNIT_OK;
    t->special = sn_alloc(t->heap, SN_USE_TEXT, n * sizeof *t->special);
    if (!t->special)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %zu special tokens", n);
    t->n_special = n;
    size_t k = 0;
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (!is_special_type(t->tokens[i].type) || t->tokens[i].len == 0)
            continue;
        t->special[k++] = (int32_t)i;
        t->special_first[(unsigned char)*sn_tok_text(t, (int32_t)i)] = true;
    }
    qsort_r(t->special, n, sizeof *t->special, compare_special, t);
    for (size_t i = 1; i < n; i++)
        if (compare_texts(t, t->special[i - 1], t->special[i]) == 0)
            return sn_fail(err, SENNIT_FORMAT,
                           "tokenizer.ggml.tokens: special tokens %d and %d have the same text",
                           t->special[i - 1], t->special[i]);
    return SENNIT_OK;
}

/* First index in special[lo..hi) whose byte at `depth` is >= c. All of them are longer than depth.
 */
static size_t lower_bound(const struct sn_tokenizer *t, size_t lo, size_t hi, size_t depth,
                          unsigned c)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)sn_tok_text(t, t->special[mid])[depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Narrows the sorted range byte by byte; a token that ends exactly at `depth` sorts first in its
 * range. */
int32_t sn_tok_match_special(const struct sn_tokenizer *t, const char *s, size_t n, size_t trusted)
{
    size_t lo = 0, hi = t->n_special;
    int32_t found = -1;
    for (size_t depth = 0; depth < n && lo < hi; depth++) {
        unsigned c = (unsigned char)s[depth];
        lo = lower_bound(t, lo, hi, depth, c);
        hi = lower_bound(t, lo, hi, depth, c + 1);
        if (lo == hi || t->tokens[t->special[lo]].len != depth + 1)
            continue;
        int32_t id = t->special[lo++];
        if (t->tokens[id].type == SN_TOKEN_USER_DEFINED || depth + 1 <= trusted)
            found = id;
    }
    return found;
}

static int32_t find_special(const struct sn_tokenizer *t, const char *text, size_t n)
{
    int32_t id = sn_tok_match_special(t, text, n, n);
    return id >= 0 && t->tokens[id].len == n ? id : -1;
}

int32_t sn_token_find(const struct sn_tokenizer *t, const char *text, size_t len)
{
    int32_t id = find_special(t, text, len);
    return id >= 0 || len == 0 ? id : sn_tok_find_bytes(t, text, len);
}

/* ---- merges ---- */

/* A part of a merge: by name to a byte-level token. */
static int32_t find_part(const struct sn_tokenizer *t, const char *name, size_t n, char *bytes,
                         size_t *n_bytes)
{
    if (!sn_tok_decode_name(name, n, bytes, n_bytes) || *n_bytes == 0)
        return -1;
    return sn_tok_find_bytes(t, bytes, *n_bytes);
}

/* `buf` has at least n bytes. *skipped counts merges of or into special tokens. */
static sennit_status add_merge(struct sn_tokenizer *t, size_t i, const char *m, size_t n, char *buf,
                               size_t *skipped, struct sennit_error *err)
{
    const char *space = memchr(m, ' ', n);
    size_t n_left = space ? (size_t)(space - m) : 0;
    if (!space || memchr(space + 1, ' ', n - n_left - 1) || n_left == 0 || n_left + 1 == n)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.merges[%zu] '%.*s' is not two tokens with one space between",
                       i, (int)sn_min_size(n, 64), m);
    size_t a = 0, b = 0;
    int32_t left = find_part(t, m, n_left, buf, &a);
    int32_t right = left < 0 ? -1 : find_part(t, space + 1, n - n_left - 1, buf + a, &b);
    if (left < 0 && find_special(t, m, n_left) < 0)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.merges[%zu] '%.*s': its left part is not a token", i,
                       (int)sn_min_size(n, 64), m);
    if (left >= 0 && right < 0 && find_special(t, space + 1, n - n_left - 1) < 0)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.merges[%zu] '%.*s': its right part is not a token", i,
                       (int)sn_min_size(n, 64), m);
    if (left < 0 || right < 0) {
        ++*skipped; /* plain text never gives a special token, so this pair never meets */
        return SENNIT_OK;
    }
    int32_t result = sn_tok_find_bytes(t, buf, a + b);
    if (result >= 0) {
        sn_bpe_set(&t->bpe, i, left, right, result);
        return SENNIT_OK;
    }
    memmove(buf, m, n_left); /* the name of the result, to see whether it is a special token */
    memcpy(buf + n_left, space + 1, n - n_left - 1);
    if (find_special(t, buf, n - 1) < 0)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.merges[%zu] '%.*s': the two parts joined are not a token", i,
                       (int)sn_min_size(n, 64), m);
    ++*skipped; /* plain text must never become a special token */
    return SENNIT_OK;
}

static sennit_status load_merges(struct sn_tokenizer *t, const struct sn_vocab_desc *d,
                                 const struct sennit_logger *log, struct sennit_error *err)
{
    if (d->n_merges > INT32_MAX / 4)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.merges has %zu entries, more than any vocabulary needs",
                       d->n_merges);
    SN_TRY(sn_bpe_init(&t->bpe, t->heap, d->n_merges, err));
    for (int c = 0; c < 256; c++)
        t->bpe.byte_id[c] = sn_tok_find_bytes(t, &(char){(char)c}, 1);
    struct sn_buf buf;
    sn_buf_init(&buf, t->heap, SN_USE_TEXT, SN_TOK_MAX_BYTES);
    sennit_status status = SENNIT_OK;
    size_t skipped = 0;
    for (size_t i = 0; i < d->n_merges && status == SENNIT_OK; i++) {
        size_t n = 0;
        const char *m = d->merge ? d->merge(d->ctx, i, &n) : NULL;
        buf.len = 0;
        if (!m)
            status = sn_fail(err, SENNIT_FORMAT, "tokenizer.ggml.merges[%zu] is not a string", i);
        else if ((status = sn_buf_append(&buf, m, n)) != SENNIT_OK) /* room for n bytes */
            sn_fail(err, status, "tokenizer.ggml.merges[%zu]: no memory for %zu bytes", i, n);
        else
            status = add_merge(t, i, m, n, buf.data, &skipped, err);
    }
    sn_buf_free(&buf);
    if (status == SENNIT_OK && skipped)
        sn_log(
            log, SENNIT_LOG_WARN,
            "tokenizer.ggml.merges: %zu merges have to do with special tokens; they are left out",
            skipped);
    return status;
}

/* ---- ids with a meaning ---- */

static sennit_status check_id(const struct sn_tokenizer *t, const char *field, int32_t id,
                              struct sennit_error *err)
{
    if (id < -1 || (id >= 0 && (size_t)id >= t->n_tokens))
        return sn_fail(err, SENNIT_FORMAT, "tokenizer.ggml.%s is %d; the vocabulary has %zu tokens",
                       field, id, t->n_tokens);
    return SENNIT_OK;
}

static int32_t control_named(const struct sn_tokenizer *t, const char *name)
{
    int32_t id = find_special(t, name, strlen(name));
    return id >= 0 && t->tokens[id].type == SN_TOKEN_CONTROL ? id : -1;
}

static sennit_status set_special_ids(struct sn_tokenizer *t, const struct sn_vocab_desc *d,
                                     struct sennit_error *err)
{
    SN_TRY(check_id(t, "bos_token_id", d->bos, err));
    SN_TRY(check_id(t, "eos_token_id", d->eos, err));
    SN_TRY(check_id(t, "eot_token_id", d->eot, err));
    SN_TRY(check_id(t, "unknown_token_id", d->unk, err));
    SN_TRY(check_id(t, "padding_token_id", d->pad, err));
    t->bos = d->bos;
    t->eos = d->eos;
    t->eot = d->eot;
    for (size_t i = 0; i < SN_ARRAY_LEN(turn_names) && t->eot < 0; i++)
        t->eot = control_named(t, turn_names[i]);
    for (size_t i = 0; i < SN_ARRAY_LEN(ending_names); i++) {
        int32_t id = control_named(t, ending_names[i]);
        if (id >= 0)
            t->tokens[id].flags |= SN_TOKEN_ENDS;
    }
    if (t->eos >= 0)
        t->tokens[t->eos].flags |= SN_TOKEN_ENDS;
    if (t->eot >= 0)
        t->tokens[t->eot].flags |= SN_TOKEN_ENDS;
    t->add_bos = d->add_bos == SN_UNSET ? t->row->add_bos && t->bos >= 0 : d->add_bos == SN_YES;
    t->add_eos = d->add_eos == SN_YES;
    if (t->add_bos && t->bos < 0)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.add_bos_token is true, but bos_token_id is absent");
    if (t->add_eos && t->eos < 0)
        return sn_fail(err, SENNIT_FORMAT,
                       "tokenizer.ggml.add_eos_token is true, but eos_token_id is absent");
    return SENNIT_OK;
}

/* ---- creation ---- */

static sennit_status choose_pretok(struct sn_tokenizer *t, const struct sn_vocab_desc *d,
                                   const char *override, struct sennit_error *err)
{
    char known[256];
    sn_pretok_names(known, sizeof known);
    if (!d->model || strcmp(d->model, "gpt2") != 0)
        return sn_fail(err, SENNIT_UNSUPPORTED,
                       "tokenizer.ggml.model is '%.64s'; this build knows 'gpt2' (byte-level"
                       " BPE) only",
                       d->model ? d->model : "(absent)");
    if (d->add_space_prefix)
        return sn_fail(err, SENNIT_UNSUPPORTED,
                       "tokenizer.ggml.add_space_prefix is true; byte-level BPE supports"
                       " false only");
    const char *tag = override ? override : d->pre;
    if (!tag || !*tag)
        return sn_fail(err, SENNIT_UNSUPPORTED,
                       "the file has no tokenizer.ggml.pre, so how its text is cut into words"
                       " is unknown, and guessing would degrade every answer; name it with --pre "
                       "NAME (one of %s)",
                       known);
    t->row = sn_pretok_find(tag);
    if (t->row)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_UNSUPPORTED,
                   "%s '%.64s' is not a pre-tokenizer that this build knows; if one of these"
                   " is the same, name it with --pre NAME: %s",
                   override ? "--pre" : "tokenizer.ggml.pre", tag, known);
}

static sennit_status build(struct sn_tokenizer *t, const struct sn_vocab_desc *d,
                           const char *override, const struct sennit_logger *log,
                           struct sennit_error *err)
{
    SN_TRY(choose_pretok(t, d, override, err));
    SN_TRY(load_tokens(t, d, err));
    SN_TRY(build_table(t, err));
    SN_TRY(build_special(t, err));
    SN_TRY(load_merges(t, d, log, err));
    SN_TRY(set_special_ids(t, d, err));
    return sn_pretok_create(&t->pretok, t->heap, t->row, true, err);
}

sennit_status sn_tokenizer_create(struct sn_tokenizer **out, struct sn_heap *heap,
                                  const struct sn_vocab_desc *desc, const char *pre_override,
                                  const struct sennit_logger *log, struct sennit_error *err)
{
    if (!desc->token)
        return sn_fail(err, SENNIT_INVALID, "sn_tokenizer_create needs a token callback");
    struct sn_tokenizer *t = sn_calloc(heap, SN_USE_TEXT, 1, sizeof *t);
    if (!t)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a tokenizer");
    t->heap = heap;
    sennit_status status = build(t, desc, pre_override, log, err);
    if (status != SENNIT_OK) {
        sn_tokenizer_free(t);
        return status;
    }
    *out = t;
    return SENNIT_OK;
}

void sn_tokenizer_free(struct sn_tokenizer *t)
{
    if (!t)
        return;
    struct sn_heap *heap = t->heap;
    sn_pretok_free(t->pretok);
    sn_bpe_free(&t->bpe);
    sn_free(heap, SN_USE_TEXT, t->special, t->n_special * sizeof *t->special);
    sn_free(heap, SN_USE_TEXT, t->table, t->n_slots * sizeof *t->table);
    sn_free(heap, SN_USE_TEXT, t->blob, t->blob_cap);
    sn_free(heap, SN_USE_TEXT, t->tokens, t->n_tokens * sizeof *t->tokens);
    sn_free(heap, SN_USE_TEXT, t, sizeof *t);
}

/* ---- questions ---- */

static bool valid(const struct sn_tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_tokens;
}

size_t sn_tokenizer_vocab_size(const struct sn_tokenizer *t)
{
    return t->n_tokens;
}
const char *sn_tokenizer_pre(const struct sn_tokenizer *t)
{
    return t->row->tags;
}
int32_t sn_tokenizer_bos(const struct sn_tokenizer *t)
{
    return t->bos;
}
int32_t sn_tokenizer_eos(const struct sn_tokenizer *t)
{
    return t->eos;
}
int32_t sn_tokenizer_eot(const struct sn_tokenizer *t)
{
    return t->eot;
}
bool sn_tokenizer_adds_bos(const struct sn_tokenizer *t)
{
    return t->add_bos;
}
bool sn_tokenizer_adds_eos(const struct sn_tokenizer *t)
{
    return t->add_eos;
}

sennit_status sn_token_text(const struct sn_tokenizer *t, int32_t id, const char **text,
                            size_t *len)
{
    if (!valid(t, id))
        return SENNIT_RANGE;
    *text = sn_tok_text(t, id);
    *len = t->tokens[id].len;
    return SENNIT_OK;
}

enum sn_token_type sn_token_type_of(const struct sn_tokenizer *t, int32_t id)
{
    return valid(t, id) ? (enum sn_token_type)t->tokens[id].type : SN_TOKEN_UNDEFINED;
}

bool sn_token_is_control(const struct sn_tokenizer *t, int32_t id)
{
    enum sn_token_type type = sn_token_type_of(t, id);
    return type == SN_TOKEN_CONTROL || type == SN_TOKEN_UNKNOWN;
}

bool sn_token_ends(const struct sn_tokenizer *t, int32_t id)
{
    return valid(t, id) && t->tokens[id].flags & SN_TOKEN_ENDS;
}
