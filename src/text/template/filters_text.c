/* Filters that give text or a number. */
#include "text/template/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ABSENT(v) ((v).type == SN_J_ABSENT)

static bool self_text(struct sn_jrun *r, const struct sn_jcall *c, const struct sn_jstr **s)
{
    return sn_jstr_of(r, c->self, s);
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

static bool method(struct sn_jrun *r, const char *name, const struct sn_jstr *self,
                   const struct sn_jval *args, size_t n, struct sn_jval *out)
{
    struct sn_jstr key = {.data = name, .len = strlen(name)};
    struct sn_jcall c = {.self = sn_jstrv(self), .pos = args, .n_pos = n};
    return sn_jbuiltin_call(r, sn_jtable_find(&sn_jmethods_str, &key), &c, out);
}

static bool f_case(struct sn_jrun *r, const struct sn_jcall *c, enum sn_case first,
                   enum sn_case rest, struct sn_jval *out)
{
    const struct sn_jstr *s;
    return self_text(r, c, &s) && sn_jcase(r, s, first, rest, false, out);
}

static bool f_upper(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return f_case(r, c, SN_UPPER, SN_UPPER, out);
}
static bool f_lower(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return f_case(r, c, SN_LOWER, SN_LOWER, out);
}
static bool f_capitalize(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return f_case(r, c, SN_TITLE, SN_LOWER, out);
}

/* Words here are split at blanks and ([{< and -, unlike str.title's. */
static bool f_title(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    struct sn_jsb b;
    if (!self_text(r, c, &s))
        return false;
    sn_jsb_init(&b, r);
    for (size_t i = 0; i < s->len;) {
        size_t from = i, to;
        struct sn_jval head, word;
        for (bool split = false; i < s->len; i = to) {
            to = i;
            uint32_t cp = sn_uni_next(s->data, s->len, &to);
            split = sn_uni_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
            if (split)
                break;
        }
        if (i > from) {
            to = from;
            (void)sn_uni_next(s->data, s->len, &to);
            if (!sn_jslice_bytes(r, s, from, to, &head) ||
                !sn_jcase(r, head.u.s, SN_UPPER, SN_UPPER, false, &head) ||
                !sn_jslice_bytes(r, s, to, i, &word) ||
                !sn_jcase(r, word.u.s, SN_LOWER, SN_LOWER, false, &word))
                return false;
            sn_jsb_str(&b, head.u.s);
            sn_jsb_str(&b, word.u.s);
        }
        if (i < s->len) {
            from = i;
            (void)sn_uni_next(s->data, s->len, &i);
            sn_jsb_part(&b, s, from, i);
        }
    }
    return sn_jsb_val(&b, out);
}

static bool f_trim(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    return self_text(r, c, &s) && method(r, "strip", s, c->a, ABSENT(c->a[0]) ? 0 : 1, out);
}

static bool f_string(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    if (!self_text(r, c, &s))
        return false;
    *out = sn_jstrv(s);
    return true;
}

static bool f_safe(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    struct sn_jstr *copy;
    if (!self_text(r, c, &s) || !(copy = sn_jnew(r, 1, sizeof *copy)))
        return false;
    *copy = *s;
    copy->markup = true;
    *out = sn_jstrv(copy);
    return true;
}

static bool f_replace(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s, *old, *new;
    struct sn_jval args[3];
    if (!self_text(r, c, &s) || !sn_jstr_of(r, c->a[0], &old) || !sn_jstr_of(r, c->a[1], &new))
        return false;
    args[0] = sn_jstrv(old);
    args[1] = sn_jstrv(new);
    args[2] = ABSENT(c->a[2]) || c->a[2].type == SN_J_NONE ? sn_jint(-1) : c->a[2];
    return method(r, "replace", s, args, 3, out);
}

static bool f_default(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    bool truthy = true, boolean = false;
    if ((!ABSENT(c->a[1]) && !sn_jtruth(r, c->a[1], &boolean)) ||
        (boolean && !sn_jtruth(r, c->self, &truthy)))
        return false;
    *out = c->self;
    if (c->self.type != SN_J_UNDEF && truthy)
        return true;
    *out = c->a[0];
    return !ABSENT(c->a[0]) || sn_jlit(r, "", out);
}

static bool f_length(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    int64_t n = 0;
    bool ok = sn_jlength(r, c->self, &n);
    *out = sn_jint(n);
    return ok;
}

static bool f_wordcount(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    int64_t n = 0;
    bool in_word = false;
    if (!self_text(r, c, &s))
        return false;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp = sn_uni_next(s->data, s->len, &i);
        bool word = cp == '_' || sn_uni_alnum(cp);
        n += word && !in_word;
        in_word = word;
    }
    *out = sn_jint(n);
    return true;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Text without surrounding blanks and without underscores between digits; false when it is no ASCII
 * number. */
static bool number_text(const struct sn_jstr *s, char *buf, size_t size)
{
    size_t from = 0, to = s->len, n = 0;
    while (from < to && (s->data[from] == ' ' || (s->data[from] >= 9 && s->data[from] <= 13)))
        from++;
    while (to > from && (s->data[to - 1] == ' ' || (s->data[to - 1] >= 9 && s->data[to - 1] <= 13)))
        to--;
    for (size_t i = from; i < to; i++) {
        char c = s->data[i];
        bool alnum = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        if (c == '_' && i > from && i + 1 < to && s->data[i - 1] != '_' && s->data[i + 1] != '_')
            continue;
        if ((!alnum && c != '+' && c != '-' && c != '.') || n + 1 >= size)
            return false;
        buf[n++] = c;
    }
    buf[n] = '\0';
    return n > 0;
}

static bool parse_float(const struct sn_jstr *s, double *out)
{
    char buf[400], *end;
    if (!number_text(s, buf, sizeof buf) || strpbrk(buf, "xXpP()"))
        return false;
    *out = strtod(buf, &end);
    return *end == '\0';
}

enum parsed { PARSED, NOT_A_NUMBER, TOO_LARGE };

static enum parsed parse_int(const struct sn_jstr *s, int base, int64_t *out)
{
    char buf[400], *p = buf, *end;
    if (!number_text(s, buf, sizeof buf))
        return NOT_A_NUMBER;
    bool minus = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    static const char letters[] = "bB\2oO\10xX\20";
    for (size_t k = 0; k < 9 && p[0] == '0'; k += 3)
        if ((p[1] == letters[k] || p[1] == letters[k + 1]) &&
            (base == letters[k + 2] || base == 0)) {
            base = letters[k + 2];
            p += 2;
            break;
        }
    if (base == 0)
        base = 10;
    if (!((*p >= '0' && *p <= '9') || ((*p | 0x20) >= 'a' && (*p | 0x20) <= 'z')) ||
        (p[0] == '0' && (p[1] | 0x20) == 'x'))
        return NOT_A_NUMBER;
    if (minus)
        *--p = '-';
    errno = 0;
    *out = strtoll(p, &end, base);
    return *end ? NOT_A_NUMBER : errno ? TOO_LARGE : PARSED;
}

static bool too_large(struct sn_jrun *r)
{
    return sn_jfail(r, SENNIT_INVALID, "int: the number does not fit 64 bits");
}

static bool truncate(struct sn_jrun *r, double f, struct sn_jval otherwise, struct sn_jval *out)
{
    if (isnan(f)) {
        *out = otherwise;
        return true;
    }
    if (isinf(f))
        return sn_jfail(r, SENNIT_INVALID, "int: infinity is no integer");
    if (f >= 0x1p63 || f < -0x1p63)
        return too_large(r);
    *out = sn_jint((int64_t)f);
    return true;
}

static bool f_int(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval otherwise = ABSENT(c->a[0]) ? sn_jint(0) : c->a[0];
    int64_t base = 0, i;
    double f;
    if (!int_arg(r, c->a[1], 10, &base))
        return false;
    if (c->self.type == SN_J_UNDEF)
        return sn_jundef_error(r, c->self);
    if (base != 0 && (base < 2 || base > 36))
        base = 10;
    *out = otherwise;
    if (sn_jis_int(c->self))
        *out = sn_jint(sn_jint_of(c->self));
    else if (c->self.type == SN_J_FLOAT)
        return truncate(r, c->self.u.f, otherwise, out);
    else if (c->self.type == SN_J_STR)
        switch (parse_int(c->self.u.s, (int)base, &i)) {
        case PARSED:
            *out = sn_jint(i);
            break;
        case TOO_LARGE:
            return too_large(r);
        case NOT_A_NUMBER:
            if (parse_float(c->self.u.s, &f))
                return truncate(r, f, otherwise, out);
            break;
        }
    return true;
}

static bool f_float(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    double f;
    if (c->self.type == SN_J_UNDEF)
        return sn_jundef_error(r, c->self);
    *out = ABSENT(c->a[0]) ? sn_jfloat(0.0) : c->a[0];
    if (sn_jis_num(c->self))
        *out = sn_jfloat(sn_jfloat_of(c->self));
    else if (c->self.type == SN_J_STR && parse_float(c->self.u.s, &f))
        *out = sn_jfloat(f);
    return true;
}

static bool f_abs(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    if (c->self.type == SN_J_UNDEF)
        return sn_jundef_error(r, c->self);
    if (!sn_jis_num(c->self))
        return sn_jfail(r, SENNIT_INVALID, "abs: a number is needed, not a %s",
                        sn_jtype_name(c->self));
    if (c->self.type == SN_J_FLOAT)
        *out = sn_jfloat(fabs(c->self.u.f));
    else if (sn_jint_of(c->self) < 0)
        return sn_jbinary(r, SN_OP_SUB, sn_jint(0), c->self, out);
    else
        *out = sn_jint(sn_jint_of(c->self));
    return true;
}

/* round() of a float is correctly rounded from its exact decimal value, ties to even: what printf
 * does. */
static double round_to(double f, int64_t digits)
{
    char text[400];
    if (!isfinite(f) || digits > 22)
        return f;
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return strtod(text, NULL);
    }
    double scale = pow(10.0, (double)-digits);
    return digits < -308 ? 0.0 : nearbyint(f / scale) * scale;
}

