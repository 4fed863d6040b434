/* Methods of strings, lists, dictionaries and loops. */
#include "text/template/run.h"

#define ABSENT(v) ((v).type == SN_J_ABSENT)
#define SELF      (c->self.u.s)

static bool text_arg(struct sn_jrun *r, struct sn_jval v, const struct sn_jstr **out)
{
    if (v.type == SN_J_UNDEF)
        return sn_jundef_error(r, v);
    if (v.type != SN_J_STR)
        return sn_jfail(r, SENNIT_INVALID, "a str argument is needed, not a %s", sn_jtype_name(v));
    *out = v.u.s;
    return true;
}

static bool int_arg(struct sn_jrun *r, struct sn_jval v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (ABSENT(v))
        return true;
    if (v.type == SN_J_UNDEF)
        return sn_jundef_error(r, v);
    if (!sn_jis_int(v))
        return sn_jfail(r, SENNIT_INVALID, "an integer argument is needed, not a %s",
                        sn_jtype_name(v));
    *out = sn_jint_of(v);
    return true;
}

static bool absent_or_none(struct sn_jval v)
{
    return ABSENT(v) || v.type == SN_J_NONE;
}

/* ---- stripping ------------------------------------------------------------------------------- */

static bool in_set(const struct sn_jstr *set, uint32_t cp)
{
    if (!set)
        return sn_uni_space(cp);
    for (size_t i = 0; i < set->len;)
        if (sn_uni_next(set->data, set->len, &i) == cp)
            return true;
    return false;
}

static bool strip(struct sn_jrun *r, const struct sn_jcall *c, bool left, bool right,
                  struct sn_jval *out)
{
    const struct sn_jstr *s = SELF, *set = NULL;
    if (!absent_or_none(c->a[0]) && !text_arg(r, c->a[0], &set))
        return false;
    size_t from = 0, to = s->len;
    while (left && from < to) {
        size_t next = from;
        if (!in_set(set, sn_uni_next(s->data, to, &next)))
            break;
        from = next;
    }
    while (right && from < to) {
        size_t start = to - 1, at;
        while (start > from && ((unsigned char)s->data[start] & 0xC0) == 0x80)
            start--;
        at = start;
        if (!in_set(set, sn_uni_next(s->data, to, &at)))
            break;
        to = start;
    }
    if (!sn_jslice_bytes(r, s, from, to, out))
        return false;
    ((struct sn_jstr *)out->u.s)->markup = s->markup; /* made just now, not shared yet */
    return true;
}

static bool m_strip(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return strip(r, c, true, true, out);
}
static bool m_lstrip(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return strip(r, c, true, false, out);
}
static bool m_rstrip(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return strip(r, c, false, true, out);
}

static bool starts(const struct sn_jstr *s, const struct sn_jstr *p)
{
    return p->len <= s->len && (p->len == 0 || memcmp(s->data, p->data, p->len) == 0);
}
static bool ends(const struct sn_jstr *s, const struct sn_jstr *p)
{
    return p->len <= s->len &&
           (p->len == 0 || memcmp(s->data + s->len - p->len, p->data, p->len) == 0);
}

static bool m_removeprefix(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *p = NULL;
    return text_arg(r, c->a[0], &p) &&
           sn_jslice_bytes(r, SELF, starts(SELF, p) ? p->len : 0, SELF->len, out);
}

static bool m_removesuffix(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *p = NULL;
    return text_arg(r, c->a[0], &p) &&
           sn_jslice_bytes(r, SELF, 0, SELF->len - (ends(SELF, p) ? p->len : 0), out);
}

/* ---- searching ------------------------------------------------------------------------------- */

/* The part of self that start and end (a[1], a[2]) leave, as byte offsets; false in *fits when
 * start is behind the end. */
static bool window(struct sn_jrun *r, const struct sn_jcall *c, size_t *from, size_t *to,
                   bool *fits)
{
    int64_t n = (int64_t)SELF->n_chars, start, stop;
    if (!int_arg(r, c->a[1].type == SN_J_NONE ? (struct sn_jval){0} : c->a[1], 0, &start) ||
        !int_arg(r, c->a[2].type == SN_J_NONE ? (struct sn_jval){0} : c->a[2], n, &stop))
        return false;
    start = start < 0 ? (start + n < 0 ? 0 : start + n) : start;
    stop = stop < 0 ? (stop + n < 0 ? 0 : stop + n) : stop > n ? n : stop;
    *fits = start <= stop;
    *from = *fits ? sn_jbyte_of(SELF, (size_t)start) : 0;
    *to = *fits ? sn_jbyte_of(SELF, (size_t)stop) : 0;
    return true;
}

