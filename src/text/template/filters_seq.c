/* Filters over sequences. What gives a generator in Python gives an ITER here: it can be walked
 * once. */
#include "text/template/run.h"

#define ABSENT(v) ((v).type == SN_J_ABSENT)

static bool flag(struct sn_jrun *r, struct sn_jval v, bool *out)
{
    *out = false;
    return ABSENT(v) || sn_jtruth(r, v, out);
}

/* ---- attributes named by text: "a", "a.b", "0", 0
 * ------------------------------------------------------------- */

static bool attr_part(struct sn_jrun *r, struct sn_jval item, const struct sn_jstr *path,
                      size_t from, size_t to, struct sn_jval *out)
{
    struct sn_jval key;
    int64_t i = 0;
    size_t k = from;
    for (; k < to && path->data[k] >= '0' && path->data[k] <= '9' && k - from < 18; k++)
        i = i * 10 + (path->data[k] - '0');
    if (k == to && to > from)
        key = sn_jint(i);
    else if (!sn_jslice_bytes(r, path, from, to, &key))
        return false;
    return sn_jitem(r, item, key, out);
}

static bool get_attr(struct sn_jrun *r, struct sn_jval item, struct sn_jval path,
                     struct sn_jval otherwise, struct sn_jval *out)
{
    *out = item;
    if (ABSENT(path) || path.type == SN_J_NONE)
        return true;
    if (path.type != SN_J_STR)
        return sn_jitem(r, item, path, out) &&
               (out->type != SN_J_UNDEF || ABSENT(otherwise) || (*out = otherwise, true));
    const struct sn_jstr *s = path.u.s;
    for (size_t from = 0; from <= s->len;) {
        const char *dot = memchr(s->data + from, '.', s->len - from);
        size_t to = dot ? (size_t)(dot - s->data) : s->len;
        if (!attr_part(r, *out, s, from, to, out))
            return false;
        if (out->type == SN_J_UNDEF && !ABSENT(otherwise))
            *out = otherwise;
        from = to + 1;
    }
    return true;
}

static bool fold_case(struct sn_jrun *r, bool case_sensitive, struct sn_jval *v)
{
    return case_sensitive || v->type != SN_J_STR ||
           sn_jcase(r, v->u.s, SN_LOWER, SN_LOWER, false, v);
}

static bool sort_key(struct sn_jrun *r, struct sn_jval item, struct sn_jval attr,
                     bool case_sensitive, struct sn_jval *out)
{
    return get_attr(r, item, attr, (struct sn_jval){0}, out) && fold_case(r, case_sensitive, out);
}

/* ---- sorting: a stable merge sort over keys
 * ------------------------------------------------------------------- */

struct pair {
    struct sn_jval key, item;
};

static bool merge(struct sn_jrun *r, struct pair *a, struct pair *tmp, size_t n, bool reverse)
{
    if (n < 2)
        return true;
    size_t half = n / 2, i = 0, k = half, m = 0;
    if (!merge(r, a, tmp, half, reverse) || !merge(r, a + half, tmp, n - half, reverse))
        return false;
    while (i < half && k < n) {
        bool right;
        if (!sn_jcompare(r, reverse ? a[i].key : a[k].key, reverse ? a[k].key : a[i].key, SN_OP_LT,
                         &right))
            return false;
        tmp[m++] = right ? a[k++] : a[i++];
    }
    while (i < half)
        tmp[m++] = a[i++];
    memcpy(a, tmp, m * sizeof *a);
    return true;
}

static bool sort_pairs(struct sn_jrun *r, struct pair *a, size_t n, bool reverse,
                       struct sn_jval *out)
{
    struct pair *tmp = sn_jnew(r, n + 1, sizeof *tmp);
    struct sn_jseq *s = tmp ? sn_jseq_new(r, n) : NULL;
    if (!s || !merge(r, a, tmp, n, reverse))
        return false;
    for (size_t i = 0; i < n; i++)
        s->v[s->n++] = a[i].item;
    *out = sn_jseqv(SN_J_LIST, s);
    return true;
}

