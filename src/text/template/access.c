/* Attributes, items and slices: what a.b, a[b] and a[b:c:d] find. */
#include "text/template/run.h"

static bool in_list(const char *const *names, const struct sn_jstr *name)
{
    for (; *names; names++)
        if (sn_jstr_eq(name, *names))
            return true;
    return false;
}

/* Attributes that Python's types have and this build does not offer: an error names them, they
 * never look absent. */
static bool refuse_attr(struct sn_jrun *r, struct sn_jval obj, const struct sn_jstr *name,
                        struct sn_jval *out)
{
    static const char *const str[] = {"casefold",  "encode",       "expandtabs",  "format_map",
                                      "isascii",   "isidentifier", "isprintable", "istitle",
                                      "maketrans", "translate",    NULL};
    static const char *const list[] = {"copy", NULL}, *const dict[] = {"fromkeys", NULL};
    static const char *const num[] = {
        "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
        "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
        "numerator",        "real",      "to_bytes",   NULL};
    static const char *const change_list[] = {"append", "clear",   "extend", "insert", "pop",
                                              "remove", "reverse", "sort",   NULL};
    static const char *const change_dict[] = {"clear",      "pop",    "popitem",
                                              "setdefault", "update", NULL};
    static const char *const none[] = {NULL};
    bool is_list = obj.type == SN_J_LIST;
    if (in_list(is_list ? change_list : obj.type == SN_J_DICT ? change_dict : none, name)) {
        *out = sn_jundef(SN_JU_UNSAFE, name);
        return true;
    }
    const char *const *known = obj.type == SN_J_STR    ? str
                               : is_list               ? list
                               : obj.type == SN_J_DICT ? dict
                               : sn_jis_num(obj)       ? num
                                                       : none;
    if (in_list(known, name))
        return sn_jfail(r, SENNIT_UNSUPPORTED, "%s.%.*s is not supported", sn_jtype_name(obj),
                        (int)name->len, name->data);
    out->type = SN_J_ABSENT;
    return true;
}

static bool loop_attr(struct sn_jrun *r, const struct sn_jloop *l, const struct sn_jstr *name,
                      struct sn_jval *out)
{
    (void)r;
    int64_t i = (int64_t)l->index0, n = (int64_t)l->n;
    out->type = SN_J_ABSENT;
    if (sn_jstr_eq(name, "index"))
        *out = sn_jint(i + 1);
    else if (sn_jstr_eq(name, "index0"))
        *out = sn_jint(i);
    else if (sn_jstr_eq(name, "revindex"))
        *out = sn_jint(n - i);
    else if (sn_jstr_eq(name, "revindex0"))
        *out = sn_jint(n - i - 1);
    else if (sn_jstr_eq(name, "first"))
        *out = sn_jbool(i == 0);
    else if (sn_jstr_eq(name, "last"))
        *out = sn_jbool(i + 1 == n);
    else if (sn_jstr_eq(name, "length"))
        *out = sn_jint(n);
    else if (sn_jstr_eq(name, "depth"))
        *out = sn_jint((int64_t)l->level0 + 1);
    else if (sn_jstr_eq(name, "depth0"))
        *out = sn_jint(l->level0);
    else if (sn_jstr_eq(name, "previtem"))
        *out = i > 0 ? l->items[i - 1] : sn_jundef(SN_JU_EMPTY, name);
    else if (sn_jstr_eq(name, "nextitem"))
        *out = i + 1 < n ? l->items[i + 1] : sn_jundef(SN_JU_EMPTY, name);
    return true;
}

static const struct sn_jtable *methods_of(struct sn_jval obj)
{
    switch (obj.type) {
    case SN_J_STR:
        return &sn_jmethods_str;
    case SN_J_LIST:
    case SN_J_TUPLE:
    case SN_J_RANGE:
        return &sn_jmethods_seq;
    case SN_J_DICT:
        return &sn_jmethods_dict;
    case SN_J_LOOP:
        return &sn_jmethods_loop;
    default:
        return NULL;
    }
}