static bool affix(struct sn_jrun *r, const struct sn_jcall *c,
                  bool (*has)(const struct sn_jstr *, const struct sn_jstr *), struct sn_jval *out)
{
    size_t from, to;
    bool fits, yes = false;
    if (!window(r, c, &from, &to, &fits))
        return false;
    const struct sn_jstr part = {.data = SELF->data + from, .len = to - from}, *p = NULL;
    const struct sn_jval *options = c->a[0].type == SN_J_TUPLE ? c->a[0].u.seq->v : c->a;
    size_t n = c->a[0].type == SN_J_TUPLE ? c->a[0].u.seq->n : 1;
    for (size_t i = 0; i < n && !yes; i++) {
        if (!text_arg(r, options[i], &p))
            return false;
        yes = fits && has(&part, p);
    }
    *out = sn_jbool(yes);
    return true;
}

static bool m_startswith(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return affix(r, c, starts, out);
}
static bool m_endswith(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return affix(r, c, ends, out);
}

static bool find(struct sn_jrun *r, const struct sn_jcall *c, bool last, struct sn_jval *out)
{
    const struct sn_jstr *what = NULL;
    size_t from, to, at, found = SIZE_MAX;
    bool fits;
    if (!text_arg(r, c->a[0], &what) || !window(r, c, &from, &to, &fits))
        return false;
    const struct sn_jstr part = {.data = SELF->data, .len = to};
    for (at = from; fits && sn_jfind(&part, at, what, &at); at++) {
        found = at;
        if (!last || at == to)
            break;
    }
    *out = sn_jint(found == SIZE_MAX ? -1 : (int64_t)sn_uni_count(SELF->data, found));
    return true;
}

static bool m_find(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return find(r, c, false, out);
}
static bool m_rfind(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return find(r, c, true, out);
}

/* index and rindex: find and rfind that fail where there is nothing. */
static bool found(struct sn_jrun *r, const struct sn_jcall *c, bool last, struct sn_jval *out)
{
    if (!find(r, c, last, out))
        return false;
    return sn_jint_of(*out) >= 0 || sn_jfail(r, SENNIT_INVALID, "substring not found");
}
static bool m_index(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return found(r, c, false, out);
}
static bool m_rindex(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return found(r, c, true, out);
}

static bool m_count(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *what = NULL;
    size_t from, to, at;
    bool fits;
    int64_t n = 0;
    if (!text_arg(r, c->a[0], &what) || !window(r, c, &from, &to, &fits))
        return false;
    const struct sn_jstr part = {.data = SELF->data, .len = to};
    if (what->len == 0)
        n = fits ? (int64_t)sn_uni_count(SELF->data + from, to - from) + 1 : 0;
    else
        for (at = from; fits && sn_jfind(&part, at, what, &at); at += what->len)
            n++;
    *out = sn_jint(n);
    return true;
}

static bool m_replace(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s = SELF, *old = NULL, *new = NULL;
    int64_t count = 0;
    struct sn_jsb b;
    if (!text_arg(r, c->a[0], &old) || !text_arg(r, c->a[1], &new) ||
        !int_arg(r, c->a[2], -1, &count))
        return false;
    sn_jsb_init(&b, r);
    size_t i = 0, at;
    for (; count != 0 && sn_jfind(s, i, old, &at); count -= count > 0) {
        if (!sn_jsteps(r, 1))
            return false;
        sn_jsb_part(&b, s, i, at);
        sn_jsb_str(&b, new);
        i = at + old->len;
        if (old->len == 0) { /* between all characters */
            size_t next = at;
            if (at == s->len) {
                i = at;
                break;
            }
            (void)sn_uni_next(s->data, s->len, &next);
            sn_jsb_part(&b, s, at, next);
            i = next;
        }
    }
    sn_jsb_part(&b, s, i, s->len);
    return sn_jsb_val(&b, out);
}

/* ---- splitting ------------------------------------------------------------------------------- */

