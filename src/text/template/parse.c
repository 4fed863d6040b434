/* Statements, and what both halves of the parser share. */
#include "text/template/parse.h"

#include <stdio.h>

enum { TREE_DEPTH = 400 };

/* ---- errors and tokens
 * --------------------------------------------------------------------------------------- */

bool sn_jp_fail(struct sn_jparser *p, const struct sn_jtoken *t, sennit_status status,
                const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->status = sn_fail(p->err, status, "template line %u, column %u: %s", t->line, t->col, text);
    return false;
}

bool sn_jp_unexpected(struct sn_jparser *p, const char *wanted)
{
    static const char *const what[] = {"the end of the template", "text", "a tag",
                                       "the end of the tag",      "{{",   "}}"};
    const struct sn_jtoken *t = p->t;
    if (t->type < SN_ARRAY_LEN(what))
        return sn_jp_fail(p, t, SENNIT_FORMAT, "expected %s, found %s", wanted, what[t->type]);
    if (t->text)
        return sn_jp_fail(p, t, SENNIT_FORMAT, "expected %s, found '%.*s'", wanted,
                          (int)sn_min_size(t->text->len, 100), t->text->data);
    return sn_jp_fail(p, t, SENNIT_FORMAT, "expected %s, found a number", wanted);
}

bool sn_jp_nomem(struct sn_jparser *p)
{
    if (p->arena->over)
        p->status = sn_fail(p->err, SENNIT_TOO_BIG, "the template is too large");
    else
        p->status = sn_fail(p->err, SENNIT_NOMEM, "out of memory while parsing a template");
    return false;
}

bool sn_jp_enter(struct sn_jparser *p)
{
    if (p->depth >= SN_J_PARSE_DEPTH)
        return sn_jp_fail(p, p->t, SENNIT_TOO_BIG, "nested more than %d levels deep",
                          SN_J_PARSE_DEPTH);
    p->depth++;
    return true;
}

bool sn_jp_is_op(const struct sn_jparser *p, const char *op)
{
    return p->t->type == SN_T_OP && sn_jstr_eq(p->t->text, op);
}

bool sn_jp_is_name(const struct sn_jparser *p, const char *name)
{
    return p->t->type == SN_T_NAME && sn_jstr_eq(p->t->text, name);
}

bool sn_jp_next_is_name(const struct sn_jparser *p, const char *name)
{
    return p->t < p->end && p->t[1].type == SN_T_NAME && sn_jstr_eq(p->t[1].text, name);
}

void sn_jp_advance(struct sn_jparser *p)
{
    if (p->t < p->end)
        p->t++;
}

bool sn_jp_skip_op(struct sn_jparser *p, const char *op)
{
    bool yes = sn_jp_is_op(p, op);
    if (yes)
        sn_jp_advance(p);
    return yes;
}

bool sn_jp_skip_name(struct sn_jparser *p, const char *name)
{
    bool yes = sn_jp_is_name(p, name);
    if (yes)
        sn_jp_advance(p);
    return yes;
}

bool sn_jp_expect_op(struct sn_jparser *p, const char *op)
{
    char wanted[8];
    snprintf(wanted, sizeof wanted, "'%s'", op);
    return sn_jp_skip_op(p, op) || sn_jp_unexpected(p, wanted);
}

static bool expect(struct sn_jparser *p, enum sn_jtok type, const char *wanted)
{
    if (p->t->type != type)
        return sn_jp_unexpected(p, wanted);
    sn_jp_advance(p);
    return true;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

struct sn_jnode *sn_jp_node(struct sn_jparser *p, enum sn_jkind kind, const struct sn_jtoken *at)
{
    struct sn_jnode *n = sn_jarena_alloc(p->arena, sizeof *n);
    if (!n) {
        (void)!sn_jp_nomem(p);
        return NULL;
    }
    n->kind = kind;
    n->line = at->line;
    n->col = at->col;
    n->depth = 1;
    return n;
}

bool sn_jp_push(struct sn_jparser *p, struct sn_jblock *b, struct sn_jnode *n)
{
    if (b->n == b->cap) {
        uint32_t cap = b->cap ? b->cap * 2 : 4;
        struct sn_jnode **v = sn_jarena_alloc(p->arena, cap * sizeof *v);
        if (!v)
            return sn_jp_nomem(p);
        if (b->n)
            memcpy(v, b->v, b->n * sizeof *v);
        b->v = v;
        b->cap = cap;
    }
    b->v[b->n++] = n;
    return true;
}

bool sn_jp_child(struct sn_jparser *p, struct sn_jnode *n, const struct sn_jnode *child)
{
    if (child->depth + 1 > n->depth)
        n->depth = child->depth + 1;
    if (n->depth > TREE_DEPTH)
        return sn_jp_fail(p, p->t, SENNIT_TOO_BIG,
                          "an expression of more than %d levels; split it with set", TREE_DEPTH);
    return true;
}

static uint32_t hash_name(const struct sn_jstr *s)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < s->len; i++)
        h = (h ^ (unsigned char)s->data[i]) * 16777619u;
    return h;
}