/* Integers round to tens, hundreds and so on, halves to the even neighbour. */
static bool round_int(struct sn_jrun *r, int64_t v, int64_t digits, struct sn_jval *out)
{
    int64_t unit = 1;
    for (; digits < 0 && unit < 1000000000000000000; digits++)
        unit *= 10;
    const int64_t half = 5000000000000000000;
    if (digits < 0 && (digits < -1 || (v <= half && v >= -half))) {
        *out = sn_jint(0);
        return true;
    }
    if (digits < 0)
        return sn_jfail(r, SENNIT_UNSUPPORTED, "round: the result does not fit 64 bits");
    int64_t q = v / unit, rest = v % unit;
    if (rest < 0) {
        rest += unit;
        q--;
    }
    if (rest > unit - rest || (rest == unit - rest && q % 2 != 0))
        q++;
    if (__builtin_mul_overflow(q, unit, &v))
        return sn_jfail(r, SENNIT_UNSUPPORTED, "round: the result does not fit 64 bits");
    *out = sn_jint(v);
    return true;
}

static bool f_round(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    int64_t digits = 0;
    const struct sn_jval how = c->a[1];
    if (!int_arg(r, c->a[0], 0, &digits))
        return false;
    if (c->self.type == SN_J_UNDEF)
        return sn_jundef_error(r, c->self);
    bool common = ABSENT(how) || (how.type == SN_J_STR && sn_jstr_eq(how.u.s, "common"));
    bool up = how.type == SN_J_STR && sn_jstr_eq(how.u.s, "ceil"),
         down = how.type == SN_J_STR && sn_jstr_eq(how.u.s, "floor");
    if (!common && !up && !down)
        return sn_jfail(r, SENNIT_INVALID, "round: the method must be common, ceil or floor");
    if (!sn_jis_num(c->self))
        return sn_jfail(r, SENNIT_INVALID, "round: a number is needed, not a %s",
                        sn_jtype_name(c->self));
    if (common && sn_jis_int(c->self)) {
        return round_int(r, sn_jint_of(c->self), digits, out);
    }
    double f = sn_jfloat_of(c->self), scale = pow(10.0, (double)digits);
    *out =
        sn_jfloat(common ? round_to(f, digits) : (up ? ceil(f * scale) : floor(f * scale)) / scale);
    return true;
}

