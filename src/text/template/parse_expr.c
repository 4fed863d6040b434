/* Expressions, by recursive descent in the order of jinja2/parser.py:
 *   cond: or [if or [else cond]] · or · and · not · compare · + - · ~ · * / // % · ** · unary ·
 * postfix · filters */
#include "text/template/parse.h"

static bool parse_or(struct sn_jparser *p, struct sn_jnode **out);
static bool parse_unary(struct sn_jparser *p, bool with_filter, struct sn_jnode **out);

static struct sn_jnode *node2(struct sn_jparser *p, enum sn_jkind kind, const struct sn_jtoken *at,
                              struct sn_jnode *a, struct sn_jnode *b)
{
    struct sn_jnode *n = sn_jp_node(p, kind, at);
    if (!n || !sn_jp_child(p, n, a) || (b && !sn_jp_child(p, n, b)))
        return NULL;
    n->a = a;
    n->b = b;
    return n;
}

static bool push_child(struct sn_jparser *p, struct sn_jnode *n, struct sn_jblock *list,
                       struct sn_jnode *child)
{
    return sn_jp_push(p, list, child) && sn_jp_child(p, n, child);
}

/* ---- literals and names
 * -------------------------------------------------------------------------------------- */

static bool constant(struct sn_jparser *p, const struct sn_jtoken *at, struct sn_jval v,
                     struct sn_jnode **out)
{
    *out = sn_jp_node(p, SN_N_CONST, at);
    if (*out)
        (*out)->value = v;
    return *out != NULL;
}

/* Neighbouring string literals are one string. */
static bool parse_string(struct sn_jparser *p, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    size_t len = 0;
    for (const struct sn_jtoken *t = at; t->type == SN_T_STRING; t++)
        len += t->text->len;
    struct sn_jstr *s = sn_jarena_alloc(p->arena, sizeof *s);
    char *data = s ? sn_jarena_alloc(p->arena, len) : NULL;
    if (!data)
        return sn_jp_nomem(p);
    *s = (struct sn_jstr){.data = data, .trusted = true};
    for (; p->t->type == SN_T_STRING; sn_jp_advance(p)) {
        memcpy(data + s->len, p->t->text->data, p->t->text->len);
        s->len += p->t->text->len;
        s->n_chars += p->t->text->n_chars;
    }
    return constant(p, at, sn_jstrv(s), out);
}

static bool parse_list(struct sn_jparser *p, struct sn_jnode **out)
{
    struct sn_jnode *n = *out = sn_jp_node(p, SN_N_LIST, p->t);
    if (!n)
        return false;
    sn_jp_advance(p);
    while (!sn_jp_is_op(p, "]")) {
        struct sn_jnode *item;
        if (n->items.n && !sn_jp_expect_op(p, ","))
            return false;
        if (sn_jp_is_op(p, "]"))
            break;
        if (!sn_jp_expr(p, &item) || !push_child(p, n, &n->items, item))
            return false;
    }
    return sn_jp_expect_op(p, "]");
}

static bool parse_dict(struct sn_jparser *p, struct sn_jnode **out)
{
    struct sn_jnode *n = *out = sn_jp_node(p, SN_N_DICT, p->t);
    if (!n)
        return false;
    sn_jp_advance(p);
    while (!sn_jp_is_op(p, "}")) {
        struct sn_jnode *key, *value;
        if (n->items.n && !sn_jp_expect_op(p, ","))
            return false;
        if (sn_jp_is_op(p, "}"))
            break;
        if (!sn_jp_expr(p, &key) || !sn_jp_expect_op(p, ":") || !sn_jp_expr(p, &value) ||
            !push_child(p, n, &n->items, key) || !push_child(p, n, &n->items, value))
            return false;
    }
    return sn_jp_expect_op(p, "}");
}

