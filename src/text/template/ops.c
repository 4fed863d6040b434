/* Operators with Python's meaning: truth, equality, order, membership, arithmetic. */
#include "text/template/run.h"

#include <math.h>

/* ---- undefined, truth, length
 * ---------------------------------------------------------------------------------- */

bool sn_jundef_error(struct sn_jrun *r, struct sn_jval v)
{
    const struct sn_jstr *s = v.u.s;
    int n = s ? (int)sn_min_size(s->len, 100) : 0;
    const char *name = s ? s->data : "";
    switch ((enum sn_jundef)v.aux) {
    case SN_JU_ATTR:
        return sn_jfail(r, SENNIT_INVALID, "the value has no attribute or key '%.*s'", n, name);
    case SN_JU_ARG:
        return sn_jfail(r, SENNIT_INVALID, "parameter '%.*s' was not provided", n, name);
    case SN_JU_UNSAFE:
        return sn_jfail(r, SENNIT_INVALID,
                        "'%.*s' is out of a template's reach: values cannot be changed in place", n,
                        name);
    case SN_JU_EMPTY:
        return sn_jfail(r, SENNIT_INVALID, "there is no such item");
    case SN_JU_NAME:
        break;
    }
    return sn_jfail(r, SENNIT_INVALID, "'%.*s' is undefined", n, name);
}

bool sn_jtruth(struct sn_jrun *r, struct sn_jval v, bool *out)
{
    (void)r;
    switch (v.type) {
    case SN_J_ABSENT:
    case SN_J_UNDEF:
    case SN_J_NONE:
        *out = false;
        break;
    case SN_J_BOOL:
        *out = v.u.b;
        break;
    case SN_J_INT:
        *out = v.u.i != 0;
        break;
    case SN_J_FLOAT:
        *out = v.u.f != 0.0;
        break;
    case SN_J_STR:
        *out = v.u.s->len > 0;
        break;
    case SN_J_LIST:
    case SN_J_TUPLE:
    case SN_J_RANGE:
    case SN_J_VIEW:
        *out = v.u.seq->n > 0;
        break;
    case SN_J_DICT:
        *out = v.u.dict->n > 0;
        break;
    default:
        *out = true;
        break;
    }
    return true;
}

bool sn_jlength(struct sn_jrun *r, struct sn_jval v, int64_t *out)
{
    switch (v.type) {
    case SN_J_UNDEF:
        *out = 0;
        return true;
    case SN_J_STR:
        *out = (int64_t)v.u.s->n_chars;
        return true;
    case SN_J_LIST:
    case SN_J_TUPLE:
    case SN_J_RANGE:
    case SN_J_VIEW:
        *out = (int64_t)v.u.seq->n;
        return true;
    case SN_J_DICT:
        *out = (int64_t)v.u.dict->n;
        return true;
    case SN_J_LOOP:
        *out = (int64_t)v.u.loop->n;
        return true;
    default:
        return sn_jfail(r, SENNIT_INVALID, "a %s has no length%s", sn_jtype_name(v),
                        v.type == SN_J_ITER ? "; use |list first" : "");
    }
}

static bool characters(struct sn_jrun *r, const struct sn_jstr *s, struct sn_jval **items,
                       size_t *n)
{
    *items = sn_jnew(r, s->n_chars + 1, sizeof **items);
    *n = 0;
    if (!*items || !sn_jsteps(r, s->n_chars))
        return false;
    for (size_t i = 0; i < s->len;) {
        size_t at = i;
        (void)sn_uni_next(s->data, s->len, &i);
        if (!sn_jslice_bytes(r, s, at, i, &(*items)[(*n)++]))
            return false;
    }
    return true;
}

