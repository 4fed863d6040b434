/* Text from patterns: "..." % values, "...".format(...), strftime. */
#include "text/template/run.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- printf-style
 * -------------------------------------------------------------------------------------------- */

struct spec {
    bool left, plus, space, zero, alt, has_precision;
    int width, precision;
    char conv;
};

struct percent {
    struct sn_jrun *r;
    const struct sn_jstr *fmt;
    struct sn_jval args;
    size_t i, next;
    struct sn_jsb b;
};

static bool next_arg(struct percent *p, struct sn_jval *out)
{
    if (p->args.type == SN_J_TUPLE) {
        if (p->next >= p->args.u.seq->n)
            return sn_jfail(p->r, SENNIT_INVALID, "not enough values for the format string");
        *out = p->args.u.seq->v[p->next++];
        return true;
    }
    if (p->next++ > 0)
        return sn_jfail(p->r, SENNIT_INVALID, "not enough values for the format string");
    *out = p->args;
    return true;
}

static int read_number(const struct sn_jstr *s, size_t *i)
{
    int n = 0;
    for (; *i < s->len && s->data[*i] >= '0' && s->data[*i] <= '9'; ++*i)
        n = n < 10000 ? n * 10 + (s->data[*i] - '0') : n;
    return n;
}

static void read_spec(struct percent *p, struct spec *s)
{
    const struct sn_jstr *f = p->fmt;
    for (; p->i < f->len && f->data[p->i] && strchr("-+ 0#", f->data[p->i]); p->i++) {
        char c = f->data[p->i];
        *(c == '-'   ? &s->left
          : c == '+' ? &s->plus
          : c == ' ' ? &s->space
          : c == '0' ? &s->zero
                     : &s->alt) = true;
    }
    s->width = read_number(f, &p->i);
    if (p->i < f->len && f->data[p->i] == '.') {
        p->i++;
        s->has_precision = true;
        s->precision = read_number(f, &p->i);
    }
    while (p->i < f->len && f->data[p->i] && strchr("hlL", f->data[p->i]))
        p->i++;
    s->conv = p->i < f->len ? f->data[p->i++] : '\0';
}

static bool put_padded(struct percent *p, const struct spec *s, const struct sn_jstr *text)
{
    size_t pad = (size_t)s->width > text->n_chars ? (size_t)s->width - text->n_chars : 0;
    for (size_t k = 0; k < pad && !s->left; k++)
        sn_jsb_text(&p->b, " ");
    sn_jsb_str(&p->b, text);
    for (size_t k = 0; k < pad && s->left; k++)
        sn_jsb_text(&p->b, " ");
    return true;
}

static bool put_number(struct percent *p, const struct spec *s, struct sn_jval v)
{
    char pattern[32], text[512];
    if (!sn_jis_num(v))
        return sn_jfail(p->r, SENNIT_INVALID, "%%%c needs a number, not a %s", s->conv,
                        sn_jtype_name(v));
    if (s->width > 100 || s->precision > 100)
        return sn_jfail(p->r, SENNIT_UNSUPPORTED, "widths above 100 are not supported in formats");
    bool is_float = strchr("eEfFgG", s->conv) != NULL;
    double f = sn_jfloat_of(v);
    if (!is_float && v.type == SN_J_FLOAT &&
        (strchr("xXo", s->conv) || !(f > -0x1p63 && f < 0x1p63)))
        return sn_jfail(p->r, SENNIT_INVALID, "%%%c needs an integer", s->conv);
    int n =
        snprintf(pattern, sizeof pattern, "%%%s%s%s%s%s*", s->left ? "-" : "", s->plus ? "+" : "",
                 s->space ? " " : "", s->zero ? "0" : "", s->alt ? "#" : "");
    snprintf(pattern + n, sizeof pattern - (size_t)n, "%s%s%c", s->has_precision ? ".*" : "",
             is_float ? "" : "ll", s->conv == 'i' || s->conv == 'u' ? 'd' : s->conv);
    long long i = is_float ? 0 : v.type == SN_J_FLOAT ? (long long)f : (long long)sn_jint_of(v);
    if (!is_float && i < 0 && strchr("xXo", s->conv))
        return sn_jfail(p->r, SENNIT_UNSUPPORTED, "%%%c of a negative number is not supported",
                        s->conv);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (is_float)
        s->has_precision ? snprintf(text, sizeof text, pattern, s->width, s->precision, f)
                         : snprintf(text, sizeof text, pattern, s->width, f);
    else
        s->has_precision ? snprintf(text, sizeof text, pattern, s->width, s->precision, i)
                         : snprintf(text, sizeof text, pattern, s->width, i);
#pragma GCC diagnostic pop
    sn_jsb_text(&p->b, text);
    return true;
}