/* Several attributes, "a,b", give a tuple of keys. */
static bool multi_key(struct sn_jrun *r, struct sn_jval item, struct sn_jval attr,
                      bool case_sensitive, struct sn_jval *out)
{
    if (attr.type != SN_J_STR || !memchr(attr.u.s->data, ',', attr.u.s->len))
        return sort_key(r, item, attr, case_sensitive, out);
    struct sn_jseq *keys = sn_jseq_new(r, 2);
    if (!keys)
        return false;
    for (size_t from = 0; from <= attr.u.s->len;) {
        const char *comma = memchr(attr.u.s->data + from, ',', attr.u.s->len - from);
        size_t to = comma ? (size_t)(comma - attr.u.s->data) : attr.u.s->len;
        struct sn_jval part, key;
        if (!sn_jslice_bytes(r, attr.u.s, from, to, &part) ||
            !sort_key(r, item, part, case_sensitive, &key) || !sn_jseq_push(r, keys, key))
            return false;
        from = to + 1;
    }
    *out = sn_jseqv(SN_J_TUPLE, keys);
    return true;
}

/* sort(reverse=False, case_sensitive=False, attribute=None) */
static bool f_sort(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    bool reverse, sensitive;
    struct sn_jval *items;
    size_t n;
    if (!flag(r, c->a[0], &reverse) || !flag(r, c->a[1], &sensitive) ||
        !sn_jiter(r, c->self, &items, &n))
        return false;
    struct pair *a = sn_jnew(r, n + 1, sizeof *a);
    if (!a)
        return false;
    for (size_t i = 0; i < n; i++) {
        a[i].item = items[i];
        if (!multi_key(r, items[i], c->a[2], sensitive, &a[i].key))
            return false;
    }
    return sort_pairs(r, a, n, reverse, out);
}

static bool make_pair(struct sn_jrun *r, struct sn_jval a, struct sn_jval b, struct sn_jval *out)
{
    struct sn_jseq *t = sn_jseq_new(r, 2);
    if (!t)
        return false;
    t->v[0] = a;
    t->v[1] = b;
    t->n = 2;
    *out = sn_jseqv(SN_J_TUPLE, t);
    return true;
}

/* dictsort(case_sensitive=False, by="key", reverse=False) */
static bool f_dictsort(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    bool sensitive, reverse, by_value = false;
    if (!flag(r, c->a[0], &sensitive) || !flag(r, c->a[2], &reverse))
        return false;
    if (!ABSENT(c->a[1])) {
        by_value = c->a[1].type == SN_J_STR && sn_jstr_eq(c->a[1].u.s, "value");
        if (!by_value && (c->a[1].type != SN_J_STR || !sn_jstr_eq(c->a[1].u.s, "key")))
            return sn_jfail(r, SENNIT_INVALID, "dictsort: by must be \"key\" or \"value\"");
    }
    if (c->self.type == SN_J_UNDEF)
        return sn_jundef_error(r, c->self);
    if (c->self.type != SN_J_DICT)
        return sn_jfail(r, SENNIT_INVALID, "dictsort: a dictionary is needed, not a %s",
                        sn_jtype_name(c->self));
    const struct sn_jdict *d = c->self.u.dict;
    struct pair *a = sn_jnew(r, d->n + 1, sizeof *a);
    if (!a)
        return false;
    for (size_t i = 0; i < d->n; i++) {
        a[i].key = by_value ? d->vals[i] : d->keys[i];
        if (!fold_case(r, sensitive, &a[i].key) ||
            !make_pair(r, d->keys[i], d->vals[i], &a[i].item))
            return false;
    }
    return sort_pairs(r, a, d->n, reverse, out);
}