static bool parse_name(struct sn_jparser *p, bool with_ns, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    const struct sn_jstr *s = at->text;
    sn_jp_advance(p);
    if (sn_jstr_eq(s, "true") || sn_jstr_eq(s, "True"))
        return constant(p, at, sn_jbool(true), out);
    if (sn_jstr_eq(s, "false") || sn_jstr_eq(s, "False"))
        return constant(p, at, sn_jbool(false), out);
    if (sn_jstr_eq(s, "none") || sn_jstr_eq(s, "None"))
        return constant(p, at, sn_jnone(), out);
    struct sn_jnode *n = *out = sn_jp_node(p, SN_N_NAME, at);
    if (!n || !sn_jp_intern(p, s, &n->id))
        return false;
    n->name = s;
    p->caller |= n->id == SN_ID_CALLER;
    p->varargs |= n->id == SN_ID_VARARGS;
    p->kwargs |= n->id == SN_ID_KWARGS;
    if (!with_ns || !sn_jp_skip_op(p, "."))
        return true;
    if (p->t->type != SN_T_NAME)
        return sn_jp_unexpected(p, "an attribute name");
    n->kind = SN_N_NSREF;
    n->name = p->t->text;
    sn_jp_advance(p);
    return true;
}

static bool parse_primary(struct sn_jparser *p, bool with_ns, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    switch (at->type) {
    case SN_T_NAME:
        return parse_name(p, with_ns, out);
    case SN_T_STRING:
        return parse_string(p, out);
    case SN_T_INT:
        sn_jp_advance(p);
        return constant(p, at, sn_jint(at->i), out);
    case SN_T_FLOAT:
        sn_jp_advance(p);
        return constant(p, at, sn_jfloat(at->f), out);
    default:
        break;
    }
    if (!sn_jp_is_op(p, "(") && !sn_jp_is_op(p, "[") && !sn_jp_is_op(p, "{"))
        return sn_jp_unexpected(p, "an expression");
    if (!sn_jp_enter(p))
        return false;
    bool ok;
    if (sn_jp_is_op(p, "[")) {
        ok = parse_list(p, out);
    } else if (sn_jp_is_op(p, "{")) {
        ok = parse_dict(p, out);
    } else {
        sn_jp_advance(p);
        ok = sn_jp_tuple(p, true, true, NULL, out) && sn_jp_expect_op(p, ")");
    }
    sn_jp_leave(p);
    return ok;
}

/* ---- postfix: attributes, subscripts, calls, filters, tests
 * ---------------------------------------------------- */

static bool add_kwarg(struct sn_jparser *p, struct sn_jargnodes *args, const struct sn_jstr *name,
                      struct sn_jnode *v)
{
    for (uint32_t i = 0; i < args->n_kw; i++)
        if (sn_jstr_same(args->kw[i].name, name))
            return sn_jp_fail(p, p->t, SENNIT_FORMAT, "keyword argument '%.*s' is given twice",
                              (int)sn_min_size(name->len, 100), name->data);
    if (args->n_kw == args->cap_kw) {
        uint32_t cap = args->cap_kw ? args->cap_kw * 2 : 4;
        struct sn_jkwnode *kw = sn_jarena_alloc(p->arena, cap * sizeof *kw);
        if (!kw)
            return sn_jp_nomem(p);
        if (args->n_kw)
            memcpy(kw, args->kw, args->n_kw * sizeof *kw);
        args->kw = kw;
        args->cap_kw = cap;
    }
    args->kw[args->n_kw++] = (struct sn_jkwnode){name, v};
    return true;
}