static bool push_part(struct sn_jrun *r, struct sn_jseq *l, const struct sn_jstr *s, size_t from,
                      size_t to)
{
    struct sn_jval v;
    return sn_jsteps(r, 1) && sn_jslice_bytes(r, s, from, to, &v) && sn_jseq_push(r, l, v);
}

static size_t skip(const struct sn_jstr *s, size_t i, bool space)
{
    while (i < s->len) {
        size_t next = i;
        if (sn_uni_space(sn_uni_next(s->data, s->len, &next)) != space)
            break;
        i = next;
    }
    return i;
}

/* The largest index j <= i with only (non-)blanks in [j, i). */
static size_t skip_back(const struct sn_jstr *s, size_t i, bool space)
{
    while (i > 0) {
        size_t start = i - 1, at;
        while (start > 0 && ((unsigned char)s->data[start] & 0xC0) == 0x80)
            start--;
        at = start;
        if (sn_uni_space(sn_uni_next(s->data, s->len, &at)) != space)
            break;
        i = start;
    }
    return i;
}

static bool split_blanks(struct sn_jrun *r, const struct sn_jstr *s, int64_t max, bool back,
                         struct sn_jseq *l)
{
    size_t from = skip(s, 0, true), to = skip_back(s, s->len, true);
    if (!back) {
        for (; from<s->len; max -= max> 0) {
            size_t end = max == 0 ? s->len : skip(s, from, false);
            if (!push_part(r, l, s, from, end))
                return false;
            from = skip(s, end, true);
        }
        return true;
    }
    for (; to > 0 && to > from; max -= max > 0) {
        size_t start = max == 0 ? 0 : skip_back(s, to, false);
        if (!push_part(r, l, s, start, to))
            return false;
        to = skip_back(s, start, true);
    }
    return true;
}

static bool rfind_sep(const struct sn_jstr *s, size_t to, const struct sn_jstr *sep, size_t *at)
{
    for (size_t i = to; i-- > 0;)
        if (to - i >= sep->len && memcmp(s->data + i, sep->data, sep->len) == 0) {
            *at = i;
            return true;
        }
    return false;
}

static bool split_sep(struct sn_jrun *r, const struct sn_jstr *s, const struct sn_jstr *sep,
                      int64_t max, bool back, struct sn_jseq *l)
{
    size_t at, from = 0, to = s->len;
    for (; !back && max != 0 && sn_jfind(s, from, sep, &at); max -= max > 0) {
        if (!push_part(r, l, s, from, at))
            return false;
        from = at + sep->len;
    }
    for (; back && max != 0 && rfind_sep(s, to, sep, &at); max -= max > 0) {
        if (!push_part(r, l, s, at + sep->len, to))
            return false;
        to = at;
    }
    return push_part(r, l, s, from, to);
}

