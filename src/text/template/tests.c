/* Tests (`x is ...`) and global functions. */
#include "text/template/run.h"

static bool answer(struct sn_jval *out, bool yes)
{
    *out = sn_jbool(yes);
    return true;
}

#define SIMPLE(name, condition)                                                                    \
    static bool name(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)             \
    {                                                                                              \
        (void)r;                                                                                   \
        return answer(out, condition);                                                             \
    }
#define TYPE (c->self.type)
SIMPLE(t_defined, TYPE != SN_J_UNDEF)
SIMPLE(t_undefined, TYPE == SN_J_UNDEF)
SIMPLE(t_none, TYPE == SN_J_NONE)
SIMPLE(t_boolean, TYPE == SN_J_BOOL)
SIMPLE(t_true, TYPE == SN_J_BOOL && c->self.u.b)
SIMPLE(t_false, TYPE == SN_J_BOOL && !c->self.u.b)
SIMPLE(t_integer, TYPE == SN_J_INT)
SIMPLE(t_float, TYPE == SN_J_FLOAT)
SIMPLE(t_number, sn_jis_num(c->self))
SIMPLE(t_string, TYPE == SN_J_STR)
SIMPLE(t_mapping, TYPE == SN_J_DICT)
SIMPLE(t_iterable, TYPE == SN_J_UNDEF || TYPE == SN_J_STR || TYPE == SN_J_DICT ||
                       TYPE == SN_J_LOOP || sn_jis_seq(c->self))
SIMPLE(t_sequence, TYPE == SN_J_UNDEF || TYPE == SN_J_STR || TYPE == SN_J_DICT ||
                       (TYPE >= SN_J_LIST && TYPE < SN_J_VIEW))
SIMPLE(t_callable, TYPE == SN_J_UNDEF || TYPE == SN_J_FUNC || TYPE == SN_J_MACRO ||
                       TYPE == SN_J_METHOD || TYPE == SN_J_LOOP)
SIMPLE(t_escaped, TYPE == SN_J_STR && c->self.u.s->markup)

static bool t_sameas(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jval a = c->self, b = c->a[0];
    if (a.type != b.type)
        return answer(out, false);
    if (a.type == SN_J_NONE)
        return answer(out, true);
    if (a.type == SN_J_BOOL)
        return answer(out, a.u.b == b.u.b);
    if (a.type == SN_J_LIST || a.type == SN_J_DICT || a.type == SN_J_NS)
        return answer(out, a.u.seq == b.u.seq);
    return sn_jfail(r, SENNIT_UNSUPPORTED,
                    "sameas on a %s is not supported; use ==", sn_jtype_name(a));
}

static bool t_case(struct sn_jrun *r, const struct sn_jcall *c, enum sn_case want,
                   struct sn_jval *out)
{
    const struct sn_jstr *s;
    bool cased = false;
    uint32_t to[3];
    if (!sn_jstr_of(r, c->self, &s))
        return false;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp = sn_uni_next(s->data, s->len, &i);
        if (sn_uni_case(want == SN_LOWER ? SN_LOWER : SN_UPPER, cp, to) != 1 || to[0] != cp)
            return answer(out, false);
        cased |= sn_uni_case(want == SN_LOWER ? SN_UPPER : SN_LOWER, cp, to) != 1 || to[0] != cp;
    }
    return answer(out, cased);
}

static bool t_lower(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return t_case(r, c, SN_LOWER, out);
}
static bool t_upper(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return t_case(r, c, SN_UPPER, out);
}

static bool t_modulo(struct sn_jrun *r, struct sn_jval v, struct sn_jval by, int64_t rest,
                     struct sn_jval *out)
{
    struct sn_jval m;
    bool same;
    if (v.type == SN_J_STR)
        return sn_jfail(r, SENNIT_INVALID, "a number is needed, not a str");
    if (!sn_jbinary(r, SN_OP_MOD, v, by, &m) || !sn_jequal(r, m, sn_jint(rest), &same))
        return false;
    return answer(out, same);
}