static bool parse_arg(struct sn_jparser *p, struct sn_jnode *call, struct sn_jargnodes *args)
{
    const struct sn_jtoken *at = p->t;
    const char *wrong = "invalid order of arguments in a call";
    struct sn_jnode *v;
    if (sn_jp_is_op(p, "*") || sn_jp_is_op(p, "**")) {
        bool two = sn_jp_is_op(p, "**");
        if (args->dstar || (!two && args->star))
            return sn_jp_fail(p, at, SENNIT_FORMAT, "%s", wrong);
        sn_jp_advance(p);
        if (!sn_jp_expr(p, &v))
            return false;
        *(two ? &args->dstar : &args->star) = v;
        return sn_jp_child(p, call, v);
    }
    if (at->type == SN_T_NAME && at[1].type == SN_T_OP && sn_jstr_eq(at[1].text, "=")) {
        if (args->dstar)
            return sn_jp_fail(p, at, SENNIT_FORMAT, "%s", wrong);
        sn_jp_advance(p);
        sn_jp_advance(p);
        return sn_jp_expr(p, &v) && add_kwarg(p, args, at->text, v) && sn_jp_child(p, call, v);
    }
    if (args->star || args->dstar || args->n_kw)
        return sn_jp_fail(p, at, SENNIT_FORMAT, "%s", wrong);
    return sn_jp_expr(p, &v) && push_child(p, call, &args->pos, v);
}

static bool parse_args(struct sn_jparser *p, struct sn_jnode *call)
{
    if (!sn_jp_enter(p))
        return false;
    sn_jp_advance(p); /* ( */
    for (bool first = true; !sn_jp_is_op(p, ")"); first = false) {
        if (!first && !sn_jp_expect_op(p, ","))
            return false;
        if (!first && sn_jp_is_op(p, ")"))
            break;
        if (!parse_arg(p, call, &call->args))
            return false;
    }
    sn_jp_leave(p);
    return sn_jp_expect_op(p, ")");
}

/* One index or slice inside brackets. */
static bool parse_subscribed(struct sn_jparser *p, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    struct sn_jnode *part[3] = {NULL, NULL, NULL};
    if (!sn_jp_is_op(p, ":")) {
        if (!sn_jp_expr(p, &part[0]))
            return false;
        *out = part[0];
        if (!sn_jp_is_op(p, ":"))
            return true;
    }
    for (int k = 1; k < 3 && sn_jp_skip_op(p, ":"); k++)
        if (!sn_jp_is_op(p, ":") && !sn_jp_is_op(p, "]") && !sn_jp_is_op(p, ",") &&
            !sn_jp_expr(p, &part[k]))
            return false;
    struct sn_jnode *n = *out = sn_jp_node(p, SN_N_SLICE, at);
    if (!n)
        return false;
    for (int k = 0; k < 3; k++)
        if (!sn_jp_push(p, &n->items, part[k]) || (part[k] && !sn_jp_child(p, n, part[k])))
            return false;
    return true;
}

static bool parse_brackets(struct sn_jparser *p, struct sn_jnode **node)
{
    const struct sn_jtoken *at = p->t;
    struct sn_jnode *key = NULL, *tuple = NULL;
    if (!sn_jp_enter(p))
        return false;
    sn_jp_advance(p);
    for (uint32_t n = 0; !sn_jp_is_op(p, "]"); n++) {
        struct sn_jnode *one;
        if ((n && !sn_jp_expect_op(p, ",")) || !parse_subscribed(p, &one))
            return false;
        if (n == 1) {
            tuple = sn_jp_node(p, SN_N_TUPLE, at);
            if (!tuple || !push_child(p, tuple, &tuple->items, key))
                return false;
        }
        if (tuple && !push_child(p, tuple, &tuple->items, one))
            return false;
        key = tuple ? tuple : one;
    }
    sn_jp_leave(p);
    if (!key)
        return sn_jp_unexpected(p, "an index");
    if (tuple)
        for (uint32_t i = 0; i < tuple->items.n; i++)
            if (tuple->items.v[i]->kind == SN_N_SLICE)
                return sn_jp_fail(p, at, SENNIT_UNSUPPORTED,
                                  "slices of several dimensions are not supported");
    if (!sn_jp_expect_op(p, "]"))
        return false;
    if (key->kind == SN_N_SLICE) {
        key->a = *node;
        if (!sn_jp_child(p, key, *node))
            return false;
        *node = key;
        return true;
    }
    *node = node2(p, SN_N_ITEM, at, *node, key);
    return *node != NULL;
}