static bool split(struct sn_jrun *r, const struct sn_jcall *c, bool back, struct sn_jval *out)
{
    const struct sn_jstr *sep = NULL;
    int64_t max = 0;
    struct sn_jseq *l = sn_jseq_new(r, 0);
    if (!l || (!absent_or_none(c->a[0]) && !text_arg(r, c->a[0], &sep)) ||
        !int_arg(r, c->a[1], -1, &max))
        return false;
    if (sep && sep->len == 0)
        return sn_jfail(r, SENNIT_INVALID, "split: the separator cannot be empty");
    if (!(sep ? split_sep(r, SELF, sep, max, back, l) : split_blanks(r, SELF, max, back, l)))
        return false;
    for (size_t i = 0; back && i < l->n / 2; i++) {
        struct sn_jval v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
    *out = sn_jseqv(SN_J_LIST, l);
    return true;
}

static bool m_split(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return split(r, c, false, out);
}
static bool m_rsplit(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return split(r, c, true, out);
}

static bool partition(struct sn_jrun *r, const struct sn_jcall *c, bool back, struct sn_jval *out)
{
    const struct sn_jstr *sep = NULL;
    size_t at = 0;
    struct sn_jseq *l = sn_jseq_new(r, 3);
    if (!l || !text_arg(r, c->a[0], &sep))
        return false;
    if (sep->len == 0)
        return sn_jfail(r, SENNIT_INVALID, "partition: the separator cannot be empty");
    bool found = back ? rfind_sep(SELF, SELF->len, sep, &at) : sn_jfind(SELF, 0, sep, &at);
    size_t a = found ? at : back ? 0 : SELF->len, b = found ? at + sep->len : a;
    if (!push_part(r, l, SELF, 0, a) || !push_part(r, l, SELF, a, b) ||
        !push_part(r, l, SELF, b, SELF->len))
        return false;
    *out = sn_jseqv(SN_J_TUPLE, l);
    return true;
}

static bool m_partition(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return partition(r, c, false, out);
}
static bool m_rpartition(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return partition(r, c, true, out);
}

static bool m_splitlines(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s = SELF;
    bool keep = false;
    struct sn_jseq *l = sn_jseq_new(r, 0);
    if (!l || (!ABSENT(c->a[0]) && !sn_jtruth(r, c->a[0], &keep)))
        return false;
    for (size_t from = 0, i = 0; i < s->len;) {
        size_t at = i;
        uint32_t cp = sn_uni_next(s->data, s->len, &i);
        bool brk = sn_uni_linebreak(cp);
        if (brk && cp == '\r' && i < s->len && s->data[i] == '\n')
            i++;
        if (!brk && i < s->len)
            continue;
        if (!push_part(r, l, s, from, brk && !keep ? at : i))
            return false;
        from = i;
    }
    *out = sn_jseqv(SN_J_LIST, l);
    return true;
}

static bool m_join(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval *items;
    size_t n;
    struct sn_jsb b;
    if (c->a[0].type == SN_J_UNDEF)
        return sn_jundef_error(r, c->a[0]);
    if (!sn_jiter(r, c->a[0], &items, &n))
        return false;
    sn_jsb_init(&b, r);
    for (size_t i = 0; i < n; i++) {
        if (items[i].type != SN_J_STR)
            return sn_jfail(r, SENNIT_INVALID,
                            "join: item %zu is a %s, not a str; use the filter |join", i,
                            sn_jtype_name(items[i]));
        if (i)
            sn_jsb_str(&b, SELF);
        sn_jsb_str(&b, items[i].u.s);
    }
    return sn_jsb_val(&b, out);
}

/* ---- case and classes
 * ------------------------------------------------------------------------------------------- */

static bool m_upper(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return sn_jcase(r, SELF, SN_UPPER, SN_UPPER, false, out);
}
static bool m_lower(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return sn_jcase(r, SELF, SN_LOWER, SN_LOWER, false, out);
}
static bool m_title(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return sn_jcase(r, SELF, SN_TITLE, SN_LOWER, true, out);
}
static bool m_capitalize(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return sn_jcase(r, SELF, SN_TITLE, SN_LOWER, false, out);
}

static bool m_swapcase(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jsb b;
    uint32_t to[3];
    sn_jsb_init(&b, r);
    for (size_t i = 0; i < SELF->len;) {
        size_t at = i, n;
        uint32_t cp = sn_uni_next(SELF->data, SELF->len, &i);
        n = sn_uni_case(SN_LOWER, cp, to);
        if (n == 1 && to[0] == cp)
            n = sn_uni_case(SN_UPPER, cp, to);
        for (size_t k = 0; k < n; k++)
            sn_jsb_char(&b, to[k], sn_jtrust(SELF, at));
    }
    return sn_jsb_val(&b, out);
}

static bool all_are(const struct sn_jstr *s, bool (*is)(uint32_t), struct sn_jval *out)
{
    bool yes = s->len > 0;
    for (size_t i = 0; yes && i < s->len;)
        yes = is(sn_uni_next(s->data, s->len, &i));
    *out = sn_jbool(yes);
    return true;
}

static bool m_isspace(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return (void)r, all_are(SELF, sn_uni_space, out);
}
static bool m_isalpha(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return (void)r, all_are(SELF, sn_uni_alpha, out);
}
static bool m_isalnum(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return (void)r, all_are(SELF, sn_uni_alnum, out);
}
static bool m_isdigit(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return (void)r, all_are(SELF, sn_uni_digit, out);
}

static bool case_test(struct sn_jrun *r, const struct sn_jcall *c, const char *name,
                      struct sn_jval *out)
{
    struct sn_jstr key = {.data = name, .len = strlen(name)};
    struct sn_jcall call = {.self = c->self};
    return sn_jbuiltin_call(r, sn_jtest_find(&key), &call, out);
}

static bool m_islower(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return case_test(r, c, "lower", out);
}
static bool m_isupper(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return case_test(r, c, "upper", out);
}

/* ---- padding --------------------------------------------------------------------------------- */

/* Puts `left` of the missing characters in front; a[1] is the one to fill with. */
static bool pad(struct sn_jrun *r, const struct sn_jcall *c, int where, struct sn_jval *out)
{
    int64_t width = 0, n = (int64_t)SELF->n_chars;
    const struct sn_jstr space = {.data = " ", .len = 1, .n_chars = 1, .trusted = true},
                         *fill = &space;
    struct sn_jsb b;
    if (!int_arg(r, c->a[0], 0, &width) || (!ABSENT(c->a[1]) && !text_arg(r, c->a[1], &fill)))
        return false;
    if (fill->n_chars != 1)
        return sn_jfail(r, SENNIT_INVALID, "the character to fill with must be exactly one");
    int64_t missing = width > n ? width - n : 0, left = where < 0 ? missing
                                                        : where > 0
                                                            ? 0
                                                            : missing / 2 + (missing & width & 1);
    if (!sn_jsteps(r, (uint64_t)missing))
        return false;
    sn_jsb_init(&b, r);
    for (int64_t i = 0; i < left; i++)
        sn_jsb_str(&b, fill);
    sn_jsb_str(&b, SELF);
    for (int64_t i = left; i < missing; i++)
        sn_jsb_str(&b, fill);
    return sn_jsb_val(&b, out);
}

static bool m_center(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return pad(r, c, 0, out);
}
static bool m_rjust(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return pad(r, c, -1, out);
}
static bool m_ljust(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return pad(r, c, 1, out);
}

static bool m_zfill(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    int64_t width = 0, n = (int64_t)SELF->n_chars;
    struct sn_jsb b;
    if (!int_arg(r, c->a[0], 0, &width) || !sn_jsteps(r, width > n ? (uint64_t)(width - n) : 0))
        return false;
    size_t sign = SELF->len && (SELF->data[0] == '-' || SELF->data[0] == '+');
    sn_jsb_init(&b, r);
    sn_jsb_part(&b, SELF, 0, sign);
    for (int64_t i = n; i < width; i++)
        sn_jsb_text(&b, "0");
    sn_jsb_part(&b, SELF, sign, SELF->len);
    return sn_jsb_val(&b, out);
}

static const struct sn_jbuiltin str_methods[] = {
    {"capitalize", m_capitalize, "", 0},
    {"center", m_center, "width fillchar", 1},
    {"count", m_count, "sub start end", 1},
    {"endswith", m_endswith, "suffix start end", 1},
    {"find", m_find, "sub start end", 1},
    {"format", sn_jformat, NULL, 0},
    {"index", m_index, "sub start end", 1},
    {"isalnum", m_isalnum, "", 0},
    {"isalpha", m_isalpha, "", 0},
    {"isdecimal", m_isdigit, "", 0},
    {"isdigit", m_isdigit, "", 0},
    {"islower", m_islower, "", 0},
    {"isnumeric", m_isdigit, "", 0},
    {"isspace", m_isspace, "", 0},
    {"isupper", m_isupper, "", 0},
    {"join", m_join, "iterable", 1},
    {"ljust", m_ljust, "width fillchar", 1},
    {"lower", m_lower, "", 0},
    {"lstrip", m_lstrip, "chars", 0},
    {"partition", m_partition, "sep", 1},
    {"removeprefix", m_removeprefix, "prefix", 1},
    {"removesuffix", m_removesuffix, "suffix", 1},
    {"replace", m_replace, "old new count", 2},
    {"rfind", m_rfind, "sub start end", 1},
    {"rindex", m_rindex, "sub start end", 1},
    {"rjust", m_rjust, "width fillchar", 1},
    {"rpartition", m_rpartition, "sep", 1},
    {"rsplit", m_rsplit, "sep maxsplit", 0},
    {"rstrip", m_rstrip, "chars", 0},
    {"split", m_split, "sep maxsplit", 0},
    {"splitlines", m_splitlines, "keepends", 0},
    {"startswith", m_startswith, "prefix start end", 1},
    {"strip", m_strip, "chars", 0},
    {"swapcase", m_swapcase, "", 0},
    {"title", m_title, "", 0},
    {"upper", m_upper, "", 0},
    {"zfill", m_zfill, "width", 1},
};
const struct sn_jtable sn_jmethods_str = {str_methods, SN_ARRAY_LEN(str_methods)};

/* ---- lists, dictionaries, loops
 * ----------------------------------------------------------------------------------- */

static bool l_count(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->self.u.seq->n; i++) {
        bool same;
        if (!sn_jequal(r, c->self.u.seq->v[i], c->a[0], &same))
            return false;
        n += same;
    }
    *out = sn_jint(n);
    return true;
}