bool sn_jiter(struct sn_jrun *r, struct sn_jval v, struct sn_jval **items, size_t *n)
{
    *items = NULL;
    *n = 0;
    if (v.type == SN_J_UNDEF)
        return true;
    if (v.type == SN_J_STR)
        return characters(r, v.u.s, items, n);
    if (v.type == SN_J_DICT) {
        *items = v.u.dict->keys;
        *n = v.u.dict->n;
        return true;
    }
    if (!sn_jis_seq(v))
        return sn_jfail(r, SENNIT_INVALID, "a %s cannot be iterated over", sn_jtype_name(v));
    struct sn_jseq *s = v.u.seq;
    *items = s->v ? s->v + s->pos : NULL;
    *n = s->n - s->pos;
    if (v.type == SN_J_ITER)
        s->pos = s->n;
    return true;
}

/* ---- equality and order
 * -------------------------------------------------------------------------------------- */

/* -1, 0, 1; 2 when not comparable (a NaN). Exact for any pair of a 64-bit integer and a double. */
static int order_numbers(struct sn_jval a, struct sn_jval b)
{
    if (sn_jis_int(a) && sn_jis_int(b)) {
        int64_t x = sn_jint_of(a), y = sn_jint_of(b);
        return (x > y) - (x < y);
    }
    if (a.type == SN_J_FLOAT && b.type == SN_J_FLOAT)
        return isnan(a.u.f) || isnan(b.u.f) ? 2 : (a.u.f > b.u.f) - (a.u.f < b.u.f);
    if (a.type == SN_J_FLOAT) {
        int turned = order_numbers(b, a);
        return turned == 2 ? 2 : -turned;
    }
    double f = b.u.f;
    int64_t x = sn_jint_of(a);
    if (isnan(f))
        return 2;
    if (f >= 0x1p63 || f < -0x1p63)
        return f > 0 ? -1 : 1;
    int64_t whole = (int64_t)f;
    if (x != whole)
        return x > whole ? 1 : -1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static bool equal_seq(struct sn_jrun *r, const struct sn_jseq *a, const struct sn_jseq *b,
                      bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        if (!sn_jequal(r, a->v[i], b->v[i], out))
            return false;
    return true;
}

static bool equal_dict(struct sn_jrun *r, const struct sn_jdict *a, const struct sn_jdict *b,
                       bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        struct sn_jval *other;
        if (!sn_jdict_get(r, b, a->keys[i], &other))
            return false;
        *out = other != NULL;
        if (other && !sn_jequal(r, a->vals[i], *other, out))
            return false;
    }
    return true;
}

/* Views of keys and of pairs are sets; views of values are equal to none but themselves. */
static bool equal_view(struct sn_jrun *r, struct sn_jval a, struct sn_jval b, bool *out)
{
    const struct sn_jseq *x = a.u.seq, *y = b.u.seq;
    *out = x == y || (a.aux != 'v' && b.aux != 'v' && x->n == y->n);
    for (size_t i = 0; *out && x != y && i < x->n; i++) {
        bool found = false;
        for (size_t k = 0; !found && k < y->n; k++)
            if (!sn_jequal(r, x->v[i], y->v[k], &found))
                return false;
        *out = found;
    }
    return true;
}

bool sn_jequal(struct sn_jrun *r, struct sn_jval a, struct sn_jval b, bool *out)
{
    if (!sn_jsteps(r, 1) || !sn_jenter(r))
        return false;
    bool ok = true;
    *out = false;
    if (sn_jis_num(a) && sn_jis_num(b))
        *out = order_numbers(a, b) == 0;
    else if (a.type != b.type)
        *out = false;
    else if (a.type == SN_J_STR)
        *out = sn_jstr_same(a.u.s, b.u.s);
    else if (a.type == SN_J_LIST || a.type == SN_J_TUPLE || a.type == SN_J_RANGE)
        ok = equal_seq(r, a.u.seq, b.u.seq, out);
    else if (a.type == SN_J_DICT)
        ok = equal_dict(r, a.u.dict, b.u.dict, out);
    else if (a.type == SN_J_VIEW)
        ok = equal_view(r, a, b, out);
    else if (a.type == SN_J_NONE || a.type == SN_J_UNDEF)
        *out = true;
    else
        *out = a.u.seq == b.u.seq; /* the same object */
    sn_jleave(r);
    return ok;
}