static bool put_text(struct percent *p, const struct spec *s, struct sn_jval v)
{
    const struct sn_jstr *text;
    if (s->conv == 'r') {
        struct sn_jsb b;
        sn_jsb_init(&b, p->r);
        sn_jrepr(&b, v);
        if (!sn_jsb_done(&b, &text))
            return false;
    } else if (!sn_jstr_of(p->r, v, &text)) {
        return false;
    }
    if (s->has_precision && (size_t)s->precision < text->n_chars) {
        struct sn_jval cut;
        if (!sn_jslice_bytes(p->r, text, 0, sn_jbyte_of(text, (size_t)s->precision), &cut))
            return false;
        text = cut.u.s;
    }
    return put_padded(p, s, text);
}

/* %(name)s: the name's value from the dictionary on the right. */
static bool named_arg(struct percent *p, struct sn_jval *out)
{
    size_t from = ++p->i;
    while (p->i < p->fmt->len && p->fmt->data[p->i] != ')')
        p->i++;
    if (p->i == p->fmt->len || p->args.type != SN_J_DICT)
        return sn_jfail(p->r, SENNIT_INVALID, "a format with %%(name) needs a dictionary");
    struct sn_jstr key = {.data = p->fmt->data + from, .len = p->i - from};
    struct sn_jval *v = sn_jdict_find(p->args.u.dict, &key);
    p->i++;
    if (!v)
        return sn_jfail(p->r, SENNIT_INVALID, "the format names a key that is not there");
    p->next = 1;
    *out = *v;
    return true;
}

static bool one_percent(struct percent *p)
{
    struct spec s = {0};
    struct sn_jval v = {.type = SN_J_ABSENT};
    if (p->i < p->fmt->len && p->fmt->data[p->i] == '(' && !named_arg(p, &v))
        return false;
    read_spec(p, &s);
    if (s.conv == '%') {
        sn_jsb_text(&p->b, "%");
        return true;
    }
    if (s.conv == '\0' || !strchr("srdiuxXoeEfFgG", s.conv))
        return sn_jfail(p->r, SENNIT_UNSUPPORTED,
                        "this conversion in a format string is not supported");
    if (v.type == SN_J_ABSENT && !next_arg(p, &v))
        return false;
    if (v.type == SN_J_UNDEF && s.conv != 's' && s.conv != 'r')
        return sn_jundef_error(p->r, v);
    return strchr("sr", s.conv) ? put_text(p, &s, v) : put_number(p, &s, v);
}

bool sn_jpercent(struct sn_jrun *r, const struct sn_jstr *fmt, struct sn_jval args,
                 struct sn_jval *out)
{
    struct percent p = {.r = r, .fmt = fmt, .args = args};
    sn_jsb_init(&p.b, r);
    while (p.i < fmt->len) {
        const char *next = memchr(fmt->data + p.i, '%', fmt->len - p.i);
        size_t to = next ? (size_t)(next - fmt->data) : fmt->len;
        sn_jsb_part(&p.b, fmt, p.i, to);
        p.i = to + 1;
        if (next && !one_percent(&p))
            return false;
    }
    size_t n = args.type == SN_J_TUPLE                            ? args.u.seq->n
               : args.type == SN_J_DICT || args.type == SN_J_LIST ? 0
                                                                  : 1;
    if (p.next < n)
        return sn_jfail(r, SENNIT_INVALID, "not all values were used by the format string");
    return sn_jsb_val(&p.b, out);
}

/* ---- str.format: {}, {0}, {name}, with !s and !r
 * ------------------------------------------------------------- */