static bool grow_names(struct sn_jparser *p)
{
    struct sn_jnames *names = p->names;
    uint32_t cap = names->cap ? names->cap * 2 : 64;
    const struct sn_jstr **v = sn_jarena_alloc(p->arena, cap * sizeof *v);
    uint32_t *index = sn_jarena_alloc(p->arena, 2 * cap * sizeof *index);
    if (!v || !index)
        return sn_jp_nomem(p);
    for (uint32_t i = 0; i < names->n; i++) {
        v[i] = names->v[i];
        uint32_t slot = hash_name(v[i]) & (2 * cap - 1);
        while (index[slot])
            slot = (slot + 1) & (2 * cap - 1);
        index[slot] = i + 1;
    }
    names->v = v;
    names->cap = cap;
    p->name_index = index;
    p->n_name_index = 2 * cap;
    return true;
}

bool sn_jp_intern(struct sn_jparser *p, const struct sn_jstr *name, uint32_t *id)
{
    if (p->names->n == p->names->cap && !grow_names(p))
        return false;
    uint32_t slot = hash_name(name) & (p->n_name_index - 1);
    for (; p->name_index[slot]; slot = (slot + 1) & (p->n_name_index - 1)) {
        *id = p->name_index[slot] - 1;
        if (sn_jstr_same(p->names->v[*id], name))
            return true;
    }
    *id = p->names->n++;
    p->names->v[*id] = name;
    p->name_index[slot] = *id + 1;
    return true;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool parse_statement(struct sn_jparser *p, struct sn_jnode **out);

/* True when the current token, right behind "{%", is one of the `ends` (a list that ends with
 * NULL). */
static bool at_end_tag(const struct sn_jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (sn_jp_is_name(p, *ends))
            return true;
    return false;
}

static bool parse_output(struct sn_jparser *p, struct sn_jblock *body)
{
    struct sn_jnode *n = sn_jp_node(p, SN_N_OUTPUT, p->t);
    if (!n)
        return false;
    sn_jp_advance(p);
    return sn_jp_tuple(p, true, false, NULL, &n->a) && sn_jp_child(p, n, n->a) &&
           sn_jp_push(p, body, n) && expect(p, SN_T_VAR_END, "'}}'");
}

/* Reads until one of `ends`, leaving the current token on its name; ends NULL = until the end of
 * the template. */
static bool parse_body(struct sn_jparser *p, const struct sn_jtoken *open, const char *const *ends,
                       struct sn_jblock *body)
{
    if (!sn_jp_enter(p))
        return false;
    for (; p->t->type != SN_T_EOF;) {
        struct sn_jnode *n = NULL;
        if (p->t->type == SN_T_DATA) {
            n = sn_jp_node(p, SN_N_DATA, p->t);
            if (!n || !sn_jp_push(p, body, n))
                return false;
            n->value = sn_jstrv(p->t->text);
            sn_jp_advance(p);
        } else if (p->t->type == SN_T_VAR_BEGIN) {
            if (!parse_output(p, body))
                return false;
        } else {
            sn_jp_advance(p);
            if (at_end_tag(p, ends)) {
                sn_jp_leave(p);
                return true;
            }
            if (!parse_statement(p, &n) || !sn_jp_push(p, body, n) ||
                !expect(p, SN_T_BLOCK_END, "'%}'"))
                return false;
        }
    }
    sn_jp_leave(p);
    return !ends ||
           sn_jp_fail(p, open, SENNIT_FORMAT, "this tag is never closed by {%% %s %%}", ends[0]);
}

/* The rest of an opening tag, then the body up to one of `ends`. */
static bool parse_block(struct sn_jparser *p, const struct sn_jtoken *open, const char *const *ends,
                        struct sn_jblock *body)
{
    sn_jp_skip_op(p, ":");
    return expect(p, SN_T_BLOCK_END, "'%}'") && parse_body(p, open, ends, body);
}

static bool parse_whole(struct sn_jparser *p, const struct sn_jtoken *open, const char *end,
                        struct sn_jblock *body)
{
    const char *const ends[] = {end, NULL};
    if (!parse_block(p, open, ends, body))
        return false;
    sn_jp_advance(p);
    return true;
}

static bool parse_if(struct sn_jparser *p, struct sn_jnode *n)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    const struct sn_jtoken *open = p->t;
    uint32_t cap = 0;
    bool soft = p->soft;
    p->soft = true;
    do {
        struct sn_jnode *test;
        sn_jp_advance(p);
        if (!sn_jp_tuple(p, false, false, NULL, &test) || !sn_jp_push(p, &n->items, test))
            return false;
        if (n->items.n > cap) {
            cap = n->items.cap;
            struct sn_jblock *bodies = sn_jarena_alloc(p->arena, cap * sizeof *bodies);
            if (!bodies)
                return sn_jp_nomem(p);
            if (n->bodies)
                memcpy(bodies, n->bodies, (n->items.n - 1) * sizeof *bodies);
            n->bodies = bodies;
        }
        if (!parse_block(p, open, ends, &n->bodies[n->items.n - 1]))
            return false;
    } while (sn_jp_is_name(p, "elif"));
    bool has_else = sn_jp_is_name(p, "else");
    sn_jp_advance(p);
    if (has_else && !parse_whole(p, open, "endif", &n->orelse))
        return false;
    p->soft = soft;
    return true;
}