static bool parse_dot(struct sn_jparser *p, struct sn_jnode **node)
{
    const struct sn_jtoken *at = p->t, *attr = at + 1;
    sn_jp_advance(p);
    if (attr->type == SN_T_INT) {
        struct sn_jnode *key;
        sn_jp_advance(p);
        if (!constant(p, attr, sn_jint(attr->i), &key))
            return false;
        *node = node2(p, SN_N_ITEM, at, *node, key);
        return *node != NULL;
    }
    if (attr->type != SN_T_NAME)
        return sn_jp_unexpected(p, "a name or a number after the dot");
    sn_jp_advance(p);
    *node = node2(p, SN_N_ATTR, attr, *node, NULL);
    if (*node)
        (*node)->name = attr->text;
    return *node != NULL;
}

static bool parse_call(struct sn_jparser *p, struct sn_jnode **node)
{
    struct sn_jnode *call = node2(p, SN_N_CALL, p->t, *node, NULL);
    if (!call || !parse_args(p, call))
        return false;
    *node = call;
    return true;
}

static bool parse_postfix(struct sn_jparser *p, struct sn_jnode **node)
{
    for (;;) {
        bool ok;
        if (sn_jp_is_op(p, "."))
            ok = parse_dot(p, node);
        else if (sn_jp_is_op(p, "["))
            ok = parse_brackets(p, node);
        else if (sn_jp_is_op(p, "("))
            ok = parse_call(p, node);
        else
            return true;
        if (!ok)
            return false;
    }
}

/* A filter's or test's name; one with dots is known to no table, so the last part is enough for the
 * message. */
static bool parse_dotted(struct sn_jparser *p, const struct sn_jstr **name, bool *dotted)
{
    *dotted = false;
    for (;;) {
        if (p->t->type != SN_T_NAME)
            return sn_jp_unexpected(p, "a name");
        *name = p->t->text;
        sn_jp_advance(p);
        if (!sn_jp_skip_op(p, "."))
            return true;
        *dotted = true;
    }
}

static bool unknown(struct sn_jparser *p, struct sn_jnode *n)
{
    return p->soft || sn_jp_push(p, &p->pending, n);
}

bool sn_jp_filters(struct sn_jparser *p, bool first, struct sn_jnode **node)
{
    while (first || sn_jp_is_op(p, "|")) {
        if (!first)
            sn_jp_advance(p);
        first = false;
        struct sn_jnode *n = sn_jp_node(p, SN_N_FILTER, p->t);
        bool dotted;
        if (!n || !parse_dotted(p, &n->name, &dotted) || (*node && !sn_jp_child(p, n, *node)))
            return false;
        n->a = *node;
        n->fn = dotted ? NULL : sn_jfilter_find(n->name);
        if ((!n->fn && !unknown(p, n)) || (sn_jp_is_op(p, "(") && !parse_args(p, n)))
            return false;
        *node = n;
    }
    return true;
}

static bool starts_test_argument(const struct sn_jparser *p)
{
    switch (p->t->type) {
    case SN_T_NAME:
        return !sn_jp_is_name(p, "else") && !sn_jp_is_name(p, "or") && !sn_jp_is_name(p, "and");
    case SN_T_STRING:
    case SN_T_INT:
    case SN_T_FLOAT:
        return true;
    default:
        return sn_jp_is_op(p, "[") || sn_jp_is_op(p, "{");
    }
}