/* min and max(case_sensitive=False, attribute=None) */
static bool extreme(struct sn_jrun *r, const struct sn_jcall *c, enum sn_jop op,
                    struct sn_jval *out)
{
    bool sensitive;
    struct sn_jval *items, best, key;
    size_t n;
    if (!flag(r, c->a[0], &sensitive) || !sn_jiter(r, c->self, &items, &n))
        return false;
    *out = sn_jundef(SN_JU_EMPTY, NULL);
    for (size_t i = 0; i < n; i++) {
        bool better = i == 0;
        if (!sort_key(r, items[i], c->a[1], sensitive, &key) ||
            (i && !sn_jcompare(r, key, best, op, &better)))
            return false;
        if (better) {
            best = key;
            *out = items[i];
        }
    }
    return true;
}

static bool f_min(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return extreme(r, c, SN_OP_LT, out);
}
static bool f_max(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return extreme(r, c, SN_OP_GT, out);
}

/* ---- taking apart and together
 * -------------------------------------------------------------------------------- */

static bool f_first(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval *items;
    size_t n;
    bool one_only = c->self.type == SN_J_ITER;
    if (one_only) {
        struct sn_jseq *s = c->self.u.seq;
        *out = s->pos < s->n ? s->v[s->pos++] : sn_jundef(SN_JU_EMPTY, NULL);
        return true;
    }
    if (!sn_jiter(r, c->self, &items, &n))
        return false;
    *out = n ? items[0] : sn_jundef(SN_JU_EMPTY, NULL);
    return true;
}

static bool f_last(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval *items;
    size_t n;
    if (c->self.type == SN_J_ITER)
        return sn_jfail(r, SENNIT_INVALID,
                        "last: a generator has no end to look at; use |list first");
    if (!sn_jiter(r, c->self, &items, &n))
        return false;
    *out = n ? items[n - 1] : sn_jundef(SN_JU_EMPTY, NULL);
    return true;
}

/* join(d="", attribute=None) */
static bool f_join(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval *items;
    size_t n;
    struct sn_jsb b;
    const struct sn_jstr *glue = NULL, *s;
    if (!sn_jiter(r, c->self, &items, &n) || (!ABSENT(c->a[0]) && !sn_jstr_of(r, c->a[0], &glue)))
        return false;
    sn_jsb_init(&b, r);
    for (size_t i = 0; i < n; i++) {
        struct sn_jval v;
        if (!get_attr(r, items[i], c->a[1], (struct sn_jval){0}, &v) || !sn_jstr_of(r, v, &s) ||
            !sn_jsteps(r, 1))
            return false;
        if (i && glue)
            sn_jsb_str(&b, glue);
        sn_jsb_str(&b, s);
    }
    return sn_jsb_val(&b, out);
}

static bool copy_items(struct sn_jrun *r, struct sn_jval from, enum sn_jtype type, bool backwards,
                       struct sn_jval *out)
{
    struct sn_jval *items;
    size_t n;
    if (!sn_jiter(r, from, &items, &n))
        return false;
    struct sn_jseq *s = sn_jseq_new(r, n);
    if (!s || !sn_jsteps(r, n))
        return false;
    for (size_t i = 0; i < n; i++)
        s->v[i] = items[backwards ? n - 1 - i : i];
    s->n = n;
    *out = sn_jseqv(type, s);
    return true;
}

static bool f_list(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return copy_items(r, c->self, SN_J_LIST, false, out);
}

static bool f_items(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jseq *s = sn_jseq_new(r, 0);
    if (!s)
        return false;
    if (c->self.type != SN_J_DICT && c->self.type != SN_J_UNDEF)
        return sn_jfail(r, SENNIT_INVALID, "items: a dictionary is needed, not a %s",
                        sn_jtype_name(c->self));
    for (size_t i = 0; c->self.type == SN_J_DICT && i < c->self.u.dict->n; i++) {
        struct sn_jval p;
        if (!make_pair(r, c->self.u.dict->keys[i], c->self.u.dict->vals[i], &p) ||
            !sn_jseq_push(r, s, p))
            return false;
    }
    *out = sn_jseqv(SN_J_ITER, s);
    return true;
}