static bool format_field(struct sn_jrun *r, const struct sn_jcall *c, const char *name, size_t n,
                         size_t *auto_index, struct sn_jval *out)
{
    size_t index = 0, digits = 0;
    for (; digits < n && name[digits] >= '0' && name[digits] <= '9' && digits < 6; digits++)
        index = index * 10 + (size_t)(name[digits] - '0');
    if (n == 0)
        index = (*auto_index)++;
    if (digits == n) {
        if (index >= c->n_pos)
            return sn_jfail(r, SENNIT_INVALID, "format: there is no positional argument %zu",
                            index);
        *out = c->pos[index];
        return true;
    }
    for (size_t i = 0; i < c->n_kw; i++)
        if (c->kw[i].name->len == n && memcmp(c->kw[i].name->data, name, n) == 0) {
            *out = c->kw[i].v;
            return true;
        }
    if (memchr(name, '.', n) || memchr(name, '[', n) || memchr(name, ':', n))
        return sn_jfail(r, SENNIT_UNSUPPORTED,
                        "format: only {}, {0}, {name}, !s and !r are supported");
    return sn_jfail(r, SENNIT_INVALID, "format: there is no argument '%.*s'",
                    (int)sn_min_size(n, 100), name);
}

bool sn_jformat(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *f = c->self.u.s;
    struct sn_jsb b;
    size_t auto_index = 0;
    sn_jsb_init(&b, r);
    for (size_t i = 0; i < f->len;) {
        char ch = f->data[i];
        if ((ch == '{' || ch == '}') && i + 1 < f->len && f->data[i + 1] == ch) {
            sn_jsb_part(&b, f, i, i + 1);
            i += 2;
        } else if (ch == '{') {
            const char *end = memchr(f->data + i, '}', f->len - i);
            if (!end)
                return sn_jfail(r, SENNIT_INVALID, "format: a { is not closed");
            size_t from = i + 1, n = (size_t)(end - f->data) - from;
            bool repr = n >= 2 && memcmp(f->data + from + n - 2, "!r", 2) == 0;
            bool text = n >= 2 && memcmp(f->data + from + n - 2, "!s", 2) == 0;
            struct sn_jval v;
            const struct sn_jstr *s;
            i = from + n + 1;
            if (!format_field(r, c, f->data + from, n - (repr || text ? 2 : 0), &auto_index, &v))
                return false;
            if (repr)
                sn_jrepr(&b, v);
            else if (sn_jstr_of(r, v, &s))
                sn_jsb_str(&b, s);
            else
                return false;
        } else if (ch == '}') {
            return sn_jfail(r, SENNIT_INVALID, "format: a single } in the text");
        } else {
            sn_jsb_part(&b, f, i, i + 1);
            i++;
        }
    }
    return sn_jsb_val(&b, out);
}

/* ---- strftime, C locale
 * --------------------------------------------------------------------------------------- */

struct when {
    int64_t days; /* since 1970-01-01 */
    int64_t year;
    int month, day, hour, minute, second, weekday,
        yearday; /* month 1-12, weekday 0 = Sunday, yearday 1-366 */
};

/* Howard Hinnant's civil_from_days. */
static struct when civil(int64_t t)
{
    int64_t days = t / 86400 - (t % 86400 < 0), rest = t - days * 86400, z = days + 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365,
            doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    struct when w = {.days = days,
                     .year = yoe + era * 400 + (mp >= 10),
                     .month = (int)(mp < 10 ? mp + 3 : mp - 9),
                     .day = (int)(doy - (153 * mp + 2) / 5 + 1),
                     .hour = (int)(rest / 3600),
                     .minute = (int)(rest / 60 % 60),
                     .second = (int)(rest % 60)};
    w.weekday = (int)(((days + 4) % 7 + 7) % 7);
    bool leap = (w.year % 4 == 0 && w.year % 100 != 0) || w.year % 400 == 0;
    w.yearday = (int)(doy >= 306 ? doy - 305 : doy + 60 + leap);
    return w;
}

static void put_field(struct sn_jsb *b, int64_t value, int width, char pad)
{
    char text[32];
    snprintf(text, sizeof text,
             pad == '0'   ? "%0*lld"
             : pad == ' ' ? "%*lld"
                          : "%.*lld",
             pad == '-' ? 1 : width, (long long)value);
    sn_jsb_text(b, text);
}