static bool parse_test(struct sn_jparser *p, struct sn_jnode **node)
{
    struct sn_jnode *n = node2(p, SN_N_TEST, p->t, *node, NULL);
    if (!n)
        return false;
    sn_jp_advance(p);
    const struct sn_jtoken *at = p->t;
    bool negated = sn_jp_skip_name(p, "not"), dotted;
    if (!parse_dotted(p, &n->name, &dotted))
        return false;
    n->fn = dotted ? NULL : sn_jtest_find(n->name);
    if (!n->fn && !unknown(p, n))
        return false;
    if (sn_jp_is_op(p, "(")) {
        if (!parse_args(p, n))
            return false;
    } else if (starts_test_argument(p)) {
        struct sn_jnode *arg;
        if (sn_jp_is_name(p, "is"))
            return sn_jp_fail(p, p->t, SENNIT_FORMAT, "tests cannot be chained with 'is'");
        if (!parse_primary(p, false, &arg) || !parse_postfix(p, &arg) ||
            !push_child(p, n, &n->args.pos, arg))
            return false;
    }
    *node = negated ? node2(p, SN_N_NOT, at, n, NULL) : n;
    return *node != NULL;
}

static bool parse_filter_expr(struct sn_jparser *p, struct sn_jnode **node)
{
    for (;;) {
        bool ok;
        if (sn_jp_is_op(p, "|"))
            ok = sn_jp_filters(p, false, node);
        else if (sn_jp_is_name(p, "is"))
            ok = parse_test(p, node);
        else if (sn_jp_is_op(p, "("))
            ok = parse_call(p, node);
        else
            return true;
        if (!ok)
            return false;
    }
}

/* ---- operators ------------------------------------------------------------------------------- */

static bool parse_signed(struct sn_jparser *p, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    bool minus = sn_jp_is_op(p, "-");
    if (!sn_jp_enter(p))
        return false;
    sn_jp_advance(p);
    struct sn_jnode *a;
    if (!parse_unary(p, false, &a))
        return false;
    sn_jp_leave(p);
    *out = node2(p, minus ? SN_N_NEG : SN_N_POS, at, a, NULL);
    return *out != NULL;
}

static bool parse_unary(struct sn_jparser *p, bool with_filter, struct sn_jnode **out)
{
    bool sign = sn_jp_is_op(p, "-") || sn_jp_is_op(p, "+");
    if (!(sign ? parse_signed(p, out) : parse_primary(p, false, out)) || !parse_postfix(p, out))
        return false;
    return !with_filter || parse_filter_expr(p, out);
}

struct level {
    const char *text;
    enum sn_jop op;
};

static bool match_op(struct sn_jparser *p, const struct level *ops, size_t n, enum sn_jop *op)
{
    for (size_t i = 0; i < n; i++)
        if (sn_jp_skip_op(p, ops[i].text)) {
            *op = ops[i].op;
            return true;
        }
    return false;
}

/* Left-associative operators of one level over `next`. */
static bool parse_level(struct sn_jparser *p, const struct level *ops, size_t n_ops,
                        bool (*next)(struct sn_jparser *, struct sn_jnode **),
                        struct sn_jnode **out)
{
    if (!next(p, out))
        return false;
    enum sn_jop op;
    for (const struct sn_jtoken *at = p->t; match_op(p, ops, n_ops, &op); at = p->t) {
        struct sn_jnode *right;
        if (!next(p, &right))
            return false;
        *out = node2(p, SN_N_BINARY, at, *out, right);
        if (!*out)
            return false;
        (*out)->op = op;
    }
    return true;
}

static bool parse_operand(struct sn_jparser *p, struct sn_jnode **out)
{
    return parse_unary(p, true, out);
}

static bool parse_pow(struct sn_jparser *p, struct sn_jnode **out)
{
    static const struct level ops[] = {{"**", SN_OP_POW}};
    return parse_level(p, ops, SN_ARRAY_LEN(ops), parse_operand, out);
}

static bool parse_product(struct sn_jparser *p, struct sn_jnode **out)
{
    static const struct level ops[] = {
        {"*", SN_OP_MUL}, {"/", SN_OP_DIV}, {"//", SN_OP_FLOORDIV}, {"%", SN_OP_MOD}};
    return parse_level(p, ops, SN_ARRAY_LEN(ops), parse_pow, out);
}