static bool l_index(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    for (size_t i = 0; i < c->self.u.seq->n; i++) {
        bool same;
        if (!sn_jequal(r, c->self.u.seq->v[i], c->a[0], &same))
            return false;
        if (same) {
            *out = sn_jint((int64_t)i);
            return true;
        }
    }
    return sn_jfail(r, SENNIT_INVALID, "index: the value is not in the list");
}

static const struct sn_jbuiltin seq_methods[] = {{"count", l_count, "value", 1},
                                                 {"index", l_index, "value", 1}};
const struct sn_jtable sn_jmethods_seq = {seq_methods, SN_ARRAY_LEN(seq_methods)};

static bool d_get(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval *v;
    if (!sn_jdict_get(r, c->self.u.dict, c->a[0], &v))
        return false;
    *out = v ? *v : ABSENT(c->a[1]) ? sn_jnone() : c->a[1];
    return true;
}

static bool view(struct sn_jrun *r, const struct sn_jdict *d, char kind, struct sn_jval *out)
{
    struct sn_jseq *s = sn_jseq_new(r, d->n);
    if (!s || !sn_jsteps(r, d->n))
        return false;
    for (size_t i = 0; i < d->n; i++) {
        struct sn_jval v = kind == 'k' ? d->keys[i] : d->vals[i];
        if (kind == 'i') {
            struct sn_jseq *pair = sn_jseq_new(r, 2);
            if (!pair || !sn_jseq_push(r, pair, d->keys[i]) || !sn_jseq_push(r, pair, d->vals[i]))
                return false;
            v = sn_jseqv(SN_J_TUPLE, pair);
        }
        s->v[s->n++] = v;
    }
    *out = sn_jseqv(SN_J_VIEW, s);
    out->aux = (uint32_t)kind;
    return true;
}

