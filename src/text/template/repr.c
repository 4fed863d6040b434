/* Values as text: str(), repr() and JSON, byte for byte what Python prints. */
#include "text/template/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The shortest decimal that reads back as f, in Python's layout: an exponent below 1e-4 and from
 * 1e16 on. */
void sn_jfloat_repr(struct sn_jsb *b, double f)
{
    char sci[40], text[400];
    if (isnan(f) || isinf(f)) {
        sn_jsb_text(b, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 0;
    do
        snprintf(sci, sizeof sci, "%.*e", precision, f);
    while (strtod(sci, NULL) != f && ++precision < 17);
    int exponent = (int)strtol(strchr(sci, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision > exponent ? precision - exponent : 1;
        snprintf(text, sizeof text, "%.*f", decimals, f);
        sn_jsb_text(b, text);
        return;
    }
    sn_jsb_bytes(b, sci, (size_t)(strchr(sci, 'e') - sci), true);
    snprintf(text, sizeof text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    sn_jsb_text(b, text);
}

static void put_int(struct sn_jsb *b, int64_t i)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)i);
    sn_jsb_text(b, text);
}

static void repr_string(struct sn_jsb *b, const struct sn_jstr *s)
{
    bool single = memchr(s->data, '\'', s->len) != NULL,
         twice = memchr(s->data, '"', s->len) != NULL;
    const char *quote = single && !twice ? "\"" : "'";
    sn_jsb_text(b, quote);
    for (size_t i = 0; i < s->len;) {
        size_t at = i;
        uint32_t cp = sn_uni_next(s->data, s->len, &i);
        char text[16] = "";
        if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (cp == '\\' || cp == (uint32_t)(unsigned char)quote[0])
            snprintf(text, sizeof text, "\\%c", (char)cp);
        else if (!sn_uni_printable(cp))
            snprintf(text, sizeof text,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     cp);
        if (text[0])
            sn_jsb_bytes(b, text, strlen(text), sn_jtrust(s, at));
        else
            sn_jsb_part(b, s, at, i);
    }
    sn_jsb_text(b, quote);
}

static void repr_items(struct sn_jsb *b, const struct sn_jval *v, size_t n)
{
    for (size_t i = 0; i < n && !b->failed; i++) {
        if (i)
            sn_jsb_text(b, ", ");
        sn_jrepr(b, v[i]);
    }
}

static void repr_seq(struct sn_jsb *b, struct sn_jval v)
{
    const struct sn_jseq *s = v.u.seq;
    if (v.type == SN_J_RANGE) {
        char text[80];
        snprintf(text, sizeof text, s->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                 (long long)s->start, (long long)s->stop, (long long)s->step);
        sn_jsb_text(b, text);
        return;
    }
    if (v.type == SN_J_VIEW) {
        sn_jsb_text(b, sn_jtype_name(v));
        sn_jsb_text(b, "(");
    }
    sn_jsb_text(b, v.type == SN_J_TUPLE ? "(" : "[");
    repr_items(b, s->v, s->n);
    sn_jsb_text(b, v.type != SN_J_TUPLE ? "]" : s->n == 1 ? ",)" : ")");
    if (v.type == SN_J_VIEW)
        sn_jsb_text(b, ")");
}

static void repr_dict(struct sn_jsb *b, const struct sn_jdict *d)
{
    sn_jsb_text(b, "{");
    for (size_t i = 0; i < d->n && !b->failed; i++) {
        if (i)
            sn_jsb_text(b, ", ");
        sn_jrepr(b, d->keys[i]);
        sn_jsb_text(b, ": ");
        sn_jrepr(b, d->vals[i]);
    }
    sn_jsb_text(b, "}");
}

static void unprintable(struct sn_jsb *b, struct sn_jval v)
{
    b->failed = true;
    (void)!sn_jfail(b->r, SENNIT_UNSUPPORTED, "a %s cannot be printed%s", sn_jtype_name(v),
                    v.type == SN_J_ITER    ? "; use |list"
                    : v.type == SN_J_MACRO ? "; call it"
                                           : "");
}

void sn_jrepr(struct sn_jsb *b, struct sn_jval v)
{
    if (b->failed || !sn_jenter(b->r)) {
        b->failed = true;
        return;
    }
    switch (v.type) {
    case SN_J_ABSENT:
    case SN_J_UNDEF:
        sn_jsb_text(b, "Undefined");
        break;
    case SN_J_NONE:
        sn_jsb_text(b, "None");
        break;
    case SN_J_BOOL:
        sn_jsb_text(b, v.u.b ? "True" : "False");
        break;
    case SN_J_INT:
        put_int(b, v.u.i);
        break;
    case SN_J_FLOAT:
        sn_jfloat_repr(b, v.u.f);
        break;
    case SN_J_STR:
        if (v.u.s->markup)
            sn_jsb_text(b, "Markup(");
        repr_string(b, v.u.s);
        if (v.u.s->markup)
            sn_jsb_text(b, ")");
        break;
    case SN_J_LIST:
    case SN_J_TUPLE:
    case SN_J_RANGE:
    case SN_J_VIEW:
        repr_seq(b, v);
        break;
    case SN_J_DICT:
        repr_dict(b, v.u.dict);
        break;
    case SN_J_NS:
        sn_jsb_text(b, "<Namespace ");
        repr_dict(b, v.u.dict);
        sn_jsb_text(b, ">");
        break;
    case SN_J_ITER:
    case SN_J_FUNC:
    case SN_J_MACRO:
    case SN_J_METHOD:
    case SN_J_LOOP:
        unprintable(b, v);
        break;
    }
    sn_jleave(b->r);
}

bool sn_jstr_of(struct sn_jrun *r, struct sn_jval v, const struct sn_jstr **out)
{
    if (v.type == SN_J_STR) {
        *out = v.u.s;
        return true;
    }
    struct sn_jsb b;
    sn_jsb_init(&b, r);
    if (v.type != SN_J_UNDEF)
        sn_jrepr(&b, v);
    return sn_jsb_done(&b, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_json_escape(struct sn_jsb *b, uint32_t cp, bool trusted)
{
    char text[16];
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *p = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (p)
        snprintf(text, sizeof text, "\\%c", to[p - from]);
    else if (cp < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", cp);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                 0xDC00 + ((cp - 0x10000) & 0x3FF));
    sn_jsb_bytes(b, text, strlen(text), trusted);
}

static void put_json_string(struct sn_jsb *b, const struct sn_jstr *s, bool ascii)
{
    sn_jsb_text(b, "\"");
    for (size_t i = 0; i < s->len;) {
        size_t at = i;
        uint32_t cp = sn_uni_next(s->data, s->len, &i);
        if (cp == '"' || cp == '\\' || cp < 0x20 || (ascii && cp > 0x7E))
            put_json_escape(b, cp, sn_jtrust(s, at));
        else
            sn_jsb_part(b, s, at, i);
    }
    sn_jsb_text(b, "\"");
}

static void put_json_break(struct sn_jsb *b, const struct sn_jjson *o, uint32_t level)
{
    if (!o->pretty)
        return;
    sn_jsb_text(b, "\n");
    for (uint32_t i = 0; i < level; i++)
        sn_jsb_str(b, o->indent);
}

static void put_json_float(struct sn_jsb *b, double f)
{
    if (isnan(f) || isinf(f))
        sn_jsb_text(b, isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
    else
        sn_jfloat_repr(b, f);
}

static void put_json_fail(struct sn_jsb *b, const char *what, struct sn_jval v)
{
    if (!b->failed)
        (void)!sn_jfail(b->r, SENNIT_INVALID, "tojson: a %s %s",
                        v.type == SN_J_UNDEF ? "undefined value" : sn_jtype_name(v), what);
    b->failed = true;
}

static void put_json_key(struct sn_jsb *b, struct sn_jval k, const struct sn_jjson *o)
{
    if (k.type == SN_J_STR) {
        put_json_string(b, k.u.s, o->ascii);
        return;
    }
    if (!sn_jis_num(k) && k.type != SN_J_NONE) {
        put_json_fail(b, "cannot be the key of an object", k);
        return;
    }
    sn_jsb_text(b, "\"");
    sn_jto_json(b, k, o, 0);
    sn_jsb_text(b, "\"");
}

/* Entry numbers of d sorted by key; only string keys can be sorted here. */
static size_t *sorted_keys(struct sn_jsb *b, const struct sn_jdict *d)
{
    size_t *order = sn_jnew(b->r, d->n + 1, sizeof *order);
    if (!order || !sn_jsteps(b->r, d->n * (d->n < 1000 ? d->n : 1000))) {
        b->failed = true;
        return NULL;
    }
    for (size_t i = 0; i < d->n; i++) {
        size_t k = i;
        for (bool less = true; k > 0; k--) {
            if (!sn_jcompare(b->r, d->keys[i], d->keys[order[k - 1]], SN_OP_LT, &less)) {
                b->failed = true;
                return NULL;
            }
            if (!less)
                break;
            order[k] = order[k - 1];
        }
        order[k] = i;
    }
    return order;
}

static void put_json_dict(struct sn_jsb *b, const struct sn_jdict *d, const struct sn_jjson *o,
                          uint32_t level)
{
    size_t *order = o->sort_keys ? sorted_keys(b, d) : NULL;
    sn_jsb_text(b, "{");
    for (size_t k = 0; k < d->n && !b->failed; k++) {
        size_t i = order ? order[k] : k;
        if (k)
            sn_jsb_str(b, o->item_sep);
        put_json_break(b, o, level + 1);
        put_json_key(b, d->keys[i], o);
        sn_jsb_str(b, o->key_sep);
        sn_jto_json(b, d->vals[i], o, level + 1);
    }
    if (d->n)
        put_json_break(b, o, level);
    sn_jsb_text(b, "}");
}

static void put_json_list(struct sn_jsb *b, const struct sn_jseq *s, const struct sn_jjson *o,
                          uint32_t level)
{
    sn_jsb_text(b, "[");
    for (size_t i = 0; i < s->n && !b->failed; i++) {
        if (i)
            sn_jsb_str(b, o->item_sep);
        put_json_break(b, o, level + 1);
        sn_jto_json(b, s->v[i], o, level + 1);
    }
    if (s->n)
        put_json_break(b, o, level);
    sn_jsb_text(b, "]");
}

void sn_jto_json(struct sn_jsb *b, struct sn_jval v, const struct sn_jjson *o, uint32_t level)
{
    if (b->failed || !sn_jenter(b->r)) {
        b->failed = true;
        return;
    }
    switch (v.type) {
    case SN_J_NONE:
        sn_jsb_text(b, "null");
        break;
    case SN_J_BOOL:
        sn_jsb_text(b, v.u.b ? "true" : "false");
        break;
    case SN_J_INT:
        put_int(b, v.u.i);
        break;
    case SN_J_FLOAT:
        put_json_float(b, v.u.f);
        break;
    case SN_J_STR:
        put_json_string(b, v.u.s, o->ascii);
        break;
    case SN_J_LIST:
    case SN_J_TUPLE:
        put_json_list(b, v.u.seq, o, level);
        break;
    case SN_J_DICT:
        put_json_dict(b, v.u.dict, o, level);
        break;
    default:
        put_json_fail(b, "cannot be written as JSON", v);
        break;
    }
    sn_jleave(b->r);
}