static bool parse_concat(struct sn_jparser *p, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    if (!parse_product(p, out))
        return false;
    if (!sn_jp_is_op(p, "~"))
        return true;
    struct sn_jnode *n = sn_jp_node(p, SN_N_CONCAT, at);
    if (!n || !push_child(p, n, &n->items, *out))
        return false;
    while (sn_jp_skip_op(p, "~")) {
        struct sn_jnode *part;
        if (!parse_product(p, &part) || !push_child(p, n, &n->items, part))
            return false;
    }
    *out = n;
    return true;
}

static bool parse_sum(struct sn_jparser *p, struct sn_jnode **out)
{
    static const struct level ops[] = {{"+", SN_OP_ADD}, {"-", SN_OP_SUB}};
    return parse_level(p, ops, SN_ARRAY_LEN(ops), parse_concat, out);
}

static bool match_compare(struct sn_jparser *p, enum sn_jop *op)
{
    static const struct level ops[] = {{"==", SN_OP_EQ}, {"!=", SN_OP_NE}, {"<", SN_OP_LT},
                                       {"<=", SN_OP_LE}, {">", SN_OP_GT},  {">=", SN_OP_GE}};
    if (match_op(p, ops, SN_ARRAY_LEN(ops), op))
        return true;
    *op = SN_OP_IN;
    if (sn_jp_skip_name(p, "in"))
        return true;
    if (!sn_jp_is_name(p, "not") || !sn_jp_next_is_name(p, "in"))
        return false;
    sn_jp_advance(p);
    sn_jp_advance(p);
    *op = SN_OP_NOTIN;
    return true;
}

static bool parse_compare(struct sn_jparser *p, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    enum sn_jop op, *ops = NULL;
    struct sn_jnode *n = NULL;
    uint32_t cap = 0;
    if (!parse_sum(p, out))
        return false;
    for (; match_compare(p, &op); at = p->t) {
        struct sn_jnode *right;
        if (!n && !(n = node2(p, SN_N_COMPARE, at, *out, NULL)))
            return false;
        if (n->items.n == cap) {
            cap = cap ? cap * 2 : 2;
            enum sn_jop *more = sn_jarena_alloc(p->arena, cap * sizeof *more);
            if (!more)
                return sn_jp_nomem(p);
            if (n->items.n)
                memcpy(more, ops, n->items.n * sizeof *more);
            n->ops = ops = more;
        }
        ops[n->items.n] = op;
        if (!parse_sum(p, &right) || !push_child(p, n, &n->items, right))
            return false;
    }
    if (n)
        *out = n;
    return true;
}

static bool parse_not(struct sn_jparser *p, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    if (!sn_jp_is_name(p, "not"))
        return parse_compare(p, out);
    sn_jp_advance(p);
    struct sn_jnode *a;
    if (!sn_jp_enter(p) || !parse_not(p, &a))
        return false;
    sn_jp_leave(p);
    *out = node2(p, SN_N_NOT, at, a, NULL);
    return *out != NULL;
}

static bool parse_and(struct sn_jparser *p, struct sn_jnode **out)
{
    if (!parse_not(p, out))
        return false;
    for (const struct sn_jtoken *at = p->t; sn_jp_skip_name(p, "and"); at = p->t) {
        struct sn_jnode *right;
        if (!parse_not(p, &right) || !(*out = node2(p, SN_N_AND, at, *out, right)))
            return false;
    }
    return true;
}

static bool parse_or(struct sn_jparser *p, struct sn_jnode **out)
{
    if (!parse_and(p, out))
        return false;
    for (const struct sn_jtoken *at = p->t; sn_jp_skip_name(p, "or"); at = p->t) {
        struct sn_jnode *right;
        if (!parse_and(p, &right) || !(*out = node2(p, SN_N_OR, at, *out, right)))
            return false;
    }
    return true;
}

