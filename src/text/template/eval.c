/* Expressions. One function per kind of node; sn_jeval counts steps and bounds the depth. */
#include "text/template/run.h"

#include <stdio.h>

/* ---- failures and limits
 * --------------------------------------------------------------------------------------- */

/* A message names parts of values, cut at some byte: what is left of a character goes. */
static void mend(char *text)
{
    size_t bad, n = strlen(text);
    while (!sn_uni_valid(text, n, &bad)) {
        if (n - bad < 4) {
            text[n = bad] = '\0';
        } else {
            text[bad] = '?';
        }
    }
}

bool sn_jfail(struct sn_jrun *r, sennit_status status, const char *fmt, ...)
{
    char text[460]; /* with the place before it, it fits an error's message */
    va_list ap;
    if (r->status != SENNIT_OK)
        return false; /* the first failure is the one to report */
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mend(text);
    if (r->at)
        r->status = sn_fail(r->err, status, "template line %u, column %u: %s", r->at->line,
                            r->at->col, text);
    else
        r->status = sn_fail(r->err, status, "template: %s", text);
    return false;
}

bool sn_jnomem(struct sn_jrun *r)
{
    if (r->arena.over)
        return sn_jfail(r, SENNIT_TOO_BIG,
                        "rendering needs more than the allowed %zu bytes of memory", r->arena.max);
    return sn_jfail(r, SENNIT_NOMEM, "out of memory while rendering a template");
}

bool sn_jsteps(struct sn_jrun *r, uint64_t n)
{
    if (n > r->max_steps - r->steps)
        return sn_jfail(r, SENNIT_TOO_BIG, "rendering takes more than the allowed %llu steps",
                        (unsigned long long)r->max_steps);
    r->steps += n;
    return true;
}

bool sn_jenter(struct sn_jrun *r)
{
    if (r->depth >= r->max_depth)
        return sn_jfail(r, SENNIT_TOO_BIG, "nested more than %u levels deep", r->max_depth);
    r->depth++;
    return true;
}

void *sn_jnew(struct sn_jrun *r, size_t n, size_t size)
{
    size_t bytes;
    r->arena.over = sn_mul_overflows(n, size, &bytes);
    void *p = r->arena.over ? NULL : sn_jarena_alloc(&r->arena, bytes);
    if (!p)
        (void)!sn_jnomem(r);
    return p;
}

/* ---- calls ----------------------------------------------------------------------------------- */

const struct sn_jbuiltin *sn_jtable_find(const struct sn_jtable *t, const struct sn_jstr *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (sn_jstr_eq(name, t->v[i].name))
            return &t->v[i];
    return NULL;
}

/* Index of `name` among the blank-separated params, or the number of params when it is none of
 * them. */
static size_t param_index(const char *params, const struct sn_jstr *name, size_t *n_params)
{
    size_t i = 0, found = SIZE_MAX;
    for (const char *p = params; *p; i++) {
        size_t n = strcspn(p, " ");
        if (name && n == name->len && memcmp(p, name->data, n) == 0)
            found = i;
        p += n + (p[n] == ' ');
    }
    *n_params = i;
    return found == SIZE_MAX ? i : found;
}

bool sn_jbuiltin_call(struct sn_jrun *r, const struct sn_jbuiltin *fn, struct sn_jcall *c,
                      struct sn_jval *out)
{
    if (!fn->params)
        return fn->fn(r, c, out);
    size_t n_params;
    (void)param_index(fn->params, NULL, &n_params);
    memset(c->a, 0, sizeof c->a);
    if (c->n_pos > n_params)
        return sn_jfail(r, SENNIT_INVALID, "%s takes at most %zu arguments, %zu were given",
                        fn->name, n_params, c->n_pos);
    for (size_t i = 0; i < c->n_pos; i++)
        c->a[i] = c->pos[i];
    for (size_t i = 0; i < c->n_kw; i++) {
        size_t k = param_index(fn->params, c->kw[i].name, &n_params);
        if (k == n_params || c->a[k].type != SN_J_ABSENT)
            return sn_jfail(r, SENNIT_INVALID, "%s does not take the argument '%.*s'%s", fn->name,
                            (int)sn_min_size(c->kw[i].name->len, 100), c->kw[i].name->data,
                            k == n_params ? "" : " twice");
        c->a[k] = c->kw[i].v;
    }
    for (size_t i = 0; i < fn->n_required; i++)
        if (c->a[i].type == SN_J_ABSENT)
            return sn_jfail(r, SENNIT_INVALID, "%s needs at least %u argument(s)", fn->name,
                            fn->n_required);
    return fn->fn(r, c, out);
}