/* What getattr() finds, or ABSENT. */
static bool python_attr(struct sn_jrun *r, struct sn_jval obj, const struct sn_jstr *name,
                        struct sn_jval *out)
{
    const struct sn_jtable *methods = methods_of(obj);
    const struct sn_jbuiltin *fn = methods ? sn_jtable_find(methods, name) : NULL;
    out->type = SN_J_ABSENT;
    if (fn) {
        struct sn_jmethod *m = sn_jnew(r, 1, sizeof *m);
        if (!m)
            return false;
        *m = (struct sn_jmethod){obj, fn};
        *out = (struct sn_jval){.type = SN_J_METHOD, .u.method = m};
        return true;
    }
    if (obj.type == SN_J_LOOP)
        return loop_attr(r, obj.u.loop, name, out);
    if (obj.type == SN_J_NS) {
        struct sn_jval *v = sn_jdict_find(obj.u.dict, name);
        if (v)
            *out = *v;
        return true;
    }
    if (obj.type == SN_J_MACRO && sn_jstr_eq(name, "name")) {
        *out = sn_jstrv(obj.u.macro->def->name);
        return true;
    }
    return refuse_attr(r, obj, name, out);
}

bool sn_jattr(struct sn_jrun *r, struct sn_jval obj, const struct sn_jstr *name,
              struct sn_jval *out)
{
    if (obj.type == SN_J_UNDEF)
        return sn_jundef_error(r, obj);
    if (!python_attr(r, obj, name, out))
        return false;
    if (out->type != SN_J_ABSENT)
        return true;
    if (obj.type == SN_J_DICT) {
        struct sn_jval *v = sn_jdict_find(obj.u.dict, name);
        if (v) {
            *out = *v;
            return true;
        }
    }
    *out = sn_jundef(SN_JU_ATTR, name);
    return true;
}

static bool item_at(struct sn_jrun *r, struct sn_jval obj, int64_t i, struct sn_jval *out)
{
    int64_t n = obj.type == SN_J_STR ? (int64_t)obj.u.s->n_chars : (int64_t)obj.u.seq->n;
    if (i < 0)
        i += n;
    if (i < 0 || i >= n) {
        *out = sn_jundef(SN_JU_EMPTY, NULL);
        return true;
    }
    if (obj.type != SN_J_STR) {
        *out = obj.u.seq->v[i];
        return true;
    }
    size_t from = sn_jbyte_of(obj.u.s, (size_t)i), to = from;
    (void)sn_uni_next(obj.u.s->data, obj.u.s->len, &to);
    return sn_jslice_bytes(r, obj.u.s, from, to, out);
}

bool sn_jitem(struct sn_jrun *r, struct sn_jval obj, struct sn_jval key, struct sn_jval *out)
{
    if (obj.type == SN_J_UNDEF)
        return sn_jundef_error(r, obj);
    bool hashable = false;
    if (obj.type == SN_J_DICT && !sn_jhashable(r, key, &hashable))
        return false;
    if (hashable) {
        struct sn_jval *v;
        if (!sn_jdict_get(r, obj.u.dict, key, &v))
            return false;
        if (v) {
            *out = *v;
            return true;
        }
    }
    if (sn_jis_int(key) && (obj.type == SN_J_STR || (sn_jis_seq(obj) && obj.type < SN_J_VIEW)))
        return item_at(r, obj, sn_jint_of(key), out);
    out->type = SN_J_ABSENT;
    if (key.type == SN_J_STR && !python_attr(r, obj, key.u.s, out))
        return false;
    if (out->type == SN_J_ABSENT)
        *out = sn_jundef(key.type == SN_J_STR ? SN_JU_ATTR : SN_JU_EMPTY,
                         key.type == SN_J_STR ? key.u.s : NULL);
    return true;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static bool bound_of(struct sn_jrun *r, struct sn_jval v, bool *given, int64_t *out)
{
    *given = v.type != SN_J_ABSENT && v.type != SN_J_NONE;
    if (!*given)
        return true;
    if (v.type == SN_J_UNDEF)
        return sn_jundef_error(r, v);
    if (!sn_jis_int(v))
        return sn_jfail(r, SENNIT_INVALID, "the bounds of a slice must be integers, not a %s",
                        sn_jtype_name(v));
    *out = sn_jint_of(v);
    return true;
}

static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0)
        i += n;
    return i < low ? low : i > high ? high : i;
}