/* ---- layout ---------------------------------------------------------------------------------- */

static bool f_indent(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s, *pad;
    struct sn_jval lines, blanks;
    struct sn_jsb b;
    int64_t width = 4;
    bool first = false, blank = false;
    if (c->self.type == SN_J_UNDEF)
        return sn_jundef_error(r, c->self);
    if (c->self.type != SN_J_STR)
        return sn_jfail(r, SENNIT_INVALID, "indent: a str is needed, not a %s",
                        sn_jtype_name(c->self));
    if (!self_text(r, c, &s) || (!ABSENT(c->a[1]) && !sn_jtruth(r, c->a[1], &first)) ||
        (!ABSENT(c->a[2]) && !sn_jtruth(r, c->a[2], &blank)))
        return false;
    if (c->a[0].type == SN_J_STR) {
        pad = c->a[0].u.s;
    } else {
        if (!int_arg(r, c->a[0], 4, &width) || !sn_jlit(r, " ", &blanks) ||
            !sn_jbinary(r, SN_OP_MUL, blanks, sn_jint(width), &blanks))
            return false;
        pad = blanks.u.s;
    }
    if (!method(r, "splitlines", s, NULL, 0, &lines))
        return false;
    const struct sn_jseq *l = lines.u.seq;
    /* a final newline makes a last, empty line */
    bool tail = s->len == 0 || s->data[s->len - 1] == '\n';
    size_t n = l->n + tail;
    sn_jsb_init(&b, r);
    for (size_t i = 0; i < n; i++) {
        bool empty = i == l->n || l->v[i].u.s->len == 0;
        if (i)
            sn_jsb_text(&b, "\n");
        if (i ? blank || !empty : first)
            sn_jsb_str(&b, pad);
        if (i < l->n)
            sn_jsb_str(&b, l->v[i].u.s);
    }
    return sn_jsb_val(&b, out);
}