static bool parse_for(struct sn_jparser *p, struct sn_jnode *n)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    const struct sn_jtoken *open = p->t;
    bool soft = p->soft;
    sn_jp_advance(p);
    if (!sn_jp_target(p, false, "in", &n->a))
        return false;
    if (!sn_jp_skip_name(p, "in"))
        return sn_jp_unexpected(p, "'in'");
    if (!sn_jp_tuple(p, false, false, "recursive", &n->b) ||
        (sn_jp_skip_name(p, "if") && !sn_jp_expr(p, &n->c)))
        return false;
    n->flag = sn_jp_skip_name(p, "recursive");
    p->soft = false;
    p->loop_depth++;
    if (!parse_block(p, open, ends, &n->body))
        return false;
    p->loop_depth--;
    bool has_else = sn_jp_is_name(p, "else");
    sn_jp_advance(p);
    if (has_else && !parse_whole(p, open, "endfor", &n->orelse))
        return false;
    p->soft = soft;
    return true;
}

static bool parse_set(struct sn_jparser *p, struct sn_jnode *n)
{
    const struct sn_jtoken *open = p->t;
    sn_jp_advance(p);
    if (!sn_jp_target(p, true, NULL, &n->a))
        return false;
    if (sn_jp_skip_op(p, "="))
        return sn_jp_tuple(p, true, false, NULL, &n->b);
    n->kind = SN_N_SETBLOCK;
    return sn_jp_filters(p, false, &n->b) && parse_whole(p, open, "endset", &n->body);
}

static bool add_param(struct sn_jparser *p, struct sn_jmacrodef *m, const struct sn_jstr *name)
{
    if (m->n_params == m->cap_params) {
        uint32_t cap = m->cap_params ? m->cap_params * 2 : 4;
        uint32_t *ids = sn_jarena_alloc(p->arena, cap * sizeof *ids);
        const struct sn_jstr **names = sn_jarena_alloc(p->arena, cap * sizeof *names);
        struct sn_jnode **defaults = sn_jarena_alloc(p->arena, cap * sizeof *defaults);
        if (!ids || !names || !defaults)
            return sn_jp_nomem(p);
        if (m->n_params) {
            memcpy(ids, m->params, m->n_params * sizeof *ids);
            memcpy(names, m->param_names, m->n_params * sizeof *names);
            memcpy(defaults, m->defaults, m->n_params * sizeof *defaults);
        }
        m->params = ids;
        m->param_names = names;
        m->defaults = defaults;
        m->cap_params = cap;
    }
    m->param_names[m->n_params] = name;
    return sn_jp_intern(p, name, &m->params[m->n_params++]);
}