struct cut {
    int64_t start, stop, step;
};

static bool resolve(struct sn_jrun *r, const struct sn_jval bounds[3], int64_t n, struct cut *c)
{
    bool has_start, has_stop, has_step;
    int64_t start = 0, stop = 0, step = 1;
    if (!bound_of(r, bounds[0], &has_start, &start) || !bound_of(r, bounds[1], &has_stop, &stop) ||
        !bound_of(r, bounds[2], &has_step, &step))
        return false;
    if (step == 0)
        return sn_jfail(r, SENNIT_INVALID, "the step of a slice cannot be zero");
    if (step <
        -n - 1) /* one step already leaves the range; keeps the additions below from overflowing */
        step = -n - 1;
    if (step > n + 1)
        step = n + 1;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    c->step = step;
    c->start = has_start ? clamp(start, n, low, high) : step < 0 ? high : 0;
    c->stop = has_stop ? clamp(stop, n, low, high) : step < 0 ? -1 : n;
    return true;
}

static bool more(const struct cut *c, int64_t i)
{
    return c->step > 0 ? i < c->stop : i > c->stop;
}

static bool slice_string(struct sn_jrun *r, const struct sn_jstr *s, const struct cut *c,
                         struct sn_jval *out)
{
    if (c->step == 1) {
        size_t from = sn_jbyte_of(s, (size_t)c->start),
               to = c->stop > c->start ? sn_jbyte_of(s, (size_t)c->stop) : from;
        return sn_jslice_bytes(r, s, from, to, out);
    }
    size_t *at = sn_jnew(r, s->n_chars + 1, sizeof *at), n = 0;
    if (!at || !sn_jsteps(r, s->n_chars))
        return false;
    for (size_t i = 0; i < s->len; n++) {
        at[n] = i;
        (void)sn_uni_next(s->data, s->len, &i);
    }
    at[n] = s->len;
    struct sn_jsb b;
    sn_jsb_init(&b, r);
    for (int64_t i = c->start; more(c, i); i += c->step)
        sn_jsb_part(&b, s, at[i], at[i + 1]);
    return sn_jsb_val(&b, out);
}

bool sn_jslice(struct sn_jrun *r, struct sn_jval obj, const struct sn_jval bounds[3],
               struct sn_jval *out)
{
    struct cut c;
    if (obj.type == SN_J_UNDEF)
        return sn_jundef_error(r, obj);
    if (obj.type == SN_J_STR)
        return resolve(r, bounds, (int64_t)obj.u.s->n_chars, &c) &&
               slice_string(r, obj.u.s, &c, out);
    if (!sn_jis_seq(obj) || obj.type >= SN_J_VIEW)
        return sn_jfail(r, SENNIT_INVALID, "a %s cannot be sliced", sn_jtype_name(obj));
    if (!resolve(r, bounds, (int64_t)obj.u.seq->n, &c))
        return false;
    struct sn_jseq *s = sn_jseq_new(r, 0), *from = obj.u.seq;
    if (!s)
        return false;
    for (int64_t i = c.start; more(&c, i); i += c.step)
        if (!sn_jsteps(r, 1) || !sn_jseq_push(r, s, from->v[i]))
            return false;
    if (obj.type == SN_J_RANGE) {
        s->start = from->start + c.start * from->step;
        s->stop = from->start + c.stop * from->step;
        s->step = from->step * c.step;
    }
    *out = sn_jseqv(obj.type, s);
    return true;
}