static bool f_reverse(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    if (c->self.type == SN_J_STR)
        return sn_jslice(r, c->self, (const struct sn_jval[3]){{0}, {0}, sn_jint(-1)}, out);
    return copy_items(r, c->self, c->self.type == SN_J_ITER ? SN_J_LIST : SN_J_ITER, true, out);
}

/* unique(case_sensitive=False, attribute=None) */
static bool f_unique(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    bool sensitive;
    struct sn_jval *items, key, *known;
    size_t n;
    struct sn_jdict *seen = sn_jdict_new(r, 0);
    struct sn_jseq *s = seen ? sn_jseq_new(r, 0) : NULL;
    if (!s || !flag(r, c->a[0], &sensitive) || !sn_jiter(r, c->self, &items, &n))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!sort_key(r, items[i], c->a[1], sensitive, &key) || !sn_jdict_get(r, seen, key, &known))
            return false;
        if (!known && (!sn_jdict_set(r, seen, key, sn_jnone()) || !sn_jseq_push(r, s, items[i])))
            return false;
    }
    *out = sn_jseqv(SN_J_ITER, s);
    return true;
}

static bool count_arg(struct sn_jrun *r, const char *who, struct sn_jval v, int64_t *out)
{
    if (!sn_jis_int(v) || sn_jint_of(v) <= 0 || sn_jint_of(v) > INT32_MAX)
        return sn_jfail(r, SENNIT_INVALID, "%s: the count must be a positive integer", who);
    *out = sn_jint_of(v);
    return true;
}

/* batch(linecount, fill_with=None) */
static bool f_batch(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval *items;
    size_t n;
    int64_t per = 1;
    struct sn_jseq *all = sn_jseq_new(r, 0), *line = NULL;
    if (!all || !count_arg(r, "batch", c->a[0], &per) || !sn_jiter(r, c->self, &items, &n))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (i % (size_t)per == 0 &&
            (!(line = sn_jseq_new(r, 0)) || !sn_jseq_push(r, all, sn_jseqv(SN_J_LIST, line))))
            return false;
        if (!sn_jsteps(r, 1) || !sn_jseq_push(r, line, items[i]))
            return false;
    }
    while (line && !ABSENT(c->a[1]) && c->a[1].type != SN_J_NONE && line->n < (size_t)per)
        if (!sn_jsteps(r, 1) || !sn_jseq_push(r, line, c->a[1]))
            return false;
    *out = sn_jseqv(SN_J_ITER, all);
    return true;
}

/* slice(slices, fill_with=None): the first slices have one item more; the others get fill_with. */
static bool f_slice(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval *items;
    size_t n, at = 0;
    int64_t slices = 1;
    struct sn_jseq *all = sn_jseq_new(r, 0);
    if (!all || !count_arg(r, "slice", c->a[0], &slices) || !sn_jiter(r, c->self, &items, &n))
        return false;
    size_t per = n / (size_t)slices, longer = n % (size_t)slices;
    bool fill = !ABSENT(c->a[1]) && c->a[1].type != SN_J_NONE;
    for (size_t i = 0; i < (size_t)slices; i++) {
        struct sn_jseq *part = sn_jseq_new(r, 0);
        size_t end = at + per + (i < longer);
        if (!part || !sn_jsteps(r, 1 + end - at) ||
            !sn_jseq_push(r, all, sn_jseqv(SN_J_LIST, part)))
            return false;
        for (; at < end; at++)
            if (!sn_jseq_push(r, part, items[at]))
                return false;
        if (fill && i >= longer && !sn_jseq_push(r, part, c->a[1]))
            return false;
    }
    *out = sn_jseqv(SN_J_ITER, all);
    return true;
}