static bool op_holds(int order, enum sn_jop op)
{
    switch (op) {
    case SN_OP_LT:
        return order == -1;
    case SN_OP_LE:
        return order == -1 || order == 0;
    case SN_OP_GT:
        return order == 1;
    default:
        return order == 1 || order == 0;
    }
}

static int order_strings(const struct sn_jstr *a, const struct sn_jstr *b)
{
    int c =
        memcmp(a->data, b->data, sn_min_size(a->len, b->len)); /* UTF-8 sorts as code points do */
    return c ? (c > 0) - (c < 0) : (a->len > b->len) - (a->len < b->len);
}

static bool order_seq(struct sn_jrun *r, const struct sn_jseq *a, const struct sn_jseq *b,
                      enum sn_jop op, bool *out)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        if (!sn_jequal(r, a->v[i], b->v[i], &same))
            return false;
        if (!same)
            return sn_jcompare(r, a->v[i], b->v[i], op, out);
    }
    *out = op_holds((a->n > b->n) - (a->n < b->n), op);
    return true;
}

bool sn_jcompare(struct sn_jrun *r, struct sn_jval a, struct sn_jval b, enum sn_jop op, bool *out)
{
    static const char *const text[] = {
        [SN_OP_LT] = "<", [SN_OP_LE] = "<=", [SN_OP_GT] = ">", [SN_OP_GE] = ">="};
    if (op == SN_OP_EQ || op == SN_OP_NE) {
        bool ok = sn_jequal(r, a, b, out);
        *out = *out == (op == SN_OP_EQ);
        return ok;
    }
    if (a.type == SN_J_UNDEF || b.type == SN_J_UNDEF)
        return sn_jundef_error(r, a.type == SN_J_UNDEF ? a : b);
    if (!sn_jsteps(r, 1) || !sn_jenter(r))
        return false;
    bool ok = true;
    if (sn_jis_num(a) && sn_jis_num(b))
        *out = op_holds(order_numbers(a, b), op);
    else if (a.type == SN_J_STR && b.type == SN_J_STR)
        *out = op_holds(order_strings(a.u.s, b.u.s), op);
    else if (a.type == b.type && (a.type == SN_J_LIST || a.type == SN_J_TUPLE))
        ok = order_seq(r, a.u.seq, b.u.seq, op, out);
    else
        ok = sn_jfail(r, SENNIT_INVALID, "'%s' does not work between a %s and a %s", text[op],
                      sn_jtype_name(a), sn_jtype_name(b));
    sn_jleave(r);
    return ok;
}

bool sn_jcontains(struct sn_jrun *r, struct sn_jval hay, struct sn_jval needle, bool *out)
{
    if (hay.type == SN_J_STR) {
        size_t at;
        if (needle.type == SN_J_UNDEF)
            return sn_jundef_error(r, needle);
        if (needle.type != SN_J_STR)
            return sn_jfail(r, SENNIT_INVALID, "'in' on a str needs a str on the left, not a %s",
                            sn_jtype_name(needle));
        *out = sn_jfind(hay.u.s, 0, needle.u.s, &at);
        return true;
    }
    if (hay.type == SN_J_DICT) {
        struct sn_jval *v;
        if (!sn_jdict_get(r, hay.u.dict, needle, &v))
            return false;
        *out = v != NULL;
        return true;
    }
    struct sn_jval *items;
    size_t n;
    if (!sn_jiter(r, hay, &items, &n))
        return false;
    *out = false;
    for (size_t i = 0; i < n && !*out; i++)
        if (!sn_jequal(r, items[i], needle, out))
            return false;
    return true;
}

/* ---- arithmetic
 * ---------------------------------------------------------------------------------------------- */

static bool overflow(struct sn_jrun *r)
{
    return sn_jfail(r, SENNIT_INVALID, "an integer left the 64-bit range");
}