bool sn_jcall_value(struct sn_jrun *r, struct sn_jval f, const struct sn_jcall *c,
                    struct sn_jval *out)
{
    struct sn_jcall call = *c;
    switch (f.type) {
    case SN_J_FUNC:
        call.self = f;
        return sn_jbuiltin_call(r, f.u.fn, &call, out);
    case SN_J_METHOD:
        call.self = f.u.method->self;
        return sn_jbuiltin_call(r, f.u.method->fn, &call, out);
    case SN_J_MACRO:
        return sn_jmacro_call(r, f.u.macro, c, out);
    case SN_J_LOOP:
        if (c->n_pos != 1 || c->n_kw != 0)
            return sn_jfail(r, SENNIT_INVALID, "loop() takes exactly one argument");
        return sn_jloop_recurse(r, f.u.loop, c->pos[0], out);
    case SN_J_UNDEF:
        return sn_jundef_error(r, f);
    default:
        return sn_jfail(r, SENNIT_INVALID, "a %s cannot be called", sn_jtype_name(f));
    }
}

/* Appends *star to the positional and **dstar to the keyword arguments. */
static bool eval_stars(struct sn_jrun *r, const struct sn_jargnodes *a, struct sn_jval star,
                       struct sn_jval dstar, struct sn_jcall *c)
{
    struct sn_jval *items = NULL;
    size_t n = 0, n_dict = 0;
    if (a->star && !sn_jiter(r, star, &items, &n))
        return false;
    if (a->dstar && dstar.type != SN_J_DICT)
        return sn_jfail(r, SENNIT_INVALID, "** needs a dictionary, not a %s", sn_jtype_name(dstar));
    n_dict = a->dstar ? dstar.u.dict->n : 0;
    struct sn_jval *pos = sn_jnew(r, c->n_pos + n + 1, sizeof *pos);
    struct sn_jkw *kw = pos ? sn_jnew(r, c->n_kw + n_dict + 1, sizeof *kw) : NULL;
    if (!kw)
        return false;
    if (c->n_pos)
        memcpy(pos, c->pos, c->n_pos * sizeof *pos);
    if (n)
        memcpy(pos + c->n_pos, items, n * sizeof *pos);
    if (c->n_kw)
        memcpy(kw, c->kw, c->n_kw * sizeof *kw);
    for (size_t i = 0; i < n_dict; i++) {
        if (dstar.u.dict->keys[i].type != SN_J_STR)
            return sn_jfail(r, SENNIT_INVALID, "** needs a dictionary with text keys");
        for (size_t k = 0; k < c->n_kw; k++)
            if (sn_jstr_same(kw[k].name, dstar.u.dict->keys[i].u.s))
                return sn_jfail(r, SENNIT_INVALID, "an argument is given twice");
        kw[c->n_kw + i] = (struct sn_jkw){dstar.u.dict->keys[i].u.s, dstar.u.dict->vals[i]};
    }
    c->pos = pos;
    c->n_pos += n;
    c->kw = kw;
    c->n_kw += n_dict;
    return true;
}

static bool eval_args(struct sn_jrun *r, const struct sn_jargnodes *a, struct sn_jcall *c)
{
    memset(c, 0, sizeof *c);
    struct sn_jval *pos = a->pos.n ? sn_jnew(r, a->pos.n, sizeof *pos) : NULL;
    struct sn_jkw *kw = a->n_kw ? sn_jnew(r, a->n_kw, sizeof *kw) : NULL;
    if ((a->pos.n && !pos) || (a->n_kw && !kw))
        return false;
    for (uint32_t i = 0; i < a->pos.n; i++)
        if (!sn_jeval(r, a->pos.v[i], &pos[i]))
            return false;
    for (uint32_t i = 0; i < a->n_kw; i++) {
        kw[i].name = a->kw[i].name;
        if (!sn_jeval(r, a->kw[i].value, &kw[i].v))
            return false;
    }
    c->pos = pos;
    c->n_pos = a->pos.n;
    c->kw = kw;
    c->n_kw = a->n_kw;
    struct sn_jval star = {0}, dstar = {0};
    if ((a->star && !sn_jeval(r, a->star, &star)) || (a->dstar && !sn_jeval(r, a->dstar, &dstar)))
        return false;
    return (!a->star && !a->dstar) || eval_stars(r, a, star, dstar, c);
}