static bool t_even(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return t_modulo(r, c->self, sn_jint(2), 0, out);
}
static bool t_odd(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return t_modulo(r, c->self, sn_jint(2), 1, out);
}
static bool t_divisibleby(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    return t_modulo(r, c->self, c->a[0], 0, out);
}

static bool t_in(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    bool yes;
    return sn_jcontains(r, c->a[0], c->self, &yes) && answer(out, yes);
}

static bool t_filter(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    (void)r;
    return answer(out, TYPE == SN_J_STR && sn_jfilter_find(c->self.u.s));
}

static bool t_test(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    (void)r;
    return answer(out, TYPE == SN_J_STR && sn_jtest_find(c->self.u.s));
}

#define COMPARE(name, op)                                                                          \
    static bool name(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)             \
    {                                                                                              \
        bool yes;                                                                                  \
        return sn_jcompare(r, c->self, c->a[0], op, &yes) && answer(out, yes);                     \
    }
COMPARE(t_eq, SN_OP_EQ)
COMPARE(t_ne, SN_OP_NE)
COMPARE(t_lt, SN_OP_LT)
COMPARE(t_le, SN_OP_LE)
COMPARE(t_gt, SN_OP_GT)
COMPARE(t_ge, SN_OP_GE)

static const struct sn_jbuiltin tests[] = {
    {"!=", t_ne, "other", 1},
    {"<", t_lt, "other", 1},
    {"<=", t_le, "other", 1},
    {"==", t_eq, "other", 1},
    {">", t_gt, "other", 1},
    {">=", t_ge, "other", 1},
    {"boolean", t_boolean, "", 0},
    {"callable", t_callable, "", 0},
    {"defined", t_defined, "", 0},
    {"divisibleby", t_divisibleby, "num", 1},
    {"eq", t_eq, "other", 1},
    {"equalto", t_eq, "other", 1},
    {"escaped", t_escaped, "", 0},
    {"even", t_even, "", 0},
    {"false", t_false, "", 0},
    {"filter", t_filter, "", 0},
    {"float", t_float, "", 0},
    {"ge", t_ge, "other", 1},
    {"greaterthan", t_gt, "other", 1},
    {"gt", t_gt, "other", 1},
    {"in", t_in, "seq", 1},
    {"integer", t_integer, "", 0},
    {"iterable", t_iterable, "", 0},
    {"le", t_le, "other", 1},
    {"lessthan", t_lt, "other", 1},
    {"lower", t_lower, "", 0},
    {"lt", t_lt, "other", 1},
    {"mapping", t_mapping, "", 0},
    {"ne", t_ne, "other", 1},
    {"none", t_none, "", 0},
    {"number", t_number, "", 0},
    {"odd", t_odd, "", 0},
    {"sameas", t_sameas, "other", 1},
    {"sequence", t_sequence, "", 0},
    {"string", t_string, "", 0},
    {"test", t_test, "", 0},
    {"true", t_true, "", 0},
    {"undefined", t_undefined, "", 0},
    {"upper", t_upper, "", 0},
};
const struct sn_jtable sn_jtests = {tests, SN_ARRAY_LEN(tests)};

const struct sn_jbuiltin *sn_jtest_find(const struct sn_jstr *name)
{
    return sn_jtable_find(&sn_jtests, name);
}

/* ---- globals --------------------------------------------------------------------------------- */

enum { MAX_RANGE = 100000 };