static bool parse_cond(struct sn_jparser *p, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    uint32_t pending = p->pending.n;
    if (!parse_or(p, out))
        return false;
    while (sn_jp_skip_name(p, "if")) {
        struct sn_jnode *test, *other = NULL;
        if (!parse_or(p, &test) || (sn_jp_skip_name(p, "else") && !sn_jp_expr(p, &other)))
            return false;
        struct sn_jnode *n = node2(p, SN_N_COND, at, test, *out);
        if (!n || (other && !sn_jp_child(p, n, other)))
            return false;
        n->c = other;
        *out = n;
        p->pending.n = pending; /* all parts of a condition are reached only when chosen */
    }
    return true;
}

bool sn_jp_expr(struct sn_jparser *p, struct sn_jnode **out)
{
    if (!sn_jp_enter(p))
        return false;
    bool ok = parse_cond(p, out);
    sn_jp_leave(p);
    return ok;
}

/* ---- tuples and targets
 * ---------------------------------------------------------------------------------------- */

enum tuple_of { TUPLE_EXPR, TUPLE_OR, TUPLE_TARGET, TUPLE_NS_TARGET };

static bool tuple_ends(const struct sn_jparser *p, const char *end_name)
{
    return p->t->type == SN_T_VAR_END || p->t->type == SN_T_BLOCK_END || sn_jp_is_op(p, ")") ||
           (end_name && sn_jp_is_name(p, end_name));
}

static bool parse_tuple_of(struct sn_jparser *p, enum tuple_of what, bool parens,
                           const char *end_name, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    struct sn_jblock items = {0};
    bool is_tuple = false;
    for (;;) {
        struct sn_jnode *one;
        if (items.n && !sn_jp_expect_op(p, ","))
            return false;
        if (tuple_ends(p, end_name))
            break;
        if (!(what == TUPLE_EXPR ? sn_jp_expr(p, &one)
              : what == TUPLE_OR ? parse_or(p, &one)
                                 : parse_primary(p, what == TUPLE_NS_TARGET, &one)))
            return false;
        if (!sn_jp_push(p, &items, one))
            return false;
        if (!sn_jp_is_op(p, ","))
            break;
        is_tuple = true;
    }
    if (!is_tuple && items.n) {
        *out = items.v[0];
        return true;
    }
    if (!is_tuple && !parens)
        return sn_jp_unexpected(p, "an expression");
    *out = sn_jp_node(p, SN_N_TUPLE, at);
    if (!*out)
        return false;
    (*out)->items = items;
    for (uint32_t i = 0; i < items.n; i++)
        if (!sn_jp_child(p, *out, items.v[i]))
            return false;
    return true;
}

bool sn_jp_tuple(struct sn_jparser *p, bool with_cond, bool parens, const char *end_name,
                 struct sn_jnode **out)
{
    return parse_tuple_of(p, with_cond ? TUPLE_EXPR : TUPLE_OR, parens, end_name, out);
}

static bool check_target(struct sn_jparser *p, const struct sn_jtoken *at, const struct sn_jnode *n,
                         bool in_loop)
{
    if (n->kind == SN_N_NAME && n->id == SN_ID_LOOP && in_loop)
        return sn_jp_fail(p, at, SENNIT_FORMAT, "'loop' cannot be assigned to in a loop");
    if (n->kind == SN_N_NAME || n->kind == SN_N_NSREF)
        return true;
    if (n->kind != SN_N_TUPLE)
        return sn_jp_fail(
            p, at, SENNIT_FORMAT,
            "this cannot be assigned to; name a variable, or namespace.attribute in a set");
    for (uint32_t i = 0; i < n->items.n; i++)
        if (!check_target(p, at, n->items.v[i], in_loop))
            return false;
    return true;
}

bool sn_jp_target(struct sn_jparser *p, bool with_ns, const char *end_name, struct sn_jnode **out)
{
    const struct sn_jtoken *at = p->t;
    return parse_tuple_of(p, with_ns ? TUPLE_NS_TARGET : TUPLE_TARGET, false, end_name, out) &&
           check_target(p, at, *out, end_name || p->loop_depth > 0);
}
