/* Strings: building, cutting and joining them without losing which byte is trusted. */
#include "text/template/run.h"

/* ---- builder --------------------------------------------------------------------------------- */

void sn_jsb_init(struct sn_jsb *b, struct sn_jrun *r)
{
    *b = (struct sn_jsb){.r = r, .trusted = true};
}

static bool sb_reserve(struct sn_jsb *b, size_t more)
{
    size_t need;
    if (b->failed)
        return false;
    if (!sn_add_overflows(b->len, more, &need) && need <= b->cap)
        return true;
    size_t cap = sn_max_size(need, b->cap ? b->cap * 2 : 48);
    char *data = sn_jnew(b->r, cap, 1);
    uint8_t *mask = data && b->mask ? sn_jnew(b->r, cap, 1) : NULL;
    if (!data || (b->mask && !mask)) {
        b->failed = true;
        return false;
    }
    if (b->len)
        memcpy(data, b->data, b->len);
    if (b->mask)
        memcpy(mask, b->mask, b->len);
    b->data = data;
    b->mask = mask;
    b->cap = cap;
    return true;
}

/* Makes room for n bytes whose trust is `trusted`, or differs byte by byte (mixed). */
static bool sb_prepare(struct sn_jsb *b, size_t n, bool trusted, bool mixed)
{
    if (!sb_reserve(b, n))
        return false;
    if (b->len == 0 && !b->mask && !mixed)
        b->trusted = trusted;
    if (!b->mask && (mixed || trusted != b->trusted)) {
        b->mask = sn_jnew(b->r, b->cap, 1);
        if (!b->mask) {
            b->failed = true;
            return false;
        }
        memset(b->mask, b->trusted, b->len);
    }
    return true;
}

void sn_jsb_bytes(struct sn_jsb *b, const char *data, size_t n, bool trusted)
{
    if (n == 0 || !sb_prepare(b, n, trusted, false))
        return;
    memcpy(b->data + b->len, data, n);
    if (b->mask)
        memset(b->mask + b->len, trusted, n);
    b->len += n;
}

void sn_jsb_text(struct sn_jsb *b, const char *z)
{
    sn_jsb_bytes(b, z, strlen(z), true);
}

void sn_jsb_part(struct sn_jsb *b, const struct sn_jstr *s, size_t from, size_t to)
{
    if (from >= to)
        return;
    if (!s->mask) {
        sn_jsb_bytes(b, s->data + from, to - from, s->trusted);
        return;
    }
    if (!sb_prepare(b, to - from, false, true))
        return;
    memcpy(b->data + b->len, s->data + from, to - from);
    memcpy(b->mask + b->len, s->mask + from, to - from);
    b->len += to - from;
}

void sn_jsb_str(struct sn_jsb *b, const struct sn_jstr *s)
{
    sn_jsb_part(b, s, 0, s->len);
}

void sn_jsb_char(struct sn_jsb *b, uint32_t cp, bool trusted)
{
    char utf8[4];
    sn_jsb_bytes(b, utf8, sn_uni_put(utf8, cp), trusted);
}

bool sn_jsb_done(struct sn_jsb *b, const struct sn_jstr **out)
{
    struct sn_jstr *s = b->failed ? NULL : sn_jnew(b->r, 1, sizeof *s);
    if (!s)
        return false;
    *s = (struct sn_jstr){
        .data = b->data ? b->data : "", .mask = b->mask, .len = b->len, .trusted = b->trusted};
    s->n_chars = sn_uni_count(s->data, s->len);
    *out = s;
    return true;
}

bool sn_jsb_val(struct sn_jsb *b, struct sn_jval *out)
{
    const struct sn_jstr *s;
    if (!sn_jsb_done(b, &s))
        return false;
    *out = sn_jstrv(s);
    return true;
}

/* ---- cutting --------------------------------------------------------------------------------- */

bool sn_jslice_bytes(struct sn_jrun *r, const struct sn_jstr *s, size_t from, size_t to,
                     struct sn_jval *out)
{
    struct sn_jstr *part = sn_jnew(r, 1, sizeof *part);
    if (!part)
        return false;
    *part = (struct sn_jstr){.data = s->data + from, .len = to - from, .trusted = s->trusted};
    part->mask = s->mask ? s->mask + from : NULL;
    part->n_chars = s->n_chars == s->len ? part->len : sn_uni_count(part->data, part->len);
    *out = sn_jstrv(part);
    return true;
}

size_t sn_jbyte_of(const struct sn_jstr *s, size_t i_char)
{
    if (i_char >= s->n_chars)
        return s->len;
    if (s->n_chars == s->len)
        return i_char;
    size_t i = 0;
    for (; i_char > 0; i_char--)
        (void)sn_uni_next(s->data, s->len, &i);
    return i;
}

bool sn_jlit(struct sn_jrun *r, const char *z, struct sn_jval *out)
{
    struct sn_jsb b;
    sn_jsb_init(&b, r);
    sn_jsb_text(&b, z);
    return sn_jsb_val(&b, out);
}