static bool f_center(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    struct sn_jval width = ABSENT(c->a[0]) ? sn_jint(80) : c->a[0];
    return self_text(r, c, &s) && method(r, "center", s, &width, 1, out);
}

/* truncate(s, length=255, killwords=False, end='...', leeway=5) */
static bool f_truncate(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s, *end;
    struct sn_jval dots;
    int64_t length = 0, leeway;
    bool kill = false;
    if (!self_text(r, c, &s) || !int_arg(r, c->a[0], 255, &length) ||
        !int_arg(r, c->a[3], 5, &leeway) || (!ABSENT(c->a[1]) && !sn_jtruth(r, c->a[1], &kill)) ||
        !sn_jlit(r, "...", &dots) || !sn_jstr_of(r, ABSENT(c->a[2]) ? dots : c->a[2], &end))
        return false;
    if (length < (int64_t)end->n_chars || leeway < 0 || length > INT32_MAX || leeway > INT32_MAX)
        return sn_jfail(
            r, SENNIT_INVALID,
            "truncate: the length must be at least that of the end, and leeway not negative");
    *out = sn_jstrv(s);
    if ((int64_t)s->n_chars <= length + leeway)
        return true;
    size_t cut = sn_jbyte_of(s, (size_t)length - end->n_chars);
    for (size_t k = cut; !kill && k-- > 0;)
        if (s->data[k] == ' ') {
            cut = k;
            break;
        }
    struct sn_jsb b;
    sn_jsb_init(&b, r);
    sn_jsb_part(&b, s, 0, cut);
    sn_jsb_str(&b, end);
    return sn_jsb_val(&b, out);
}