static bool zero_division(struct sn_jrun *r)
{
    return sn_jfail(r, SENNIT_INVALID, "division by zero");
}

static bool int_pow(struct sn_jrun *r, int64_t base, int64_t e, struct sn_jval *out)
{
    int64_t result = 1;
    for (; e > 0; e >>= 1) {
        if ((e & 1) && __builtin_mul_overflow(result, base, &result))
            return overflow(r);
        if (e > 1 && __builtin_mul_overflow(base, base, &base))
            return overflow(r);
    }
    *out = sn_jint(result);
    return true;
}

static bool int_divide(struct sn_jrun *r, enum sn_jop op, int64_t x, int64_t y, struct sn_jval *out)
{
    if (y == 0)
        return zero_division(r);
    if (x == INT64_MIN && y == -1) {
        *out = sn_jint(0);
        return op == SN_OP_MOD || overflow(r);
    }
    int64_t q = x / y, m = x % y;
    if (m != 0 && (m < 0) != (y < 0)) {
        q--;
        m += y;
    }
    *out = sn_jint(op == SN_OP_MOD ? m : q);
    return true;
}

static bool float_binary(struct sn_jrun *r, enum sn_jop op, double x, double y, struct sn_jval *out)
{
    double v = 0, m;
    switch (op) {
    case SN_OP_ADD:
        v = x + y;
        break;
    case SN_OP_SUB:
        v = x - y;
        break;
    case SN_OP_MUL:
        v = x * y;
        break;
    case SN_OP_DIV:
        if (y == 0)
            return zero_division(r);
        v = x / y;
        break;
    case SN_OP_POW:
        if (x == 0 && y < 0)
            return zero_division(r);
        v = pow(x, y);
        if (isnan(v) && !isnan(x) && !isnan(y))
            return sn_jfail(r, SENNIT_UNSUPPORTED, "complex numbers are not supported");
        if (isinf(v) && isfinite(x) && isfinite(y))
            return sn_jfail(r, SENNIT_INVALID, "the result of ** is too large");
        break;
    default:
        if (y == 0)
            return zero_division(r);
        m = fmod(x, y);
        if (m != 0 && (m < 0) != (y < 0))
            m += y;
        if (m == 0)
            m = copysign(0.0, y);
        if (op == SN_OP_MOD) {
            v = m;
            break;
        }
        v = (x - m) / y;
        if (v != 0) {
            double whole = floor(v);
            v = v - whole > 0.5 ? whole + 1 : whole;
        } else {
            v = copysign(0.0, x / y);
        }
        break;
    }
    *out = sn_jfloat(v);
    return true;
}

static bool int_binary(struct sn_jrun *r, enum sn_jop op, int64_t x, int64_t y, struct sn_jval *out)
{
    int64_t v = 0;
    bool over = false;
    switch (op) {
    case SN_OP_ADD:
        over = __builtin_add_overflow(x, y, &v);
        break;
    case SN_OP_SUB:
        over = __builtin_sub_overflow(x, y, &v);
        break;
    case SN_OP_MUL:
        over = __builtin_mul_overflow(x, y, &v);
        break;
    case SN_OP_FLOORDIV:
    case SN_OP_MOD:
        return int_divide(r, op, x, y, out);
    case SN_OP_POW:
        if (y >= 0)
            return int_pow(r, x, y, out);
        /* fallthrough */
    default:
        return float_binary(r, op, (double)x, (double)y, out);
    }
    *out = sn_jint(v);
    return !over || overflow(r);
}