/* sum(attribute=None, start=0) */
static bool f_sum(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval *items, v, total = ABSENT(c->a[1]) ? sn_jint(0) : c->a[1];
    size_t n;
    if (total.type == SN_J_STR)
        return sn_jfail(r, SENNIT_INVALID, "sum: text cannot be summed; use |join");
    if (!sn_jiter(r, c->self, &items, &n))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!get_attr(r, items[i], c->a[0], (struct sn_jval){0}, &v) ||
            !sn_jbinary(r, SN_OP_ADD, total, v, &total))
            return false;
    *out = total;
    return true;
}

static bool f_attr(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    if (c->a[0].type != SN_J_STR)
        return sn_jfail(r, SENNIT_INVALID, "attr: a name is needed");
    if (c->self.type == SN_J_UNDEF)
        return sn_jundef_error(r, c->self);
    if (c->self.type == SN_J_DICT &&
        !sn_jtable_find(&sn_jmethods_dict, c->a[0].u.s)) { /* attributes only, no keys */
        *out = sn_jundef(SN_JU_ATTR, c->a[0].u.s);
        return true;
    }
    return sn_jattr(r, c->self, c->a[0].u.s, out);
}

/* ---- map, select, reject
 * ------------------------------------------------------------------------------------- */

static const struct sn_jval *keyword(const struct sn_jcall *c, const char *name)
{
    for (size_t i = 0; i < c->n_kw; i++)
        if (sn_jstr_eq(c->kw[i].name, name))
            return &c->kw[i].v;
    return NULL;
}

/* The builtin named by argument number `at`, and the arguments behind it. */
static bool named(struct sn_jrun *r, const struct sn_jcall *c, size_t at, bool filter,
                  const struct sn_jbuiltin **fn, struct sn_jcall *rest)
{
    const struct sn_jval name = c->pos[at];
    if (name.type != SN_J_STR)
        return sn_jfail(r, SENNIT_INVALID, "the name of a %s is needed, not a %s",
                        filter ? "filter" : "test", sn_jtype_name(name));
    *fn = filter ? sn_jfilter_find(name.u.s) : sn_jtest_find(name.u.s);
    if (!*fn)
        return sn_jfail(r, SENNIT_UNSUPPORTED, "no %s named '%.*s'", filter ? "filter" : "test",
                        (int)sn_min_size(name.u.s->len, 100), name.u.s->data);
    *rest = (struct sn_jcall){
        .pos = c->pos + at + 1, .n_pos = c->n_pos - at - 1, .kw = c->kw, .n_kw = c->n_kw};
    return true;
}

/* map, select and their kin take anything false, none included, for an empty sequence. */
static bool iter_or_nothing(struct sn_jrun *r, struct sn_jval v, struct sn_jval **items, size_t *n)
{
    bool some;
    *items = NULL;
    *n = 0;
    return sn_jtruth(r, v, &some) && (!some || sn_jiter(r, v, items, n));
}

static bool f_map(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval *items;
    size_t n;
    const struct sn_jval *attr = keyword(c, "attribute"), *otherwise = keyword(c, "default");
    const struct sn_jbuiltin *fn = NULL;
    struct sn_jcall call = {0};
    bool by_attr = c->n_pos == 0 && attr;
    struct sn_jseq *s = sn_jseq_new(r, 0);
    if (!s || !iter_or_nothing(r, c->self, &items, &n))
        return false;
    if (by_attr && c->n_kw != (size_t)1 + (otherwise != NULL))
        return sn_jfail(r, SENNIT_INVALID, "map: unknown argument beside attribute and default");
    if (!by_attr && c->n_pos == 0)
        return sn_jfail(r, SENNIT_INVALID, "map: a filter's name or attribute= is needed");
    if (!by_attr && n > 0 && !named(r, c, 0, true, &fn, &call))
        return false;
    for (size_t i = 0; i < n; i++) {
        struct sn_jval v;
        struct sn_jcall one = call;
        one.self = items[i];
        if (!sn_jsteps(r, 1))
            return false;
        if (!(by_attr
                  ? get_attr(r, items[i], *attr, otherwise ? *otherwise : (struct sn_jval){0}, &v)
                  : sn_jbuiltin_call(r, fn, &one, &v)))
            return false;
        if (!sn_jseq_push(r, s, v))
            return false;
    }
    *out = sn_jseqv(SN_J_ITER, s);
    return true;
}