bool sn_jfind(const struct sn_jstr *s, size_t from, const struct sn_jstr *what, size_t *at)
{
    if (from > s->len || what->len > s->len - from)
        return false;
    if (what->len == 0) {
        *at = from;
        return true;
    }
    const char *p = memmem(s->data + from, s->len - from, what->data, what->len);
    if (p)
        *at = (size_t)(p - s->data);
    return p != NULL;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* A buffer that several strings share: each one is a prefix of it. The string that ends where the
 * buffer's content ends may be extended in place, which makes `x = x + y` in a loop linear. */
struct sn_jgrow {
    char *data;
    uint8_t *mask;
    size_t len, cap;
};

static void copy_in(struct sn_jgrow *g, const struct sn_jstr *s)
{
    if (s->len == 0)
        return;
    memcpy(g->data + g->len, s->data, s->len);
    if (s->mask)
        memcpy(g->mask + g->len, s->mask, s->len);
    else
        memset(g->mask + g->len, s->trusted, s->len);
    g->len += s->len;
}

static struct sn_jgrow *grow_for(struct sn_jrun *r, const struct sn_jstr *a, size_t total)
{
    struct sn_jgrow *g = a->grow;
    if (g && g->len == a->len && g->cap >= total)
        return g;
    size_t cap = total < 128 ? total : total * 2;
    g = sn_jnew(r, 1, sizeof *g);
    if (!g || !(g->data = sn_jnew(r, cap, 1)) || !(g->mask = sn_jnew(r, cap, 1)))
        return NULL;
    g->cap = cap;
    copy_in(g, a);
    return g;
}

bool sn_jescape(struct sn_jrun *r, const struct sn_jstr *s, const struct sn_jstr **out)
{
    struct sn_jsb b;
    sn_jsb_init(&b, r);
    for (size_t i = 0; i < s->len; i++) {
        const char *to = s->data[i] == '&'    ? "&amp;"
                         : s->data[i] == '<'  ? "&lt;"
                         : s->data[i] == '>'  ? "&gt;"
                         : s->data[i] == '\'' ? "&#39;"
                         : s->data[i] == '"'  ? "&#34;"
                                              : NULL;
        if (to)
            sn_jsb_bytes(&b, to, strlen(to), sn_jtrust(s, i));
        else
            sn_jsb_part(&b, s, i, i + 1);
    }
    return sn_jsb_done(&b, out);
}

bool sn_jconcat(struct sn_jrun *r, const struct sn_jstr *a, const struct sn_jstr *b,
                const struct sn_jstr **out)
{
    const struct sn_jstr *only = a->len == 0 ? b : b->len == 0 ? a : NULL;
    if (only && !only->markup) {
        *out = only;
        return true;
    }
    size_t total;
    if (sn_add_overflows(a->len, b->len, &total))
        return sn_jnomem(r);
    struct sn_jgrow *g = grow_for(r, a, total);
    struct sn_jstr *s = g ? sn_jnew(r, 1, sizeof *s) : NULL;
    if (!s)
        return false;
    copy_in(g, b);
    *s = (struct sn_jstr){.data = g->data,
                          .mask = g->mask,
                          .len = total,
                          .n_chars = a->n_chars + b->n_chars,
                          .grow = g};
    if (!a->mask && !b->mask && a->trusted == b->trusted) {
        s->mask = NULL;
        s->trusted = a->trusted;
    }
    *out = s;
    return true;
}

/* ---- case ------------------------------------------------------------------------------------ */

/* A capital sigma at the end of a word lowers to the final form. */
static bool final_sigma(const struct sn_jstr *s, size_t at, size_t next, uint32_t before)
{
    size_t i = next;
    uint32_t after = i < s->len ? sn_uni_next(s->data, s->len, &i) : 0;
    return at > 0 && sn_uni_alpha(before) && !(after && sn_uni_alpha(after));
}

/* The first letter of the text, or of each word, takes `first`; the others `rest`. */
bool sn_jcase(struct sn_jrun *r, const struct sn_jstr *s, enum sn_case first, enum sn_case rest,
              bool per_word, struct sn_jval *out)
{
    struct sn_jsb b;
    sn_jsb_init(&b, r);
    uint32_t before = 0, to[3];
    bool in_word = false;
    for (size_t i = 0; i < s->len;) {
        size_t at = i;
        uint32_t cp = sn_uni_next(s->data, s->len, &i);
        enum sn_case mode = in_word ? rest : first;
        size_t n = sn_uni_case(mode, cp, to);
        if (mode == SN_LOWER && cp == 0x3A3 && final_sigma(s, at, i, before))
            to[0] = 0x3C2;
        for (size_t k = 0; k < n; k++)
            sn_jsb_char(&b, to[k], sn_jtrust(s, at));
        in_word = !per_word || sn_uni_alpha(cp);
        before = cp;
    }
    return sn_jsb_val(&b, out);
}