static bool d_keys(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return view(r, c->self.u.dict, 'k', out);
}
static bool d_values(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return view(r, c->self.u.dict, 'v', out);
}
static bool d_items(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return view(r, c->self.u.dict, 'i', out);
}

/* Dictionaries never change after they were made, so a copy is the same one. */
static bool d_copy(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    (void)r;
    *out = c->self;
    return true;
}

static const struct sn_jbuiltin dict_methods[] = {{"copy", d_copy, "", 0},
                                                  {"get", d_get, "key default", 1},
                                                  {"items", d_items, "", 0},
                                                  {"keys", d_keys, "", 0},
                                                  {"values", d_values, "", 0}};
const struct sn_jtable sn_jmethods_dict = {dict_methods, SN_ARRAY_LEN(dict_methods)};

static bool o_cycle(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    if (c->n_pos == 0)
        return sn_jfail(r, SENNIT_INVALID, "loop.cycle: nothing to cycle through");
    *out = c->pos[c->self.u.loop->index0 % c->n_pos];
    return true;
}

static bool o_changed(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jloop *l = c->self.u.loop;
    struct sn_jseq *now = sn_jseq_new(r, c->n_pos);
    bool same = false;
    if (!now)
        return false;
    for (size_t i = 0; i < c->n_pos; i++)
        now->v[now->n++] = c->pos[i];
    struct sn_jval v = sn_jseqv(SN_J_TUPLE, now);
    if (l->changed.type != SN_J_ABSENT && !sn_jequal(r, l->changed, v, &same))
        return false;
    l->changed = v;
    *out = sn_jbool(!same);
    return true;
}

static const struct sn_jbuiltin loop_methods[] = {{"changed", o_changed, NULL, 0},
                                                  {"cycle", o_cycle, NULL, 0}};
const struct sn_jtable sn_jmethods_loop = {loop_methods, SN_ARRAY_LEN(loop_methods)};