static bool parse_signature(struct sn_jparser *p, struct sn_jmacrodef *m)
{
    bool defaults = false;
    if (!sn_jp_expect_op(p, "("))
        return false;
    while (!sn_jp_is_op(p, ")")) {
        if (m->n_params && !sn_jp_expect_op(p, ","))
            return false;
        const struct sn_jtoken *at = p->t;
        if (at->type != SN_T_NAME)
            return sn_jp_unexpected(p, "a parameter name");
        for (uint32_t i = 0; i < m->n_params; i++)
            if (sn_jstr_same(m->param_names[i], at->text))
                return sn_jp_fail(p, at, SENNIT_FORMAT, "a parameter is named twice");
        sn_jp_advance(p);
        if (!add_param(p, m, at->text))
            return false;
        if (sn_jp_skip_op(p, "=")) {
            defaults = true;
            if (!sn_jp_expr(p, &m->defaults[m->n_params - 1]))
                return false;
        } else if (defaults) {
            return sn_jp_fail(p, at, SENNIT_FORMAT,
                              "a parameter without a default follows one with a default");
        }
    }
    sn_jp_advance(p);
    return true;
}

/* Body of a macro or call block: a function of its own, so loops outside are out of reach. */
static bool parse_function(struct sn_jparser *p, const struct sn_jtoken *open, const char *end,
                           struct sn_jmacrodef *m)
{
    struct sn_jparser outer = *p;
    p->soft = p->caller = p->varargs = p->kwargs = false;
    p->loop_depth = 0;
    if (!parse_whole(p, open, end, &m->body))
        return false;
    m->uses_caller = p->caller;
    m->uses_varargs = p->varargs;
    m->uses_kwargs = p->kwargs;
    p->caller |= outer.caller;
    p->varargs |= outer.varargs;
    p->kwargs |= outer.kwargs;
    p->soft = outer.soft;
    p->loop_depth = outer.loop_depth;
    return true;
}

static bool parse_macro(struct sn_jparser *p, struct sn_jnode *n)
{
    const struct sn_jtoken *open = p->t;
    sn_jp_advance(p);
    struct sn_jmacrodef *m = n->macro = sn_jarena_alloc(p->arena, sizeof *m);
    if (!m)
        return sn_jp_nomem(p);
    if (p->t->type != SN_T_NAME)
        return sn_jp_unexpected(p, "the macro's name");
    m->name = p->t->text;
    if (!sn_jp_intern(p, m->name, &n->id))
        return false;
    sn_jp_advance(p);
    return parse_signature(p, m) && parse_function(p, open, "endmacro", m);
}

static bool parse_callblock(struct sn_jparser *p, struct sn_jnode *n)
{
    static const struct sn_jstr caller = {
        .data = "caller", .len = 6, .n_chars = 6, .trusted = true};
    const struct sn_jtoken *open = p->t;
    sn_jp_advance(p);
    struct sn_jmacrodef *m = n->macro = sn_jarena_alloc(p->arena, sizeof *m);
    if (!m)
        return sn_jp_nomem(p);
    m->name = &caller;
    if ((sn_jp_is_op(p, "(") && !parse_signature(p, m)) || !sn_jp_expr(p, &n->a))
        return false;
    if (n->a->kind != SN_N_CALL)
        return sn_jp_fail(p, open, SENNIT_FORMAT, "call needs a call of a macro");
    return parse_function(p, open, "endcall", m);
}

static bool parse_filterblock(struct sn_jparser *p, struct sn_jnode *n)
{
    const struct sn_jtoken *open = p->t;
    sn_jp_advance(p);
    return sn_jp_filters(p, true, &n->a) && parse_whole(p, open, "endfilter", &n->body);
}

static bool parse_with(struct sn_jparser *p, struct sn_jnode *n)
{
    const struct sn_jtoken *open = p->t;
    sn_jp_advance(p);
    while (p->t->type != SN_T_BLOCK_END) {
        struct sn_jnode *target, *value;
        if (n->items.n && !sn_jp_expect_op(p, ","))
            return false;
        if (!sn_jp_target(p, false, NULL, &target))
            return false;
        if (!sn_jp_expect_op(p, "=") || !sn_jp_expr(p, &value) ||
            !sn_jp_push(p, &n->items, target) || !sn_jp_push(p, &n->items, value))
            return false;
    }
    return parse_whole(p, open, "endwith", &n->body);
}