static bool g_range(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    int64_t v[3] = {0, 0, 1};
    size_t n_args = c->a[2].type != SN_J_ABSENT ? 3 : c->a[1].type != SN_J_ABSENT ? 2 : 1;
    for (size_t i = 0; i < n_args; i++) {
        if (c->a[i].type == SN_J_UNDEF)
            return sn_jundef_error(r, c->a[i]);
        if (!sn_jis_int(c->a[i]))
            return sn_jfail(r, SENNIT_INVALID, "range: integers are needed, not a %s",
                            sn_jtype_name(c->a[i]));
        v[n_args == 1 ? 1 : i] = sn_jint_of(c->a[i]);
    }
    if (v[2] == 0)
        return sn_jfail(r, SENNIT_INVALID, "range: the step cannot be zero");
    bool up = v[2] > 0;
    uint64_t dist = up ? (v[1] > v[0] ? (uint64_t)v[1] - (uint64_t)v[0] : 0)
                       : (v[0] > v[1] ? (uint64_t)v[0] - (uint64_t)v[1] : 0);
    uint64_t step = up ? (uint64_t)v[2] : 0 - (uint64_t)v[2], n = dist / step + (dist % step != 0);
    if (n > MAX_RANGE)
        return sn_jfail(r, SENNIT_INVALID, "range: more than %d items", MAX_RANGE);
    struct sn_jseq *s = sn_jseq_new(r, (size_t)n);
    if (!s || !sn_jsteps(r, n))
        return false;
    s->start = v[0];
    s->stop = v[1];
    s->step = v[2];
    for (s->n = 0; s->n < n; s->n++)
        s->v[s->n] = sn_jint(v[0] + (int64_t)s->n * v[2]);
    *out = sn_jseqv(SN_J_RANGE, s);
    return true;
}

static bool fill_dict(struct sn_jrun *r, struct sn_jdict *d, struct sn_jval from)
{
    struct sn_jval *items, *pair;
    size_t n, n_pair;
    if (from.type == SN_J_UNDEF)
        return true;
    if (from.type == SN_J_DICT || from.type == SN_J_NS) {
        for (size_t i = 0; i < from.u.dict->n; i++)
            if (!sn_jdict_set(r, d, from.u.dict->keys[i], from.u.dict->vals[i]))
                return false;
        return true;
    }
    if (!sn_jiter(r, from, &items, &n))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!sn_jiter(r, items[i], &pair, &n_pair))
            return false;
        if (n_pair != 2)
            return sn_jfail(r, SENNIT_INVALID, "dict: each item must be a pair");
        if (!sn_jdict_set(r, d, pair[0], pair[1]))
            return false;
    }
    return true;
}

static bool g_dict(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    struct sn_jdict *d = sn_jdict_new(r, 0);
    if (!d)
        return false;
    if (c->n_pos > 1)
        return sn_jfail(r, SENNIT_INVALID, "at most one positional argument is allowed here");
    if (c->n_pos && !fill_dict(r, d, c->pos[0]))
        return false;
    for (size_t i = 0; i < c->n_kw; i++)
        if (!sn_jdict_set(r, d, sn_jstrv(c->kw[i].name), c->kw[i].v))
            return false;
    *out = sn_jdictv(d);
    return true;
}

static bool g_namespace(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    if (!g_dict(r, c, out))
        return false;
    for (size_t i = 0; i < out->u.dict->n; i++) {
        struct sn_jval k = out->u.dict->keys[i];
        if (k.type == SN_J_STR && k.u.s->len && k.u.s->data[0] == '_')
            return sn_jfail(r, SENNIT_INVALID,
                            "a namespace attribute may not begin with an underscore");
    }
    out->type = SN_J_NS;
    return true;
}

static bool g_raise(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    (void)out;
    if (!sn_jstr_of(r, c->a[0], &s))
        return false;
    return sn_jfail(r, SENNIT_INVALID, "%.*s", (int)sn_min_size(s->len, 1000), s->data);
}

static bool g_strftime(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    if (c->a[0].type != SN_J_STR)
        return sn_jfail(r, SENNIT_INVALID, "strftime_now: a format is needed");
    return sn_jstrftime(r, c->a[0].u.s, out);
}

static bool g_refuse(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    (void)out;
    return sn_jfail(r, SENNIT_UNSUPPORTED, "the function '%s' is not supported",
                    c->self.u.fn->name);
}

static const struct sn_jbuiltin globals[] = {
    {"cycler", g_refuse, NULL, 0},
    {"dict", g_dict, NULL, 0},
    {"joiner", g_refuse, NULL, 0},
    {"lipsum", g_refuse, NULL, 0},
    {"namespace", g_namespace, NULL, 0},
    {"raise_exception", g_raise, "message", 1},
    {"range", g_range, "start stop step", 1},
    {"strftime_now", g_strftime, "format", 1},
};
const struct sn_jtable sn_jglobals = {globals, SN_ARRAY_LEN(globals)};