static bool eval_call(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jval f;
    struct sn_jcall c;
    if (!sn_jeval(r, n->a, &f) || !eval_args(r, &n->args, &c))
        return false;
    r->at = n;
    if (f.type == SN_J_UNDEF && n->a->kind == SN_N_ATTR)
        r->at = n->a;
    return sn_jcall_value(r, f, &c, out);
}

static bool eval_filter(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jcall c;
    struct sn_jval self;
    bool is_filter = n->kind == SN_N_FILTER;
    if (!n->fn) {
        r->at = n;
        return sn_jfail(r, SENNIT_UNSUPPORTED, "no %s named '%.*s'", is_filter ? "filter" : "test",
                        (int)sn_min_size(n->name->len, 100), n->name->data);
    }
    if (!sn_jeval(r, n->a, &self) || !eval_args(r, &n->args, &c))
        return false;
    c.self = self;
    r->at = n;
    return sn_jbuiltin_call(r, n->fn, &c, out);
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool eval_name(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    for (const struct sn_jscope *s = r->scope; s; s = s->parent)
        for (uint32_t i = s->n; i-- > 0;)
            if (s->v[i].id == n->id) {
                *out = s->v[i].v;
                return true;
            }
    *out = r->root[n->id];
    if (out->type != SN_J_ABSENT)
        return true;
    const struct sn_jbuiltin *fn = sn_jtable_find(&sn_jglobals, n->name);
    *out = fn ? (struct sn_jval){.type = SN_J_FUNC, .u.fn = fn} : sn_jundef(SN_JU_NAME, n->name);
    return true;
}

/* ---- the other kinds
 * ------------------------------------------------------------------------------------------- */

static bool eval_seq(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jseq *s = sn_jseq_new(r, n->items.n);
    if (!s)
        return false;
    for (uint32_t i = 0; i < n->items.n; i++) {
        struct sn_jval v;
        if (!sn_jeval(r, n->items.v[i], &v) || !sn_jseq_push(r, s, v))
            return false;
    }
    *out = sn_jseqv(n->kind == SN_N_LIST ? SN_J_LIST : SN_J_TUPLE, s);
    return true;
}

static bool eval_dict(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jdict *d = sn_jdict_new(r, n->items.n / 2);
    if (!d)
        return false;
    for (uint32_t i = 0; i < n->items.n; i += 2) {
        struct sn_jval k, v;
        if (!sn_jeval(r, n->items.v[i], &k) || !sn_jeval(r, n->items.v[i + 1], &v))
            return false;
        r->at = n;
        if (!sn_jdict_set(r, d, k, v))
            return false;
    }
    *out = sn_jdictv(d);
    return true;
}

static bool eval_slice(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jval obj, bounds[3] = {{0}, {0}, {0}};
    if (!sn_jeval(r, n->a, &obj))
        return false;
    for (uint32_t i = 0; i < 3; i++)
        if (n->items.v[i] && !sn_jeval(r, n->items.v[i], &bounds[i]))
            return false;
    r->at = n;
    return sn_jslice(r, obj, bounds, out);
}

static bool eval_cond(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jval test;
    bool yes;
    if (!sn_jeval(r, n->a, &test) || !sn_jtruth(r, test, &yes))
        return false;
    if (yes || n->c)
        return sn_jeval(r, yes ? n->b : n->c, out);
    *out = sn_jundef(SN_JU_EMPTY, NULL);
    return true;
}

static bool eval_logic(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    bool yes;
    if (!sn_jeval(r, n->a, out) || !sn_jtruth(r, *out, &yes))
        return false;
    return yes == (n->kind == SN_N_OR) || sn_jeval(r, n->b, out);
}

static bool eval_sign(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jval v;
    if (!sn_jeval(r, n->a, &v))
        return false;
    r->at = n;
    bool minus = n->kind == SN_N_NEG;
    if (v.type == SN_J_UNDEF)
        return sn_jundef_error(r, v);
    if (v.type == SN_J_FLOAT)
        *out = sn_jfloat(minus ? -v.u.f : v.u.f);
    else if (!sn_jis_int(v))
        return sn_jfail(r, SENNIT_INVALID, "a sign does not work on a %s", sn_jtype_name(v));
    else
        return sn_jbinary(r, minus ? SN_OP_SUB : SN_OP_ADD, sn_jint(0), v, out);
    return true;
}

static bool eval_binary(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jval a, b;
    if (!sn_jeval(r, n->a, &a) || !sn_jeval(r, n->b, &b))
        return false;
    r->at = n;
    return sn_jbinary(r, n->op, a, b, out);
}

static bool eval_concat(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    const struct sn_jstr *all = NULL;
    for (uint32_t i = 0; i < n->items.n; i++) {
        struct sn_jval v;
        const struct sn_jstr *s;
        if (!sn_jeval(r, n->items.v[i], &v))
            return false;
        r->at = n;
        if (!sn_jstr_of(r, v, &s) || (all && !sn_jconcat(r, all, s, &s)))
            return false;
        all = s;
    }
    *out = sn_jstrv(all);
    return true;
}

static bool eval_compare(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jval left, right;
    bool holds = true;
    if (!sn_jeval(r, n->a, &left))
        return false;
    for (uint32_t i = 0; i < n->items.n && holds; i++) {
        if (!sn_jeval(r, n->items.v[i], &right))
            return false;
        r->at = n;
        enum sn_jop op = n->ops[i];
        if (op == SN_OP_IN || op == SN_OP_NOTIN) {
            if (!sn_jcontains(r, right, left, &holds))
                return false;
            holds = holds == (op == SN_OP_IN);
        } else if (!sn_jcompare(r, left, right, op, &holds)) {
            return false;
        }
        left = right;
    }
    *out = sn_jbool(holds);
    return true;
}

static bool eval_access(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jval obj, key;
    if (!sn_jeval(r, n->a, &obj) || (n->kind == SN_N_ITEM && !sn_jeval(r, n->b, &key)))
        return false;
    r->at = n;
    return n->kind == SN_N_ITEM ? sn_jitem(r, obj, key, out) : sn_jattr(r, obj, n->name, out);
}

static bool eval_not(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    struct sn_jval v;
    bool yes;
    if (!sn_jeval(r, n->a, &v) || !sn_jtruth(r, v, &yes))
        return false;
    *out = sn_jbool(!yes);
    return true;
}

static bool eval_kind(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    switch (n->kind) {
    case SN_N_CONST:
        *out = n->value;
        return true;
    case SN_N_NAME:
        return eval_name(r, n, out);
    case SN_N_LIST:
    case SN_N_TUPLE:
        return eval_seq(r, n, out);
    case SN_N_DICT:
        return eval_dict(r, n, out);
    case SN_N_ATTR:
    case SN_N_ITEM:
        return eval_access(r, n, out);
    case SN_N_SLICE:
        return eval_slice(r, n, out);
    case SN_N_CALL:
        return eval_call(r, n, out);
    case SN_N_FILTER:
    case SN_N_TEST:
        return eval_filter(r, n, out);
    case SN_N_COND:
        return eval_cond(r, n, out);
    case SN_N_AND:
    case SN_N_OR:
        return eval_logic(r, n, out);
    case SN_N_NOT:
        return eval_not(r, n, out);
    case SN_N_NEG:
    case SN_N_POS:
        return eval_sign(r, n, out);
    case SN_N_BINARY:
        return eval_binary(r, n, out);
    case SN_N_CONCAT:
        return eval_concat(r, n, out);
    case SN_N_COMPARE:
        return eval_compare(r, n, out);
    default:
        return sn_jfail(r, SENNIT_INTERNAL, "a statement where an expression belongs");
    }
}

bool sn_jeval(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out)
{
    r->at = n;
    if (!sn_jsteps(r, 1) || !sn_jenter(r))
        return false;
    bool ok = eval_kind(r, n, out);
    sn_jleave(r);
    return ok;
}