/* select(test, ...), or selectattr(attribute, test, ...); keep = the result that stays. */
static bool choose(struct sn_jrun *r, const struct sn_jcall *c, bool by_attr, bool keep,
                   struct sn_jval *out)
{
    struct sn_jval *items;
    size_t n, at = by_attr ? 1 : 0;
    const struct sn_jbuiltin *fn = NULL;
    struct sn_jcall call = {0};
    struct sn_jseq *s = sn_jseq_new(r, 0);
    if (!s || !iter_or_nothing(r, c->self, &items, &n))
        return false;
    if (by_attr && c->n_pos == 0)
        return sn_jfail(r, SENNIT_INVALID, "the name of an attribute is needed");
    if (c->n_pos > at && n > 0 && !named(r, c, at, false, &fn, &call))
        return false;
    for (size_t i = 0; i < n; i++) {
        struct sn_jval v = items[i];
        struct sn_jcall one = call;
        bool yes;
        if (!sn_jsteps(r, 1) ||
            (by_attr && !get_attr(r, items[i], c->pos[0], (struct sn_jval){0}, &v)))
            return false;
        one.self = v;
        if ((fn && !sn_jbuiltin_call(r, fn, &one, &v)) || !sn_jtruth(r, v, &yes) ||
            (yes == keep && !sn_jseq_push(r, s, items[i])))
            return false;
    }
    *out = sn_jseqv(SN_J_ITER, s);
    return true;
}

static bool f_select(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return choose(r, c, false, true, out);
}
static bool f_reject(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return choose(r, c, false, false, out);
}
static bool f_selectattr(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return choose(r, c, true, true, out);
}
static bool f_rejectattr(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return choose(r, c, true, false, out);
}

static const struct sn_jbuiltin table[] = {
    {"attr", f_attr, "name", 1},
    {"batch", f_batch, "linecount fill_with", 1},
    {"dictsort", f_dictsort, "case_sensitive by reverse", 0},
    {"first", f_first, "", 0},
    {"items", f_items, "", 0},
    {"join", f_join, "d attribute", 0},
    {"last", f_last, "", 0},
    {"list", f_list, "", 0},
    {"map", f_map, NULL, 0},
    {"max", f_max, "case_sensitive attribute", 0},
    {"min", f_min, "case_sensitive attribute", 0},
    {"reject", f_reject, NULL, 0},
    {"rejectattr", f_rejectattr, NULL, 0},
    {"reverse", f_reverse, "", 0},
    {"select", f_select, NULL, 0},
    {"selectattr", f_selectattr, NULL, 0},
    {"slice", f_slice, "slices fill_with", 1},
    {"sort", f_sort, "reverse case_sensitive attribute", 0},
    {"sum", f_sum, "attribute start", 0},
    {"unique", f_unique, "case_sensitive attribute", 0},
};
const struct sn_jtable sn_jfilters_seq = {table, SN_ARRAY_LEN(table)};

const struct sn_jbuiltin *sn_jfilter_find(const struct sn_jstr *name)
{
    const struct sn_jbuiltin *fn = sn_jtable_find(&sn_jfilters_text, name);
    if (!fn)
        fn = sn_jtable_find(&sn_jfilters_seq, name);
    return fn ? fn : sn_jtable_find(&sn_jfilters_markup, name);
}