static bool repeat(struct sn_jrun *r, struct sn_jval v, int64_t times, struct sn_jval *out)
{
    size_t n = times > 0 ? (size_t)times : 0, len = v.type == SN_J_STR ? v.u.s->len : v.u.seq->n;
    if (len == 0)
        n = 0;
    if (!sn_jsteps(r, n))
        return false;
    if (v.type == SN_J_STR) {
        struct sn_jsb b;
        sn_jsb_init(&b, r);
        for (size_t i = 0; i < n && !b.failed; i++)
            sn_jsb_str(&b, v.u.s);
        return sn_jsb_val(&b, out);
    }
    struct sn_jseq *s = sn_jseq_new(r, 0);
    if (!s)
        return false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < len; k++)
            if (!sn_jseq_push(r, s, v.u.seq->v[k]))
                return false;
    *out = sn_jseqv(v.type, s);
    return true;
}

static bool join_seq(struct sn_jrun *r, struct sn_jval a, struct sn_jval b, struct sn_jval *out)
{
    struct sn_jseq *s = sn_jseq_new(r, a.u.seq->n + b.u.seq->n);
    if (!s || !sn_jsteps(r, a.u.seq->n + b.u.seq->n))
        return false;
    if (a.u.seq->n)
        memcpy(s->v, a.u.seq->v, a.u.seq->n * sizeof *s->v);
    if (b.u.seq->n)
        memcpy(s->v + a.u.seq->n, b.u.seq->v, b.u.seq->n * sizeof *s->v);
    s->n = a.u.seq->n + b.u.seq->n;
    *out = sn_jseqv(a.type, s);
    return true;
}

/* Text plus markup: the text is escaped, the result is markup. */
static bool add_strings(struct sn_jrun *r, const struct sn_jstr *a, const struct sn_jstr *b,
                        struct sn_jval *out)
{
    const struct sn_jstr *s;
    bool markup = a->markup || b->markup;
    if ((markup && !a->markup && !sn_jescape(r, a, &a)) ||
        (markup && !b->markup && !sn_jescape(r, b, &b)) || !sn_jconcat(r, a, b, &s))
        return false;
    if (markup) {
        struct sn_jstr *marked = sn_jnew(r, 1, sizeof *marked);
        if (!marked)
            return false;
        *marked = *s;
        marked->markup = true;
        s = marked;
    }
    *out = sn_jstrv(s);
    return true;
}

static bool repeatable(struct sn_jval v)
{
    return v.type == SN_J_STR || v.type == SN_J_LIST || v.type == SN_J_TUPLE;
}

bool sn_jbinary(struct sn_jrun *r, enum sn_jop op, struct sn_jval a, struct sn_jval b,
                struct sn_jval *out)
{
    static const char *const text[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (a.type == SN_J_STR && op == SN_OP_MOD)
        return sn_jpercent(r, a.u.s, b, out);
    if (a.type == SN_J_UNDEF || b.type == SN_J_UNDEF)
        return sn_jundef_error(r, a.type == SN_J_UNDEF ? a : b);
    if (sn_jis_int(a) && sn_jis_int(b))
        return int_binary(r, op, sn_jint_of(a), sn_jint_of(b), out);
    if (sn_jis_num(a) && sn_jis_num(b))
        return float_binary(r, op, sn_jfloat_of(a), sn_jfloat_of(b), out);
    if (op == SN_OP_ADD && a.type == SN_J_STR && b.type == SN_J_STR)
        return add_strings(r, a.u.s, b.u.s, out);
    if (op == SN_OP_ADD && a.type == b.type && (a.type == SN_J_LIST || a.type == SN_J_TUPLE))
        return join_seq(r, a, b, out);
    if (op == SN_OP_MUL && repeatable(a) && sn_jis_int(b))
        return repeat(r, a, sn_jint_of(b), out);
    if (op == SN_OP_MUL && sn_jis_int(a) && repeatable(b))
        return repeat(r, b, sn_jint_of(a), out);
    return sn_jfail(r, SENNIT_INVALID, "'%s' does not work on a %s and a %s%s", text[op],
                    sn_jtype_name(a), sn_jtype_name(b),
                    op == SN_OP_ADD && (a.type == SN_J_STR || b.type == SN_J_STR)
                        ? "; join text with ~ or |string"
                        : "");
}