static bool f_format(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    if (!self_text(r, c, &s))
        return false;
    if (c->n_kw && c->n_pos)
        return sn_jfail(r, SENNIT_INVALID,
                        "format: positional and keyword arguments cannot be mixed");
    if (c->n_kw) {
        struct sn_jdict *d = sn_jdict_new(r, c->n_kw);
        if (!d)
            return false;
        for (size_t i = 0; i < c->n_kw; i++)
            if (!sn_jdict_set(r, d, sn_jstrv(c->kw[i].name), c->kw[i].v))
                return false;
        return sn_jpercent(r, s, sn_jdictv(d), out);
    }
    struct sn_jseq *args = sn_jseq_new(r, c->n_pos);
    if (!args)
        return false;
    for (size_t i = 0; i < c->n_pos; i++)
        if (!sn_jseq_push(r, args, c->pos[i]))
            return false;
    return sn_jpercent(r, s, sn_jseqv(SN_J_TUPLE, args), out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool separators(struct sn_jrun *r, struct sn_jval v, struct sn_jjson *o)
{
    struct sn_jval *items;
    size_t n;
    if (ABSENT(v) || v.type == SN_J_NONE)
        return true;
    if (!sn_jiter(r, v, &items, &n))
        return false;
    if (n != 2 || items[0].type != SN_J_STR || items[1].type != SN_J_STR)
        return sn_jfail(r, SENNIT_INVALID, "tojson: separators must be two strings");
    o->item_sep = items[0].u.s;
    o->key_sep = items[1].u.s;
    return true;
}

/* tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False) */
static bool f_tojson(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jjson o = {0};
    struct sn_jval text, indent = c->a[1];
    struct sn_jsb b;
    if ((!ABSENT(c->a[0]) && !sn_jtruth(r, c->a[0], &o.ascii)) ||
        (!ABSENT(c->a[3]) && !sn_jtruth(r, c->a[3], &o.sort_keys)))
        return false;
    o.pretty = !ABSENT(indent) && indent.type != SN_J_NONE;
    if (o.pretty && indent.type != SN_J_STR) {
        int64_t width;
        if (!int_arg(r, indent, 0, &width) || !sn_jlit(r, " ", &text) ||
            !sn_jbinary(r, SN_OP_MUL, text, sn_jint(width), &indent))
            return false;
    }
    o.indent = indent.type == SN_J_STR ? indent.u.s : NULL;
    if (!sn_jlit(r, o.pretty ? "," : ", ", &text))
        return false;
    o.item_sep = text.u.s;
    if (!sn_jlit(r, ": ", &text))
        return false;
    o.key_sep = text.u.s;
    if (!separators(r, c->a[2], &o))
        return false;
    sn_jsb_init(&b, r);
    sn_jto_json(&b, c->self, &o, 0);
    return sn_jsb_val(&b, out);
}

static const struct sn_jbuiltin table[] = {
    {"abs", f_abs, "", 0},
    {"capitalize", f_capitalize, "", 0},
    {"center", f_center, "width", 0},
    {"count", f_length, "", 0},
    {"d", f_default, "default_value boolean", 0},
    {"default", f_default, "default_value boolean", 0},
    {"float", f_float, "default", 0},
    {"format", f_format, NULL, 0},
    {"indent", f_indent, "width first blank", 0},
    {"int", f_int, "default base", 0},
    {"length", f_length, "", 0},
    {"lower", f_lower, "", 0},
    {"replace", f_replace, "old new count", 2},
    {"round", f_round, "precision method", 0},
    {"safe", f_safe, "", 0},
    {"string", f_string, "", 0},
    {"title", f_title, "", 0},
    {"tojson", f_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", f_trim, "chars", 0},
    {"truncate", f_truncate, "length killwords end leeway", 0},
    {"upper", f_upper, "", 0},
    {"wordcount", f_wordcount, "", 0},
};
const struct sn_jtable sn_jfilters_text = {table, SN_ARRAY_LEN(table)};