static bool parse_generation(struct sn_jparser *p, struct sn_jnode *n)
{
    const struct sn_jtoken *open = p->t;
    uint32_t loops = p->loop_depth;
    sn_jp_advance(p);
    p->loop_depth = 0;
    bool ok = parse_whole(p, open, "endgeneration", &n->body);
    p->loop_depth = loops;
    return ok;
}

static bool parse_jump(struct sn_jparser *p, struct sn_jnode *n)
{
    if (p->loop_depth == 0)
        return sn_jp_fail(p, p->t, SENNIT_FORMAT, "'%s' outside a loop",
                          n->kind == SN_N_BREAK ? "break" : "continue");
    sn_jp_advance(p);
    return true;
}

static bool refuse_tag(struct sn_jparser *p)
{
    static const char *const known[] = {"include", "import",     "from",  "extends",
                                        "block",   "autoescape", "print", "do",
                                        "debug",   "trans",      NULL};
    if (at_end_tag(p, known))
        return sn_jp_fail(p, p->t, SENNIT_UNSUPPORTED, "the statement '%.*s' is not supported",
                          (int)sn_min_size(p->t->text->len, 100), p->t->text->data);
    return sn_jp_fail(p, p->t, SENNIT_FORMAT, "unknown or misplaced tag '%.*s'",
                      (int)sn_min_size(p->t->text->len, 100), p->t->text->data);
}

static bool parse_statement(struct sn_jparser *p, struct sn_jnode **out)
{
    static const struct {
        const char *name;
        enum sn_jkind kind;
        bool (*parse)(struct sn_jparser *, struct sn_jnode *);
    } tags[] = {{"if", SN_N_IF, parse_if},
                {"for", SN_N_FOR, parse_for},
                {"set", SN_N_SET, parse_set},
                {"macro", SN_N_MACRO, parse_macro},
                {"call", SN_N_CALLBLOCK, parse_callblock},
                {"filter", SN_N_FILTERBLOCK, parse_filterblock},
                {"with", SN_N_WITH, parse_with},
                {"generation", SN_N_GENERATION, parse_generation},
                {"break", SN_N_BREAK, parse_jump},
                {"continue", SN_N_CONTINUE, parse_jump}};
    if (p->t->type != SN_T_NAME)
        return sn_jp_unexpected(p, "a statement");
    for (size_t i = 0; i < SN_ARRAY_LEN(tags); i++)
        if (sn_jp_is_name(p, tags[i].name)) {
            *out = sn_jp_node(p, tags[i].kind, p->t);
            return *out && tags[i].parse(p, *out);
        }
    return refuse_tag(p);
}

/* ---- whole template
 * ------------------------------------------------------------------------------------------ */

static bool intern_reserved(struct sn_jparser *p)
{
    static const struct sn_jstr names[SN_ID_RESERVED] = {
        {.data = "loop", .len = 4, .n_chars = 4},
        {.data = "caller", .len = 6, .n_chars = 6},
        {.data = "varargs", .len = 7, .n_chars = 7},
        {.data = "kwargs", .len = 6, .n_chars = 6}};
    for (uint32_t i = 0; i < SN_ID_RESERVED; i++) {
        uint32_t id;
        if (!sn_jp_intern(p, &names[i], &id))
            return false;
    }
    return true;
}

sennit_status sn_jinja_parse(struct sn_jarena *arena, const struct sn_jtoken *tokens,
                             size_t n_tokens, struct sn_jblock *body, struct sn_jnames *names,
                             struct sennit_error *err)
{
    struct sn_jparser p = {
        .arena = arena, .err = err, .t = tokens, .end = tokens + n_tokens - 1, .names = names};
    if (!intern_reserved(&p) || !parse_body(&p, p.t, NULL, body))
        return p.status;
    if (p.pending.n > 0) {
        const struct sn_jnode *n = p.pending.v[0];
        return sn_fail(err, SENNIT_UNSUPPORTED, "template line %u, column %u: no %s named '%.*s'",
                       n->line, n->col, n->kind == SN_N_FILTER ? "filter" : "test",
                       (int)sn_min_size(n->name->len, 100), n->name->data);
    }
    return SENNIT_OK;
}