static bool put_time(struct sn_jsb *b, const struct when *w, char c, char flag)
{
    static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    char zero = flag ? flag : '0';
    int hour12 = w->hour % 12 ? w->hour % 12 : 12;
    const char *nested = NULL;
    switch (c) {
    case 'Y':
        put_field(b, w->year, 1, '-');
        break;
    case 'y':
        put_field(b, w->year % 100, 2, zero);
        break;
    case 'm':
        put_field(b, w->month, 2, zero);
        break;
    case 'd':
        put_field(b, w->day, 2, zero);
        break;
    case 'e':
        put_field(b, w->day, 2, flag ? flag : ' ');
        break;
    case 'H':
        put_field(b, w->hour, 2, zero);
        break;
    case 'I':
        put_field(b, hour12, 2, zero);
        break;
    case 'M':
        put_field(b, w->minute, 2, zero);
        break;
    case 'S':
        put_field(b, w->second, 2, zero);
        break;
    case 'j':
        put_field(b, w->yearday, 3, zero);
        break;
    case 'w':
        put_field(b, w->weekday, 1, '-');
        break;
    case 'u':
        put_field(b, w->weekday ? w->weekday : 7, 1, '-');
        break;
    case 'p':
        sn_jsb_text(b, w->hour < 12 ? "AM" : "PM");
        break;
    case 'A':
        sn_jsb_text(b, days[w->weekday]);
        break;
    case 'a':
        sn_jsb_bytes(b, days[w->weekday], 3, true);
        break;
    case 'B':
        sn_jsb_text(b, months[w->month - 1]);
        break;
    case 'b':
    case 'h':
        sn_jsb_bytes(b, months[w->month - 1], 3, true);
        break;
    case 'U': /* weeks begin on Sunday; days before the first are in week 0 */
        put_field(b, (w->yearday + 6 - w->weekday) / 7, 2, zero);
        break;
    case 'W': /* on Monday */
        put_field(b, (w->yearday + 6 - (w->weekday + 6) % 7) / 7, 2, zero);
        break;
    case 'f': /* microseconds: the time is given in seconds */
        sn_jsb_text(b, "000000");
        break;
    case 'Z':
    case 'z': /* empty for a time without a zone */
        break;
    case '%':
        sn_jsb_text(b, "%");
        break;
    case 'n':
        sn_jsb_text(b, "\n");
        break;
    case 'F':
        nested = "Y-m-d";
        break;
    case 'T':
    case 'X':
        nested = "H:M:S";
        break;
    case 'R':
        nested = "H:M";
        break;
    case 'D':
    case 'x':
        nested = "m/d/y";
        break;
    case 'c':
        nested = "a b e H:M:S Y";
        break;
    default:
        return false;
    }
    for (; nested && *nested; nested++)
        if (!strchr("-:/ ", *nested))
            (void)put_time(b, w, *nested, '\0');
        else
            sn_jsb_bytes(b, nested, 1, true);
    return true;
}

bool sn_jstrftime(struct sn_jrun *r, const struct sn_jstr *fmt, struct sn_jval *out)
{
    int64_t t;
    struct sn_jsb b;
    sn_jsb_init(&b, r);
    if (__builtin_add_overflow(r->opts->now_unix, (int64_t)r->opts->utc_offset_s, &t) ||
        t > 253402300799 || t < -62135596800)
        return sn_jfail(r, SENNIT_INVALID,
                        "strftime_now: the given time is not between the years 1 and 9999");
    struct when w = civil(t);
    for (size_t i = 0; i < fmt->len; i++) {
        if (fmt->data[i] != '%') {
            sn_jsb_part(&b, fmt, i, i + 1);
            continue;
        }
        char flag = i + 1 < fmt->len && fmt->data[i + 1] == '-' ? '-' : '\0';
        i += flag ? 2 : 1;
        if (i >= fmt->len || !put_time(&b, &w, fmt->data[i], flag))
            return sn_jfail(r, SENNIT_UNSUPPORTED,
                            "strftime_now: this conversion is not supported");
    }
    return sn_jsb_val(&b, out);
}
