/* Statements, scopes, macros, and where output goes. */
#include "text/template/run.h"

/* ---- output ---------------------------------------------------------------------------------- */

static bool add_span(struct sn_jrun *r, size_t start, size_t end, bool trusted)
{
    struct sn_span_list *l = r->spans;
    if (l->n > 0 && l->items[l->n - 1].trusted == trusted) {
        l->items[l->n - 1].end = end;
        return true;
    }
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        struct sn_span *items =
            sn_realloc(l->heap, SN_USE_TEXT, l->items, l->cap * sizeof *items, cap * sizeof *items);
        if (!items)
            return sn_jnomem(r);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = (struct sn_span){start, end, trusted};
    return true;
}

static bool add_spans(struct sn_jrun *r, const struct sn_jstr *s, size_t base)
{
    for (size_t i = 0; i < s->len;) {
        bool trusted = sn_jtrust(s, i);
        size_t end = s->mask ? i + 1 : s->len;
        while (end < s->len && sn_jtrust(s, end) == trusted)
            end++;
        if (!add_span(r, base + i, base + end, trusted))
            return false;
        i = end;
    }
    return true;
}

bool sn_jemit(struct sn_jrun *r, const struct sn_jstr *s)
{
    if (r->sink) {
        sn_jsb_str(r->sink, s);
        return !r->sink->failed;
    }
    size_t base = r->out->len - r->out_start;
    if (s->len > r->max_output - base)
        return sn_jfail(r, SENNIT_TOO_BIG, "the rendered text is longer than the allowed %zu bytes",
                        r->max_output);
    sennit_status status = sn_buf_append(r->out, s->data, s->len);
    if (status == SENNIT_TOO_BIG)
        return sn_jfail(r, status, "the rendered text is longer than the allowed %zu bytes",
                        r->out->max);
    if (status != SENNIT_OK) {
        r->arena.over = false;
        return sn_jnomem(r);
    }
    return !r->spans || add_spans(r, s, base);
}

static enum sn_jflow flow_of(bool ok)
{
    return ok ? SN_FLOW_NEXT : SN_FLOW_FAIL;
}

/* Runs a body in a scope of its own, collecting its output in *text. */
static enum sn_jflow capture(struct sn_jrun *r, const struct sn_jblock *body,
                             struct sn_jscope *scope, struct sn_jval *text)
{
    struct sn_jsb sb, *outer_sink = r->sink;
    struct sn_jscope *outer = r->scope;
    sn_jsb_init(&sb, r);
    r->sink = &sb;
    r->scope = scope;
    enum sn_jflow flow = sn_jexec(r, body);
    r->sink = outer_sink;
    r->scope = outer;
    if (flow != SN_FLOW_FAIL && !sn_jsb_val(&sb, text))
        flow = SN_FLOW_FAIL;
    return flow;
}

/* ---- scopes ---------------------------------------------------------------------------------- */

static bool bind_in(struct sn_jrun *r, struct sn_jscope *s, uint32_t id, struct sn_jval v)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->v[i].id == id) {
            s->v[i].v = v;
            return true;
        }
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 4;
        struct sn_jbind *more = sn_jnew(r, cap, sizeof *more);
        if (!more)
            return false;
        if (s->n)
            memcpy(more, s->v, s->n * sizeof *more);
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = (struct sn_jbind){id, v};
    return true;
}

bool sn_jbind(struct sn_jrun *r, uint32_t id, struct sn_jval v)
{
    if (r->scope)
        return bind_in(r, r->scope, id, v);
    r->root[id] = v;
    return true;
}

static struct sn_jscope *new_scope(struct sn_jrun *r, struct sn_jscope *parent)
{
    struct sn_jscope *s = sn_jnew(r, 1, sizeof *s);
    if (s)
        s->parent = parent;
    return s;
}

static bool assign_ns(struct sn_jrun *r, const struct sn_jnode *target, struct sn_jval v)
{
    struct sn_jnode name = {.kind = SN_N_NAME,
                            .id = target->id,
                            .name = r->names->v[target->id],
                            .line = target->line,
                            .col = target->col};
    struct sn_jval ns;
    if (!sn_jeval(r, &name, &ns))
        return false;
    r->at = target;
    if (ns.type != SN_J_NS)
        return sn_jfail(r, SENNIT_INVALID,
                        "attributes can be set on a namespace() only, not on a %s",
                        sn_jtype_name(ns));
    if (target->name->len > 0 && target->name->data[0] == '_')
        return sn_jfail(r, SENNIT_INVALID,
                        "a namespace attribute may not begin with an underscore");
    return sn_jdict_set(r, ns.u.dict, sn_jstrv(target->name), v);
}

static bool assign(struct sn_jrun *r, const struct sn_jnode *target, struct sn_jval v)
{
    if (target->kind == SN_N_NAME)
        return sn_jbind(r, target->id, v);
    if (target->kind == SN_N_NSREF)
        return assign_ns(r, target, v);
    struct sn_jval *items;
    size_t n;
    r->at = target;
    if (v.type == SN_J_UNDEF)
        return sn_jundef_error(r, v);
    if (!sn_jiter(r, v, &items, &n))
        return false;
    if (n != target->items.n)
        return sn_jfail(r, SENNIT_INVALID, "%zu values cannot be unpacked into %u names", n,
                        target->items.n);
    for (size_t i = 0; i < n; i++)
        if (!assign(r, target->items.v[i], items[i]))
            return false;
    return true;
}

/* ---- macros ---------------------------------------------------------------------------------- */

static bool take_kwargs(struct sn_jrun *r, const struct sn_jmacrodef *m, const struct sn_jcall *c,
                        struct sn_jval *args, struct sn_jdict *rest, struct sn_jval *caller)
{
    for (size_t i = 0; i < c->n_kw; i++) {
        const struct sn_jstr *name = c->kw[i].name;
        uint32_t k = 0;
        while (k < m->n_params && !sn_jstr_same(m->param_names[k], name))
            k++;
        if (k < m->n_params && args[k].type != SN_J_ABSENT)
            return sn_jfail(r, SENNIT_INVALID, "macro '%.*s' got the argument '%.*s' twice",
                            (int)sn_min_size(m->name->len, 100), m->name->data,
                            (int)sn_min_size(name->len, 100), name->data);
        if (k < m->n_params)
            args[k] = c->kw[i].v;
        else if (m->uses_caller && sn_jstr_eq(name, "caller"))
            *caller = c->kw[i].v;
        else if (!m->uses_kwargs)
            return sn_jfail(r, SENNIT_INVALID, "macro '%.*s' takes no argument named '%.*s'",
                            (int)sn_min_size(m->name->len, 100), m->name->data,
                            (int)sn_min_size(name->len, 100), name->data);
        else if (!sn_jdict_set(r, rest, sn_jstrv(name), c->kw[i].v))
            return false;
    }
    return true;
}

/* Binds arguments in the order of the parameters, so that a default may use the ones before it. */
static bool bind_params(struct sn_jrun *r, const struct sn_jmacrodef *m, struct sn_jval *args,
                        struct sn_jscope *scope)
{
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (args[i].type == SN_J_ABSENT) {
            args[i] = sn_jundef(SN_JU_ARG, m->param_names[i]);
            if (m->defaults[i]) {
                struct sn_jscope *outer = r->scope;
                r->scope = scope;
                bool ok = sn_jeval(r, m->defaults[i], &args[i]);
                r->scope = outer;
                if (!ok)
                    return false;
            }
        }
        if (!bind_in(r, scope, m->params[i], args[i]))
            return false;
    }
    return true;
}

bool sn_jmacro_call(struct sn_jrun *r, const struct sn_jmacro *macro, const struct sn_jcall *c,
                    struct sn_jval *out)
{
    const struct sn_jmacrodef *m = macro->def;
    const struct sn_jnode *at = r->at;
    struct sn_jscope *scope = new_scope(r, macro->scope);
    struct sn_jval *args = scope ? sn_jnew(r, m->n_params + 1, sizeof *args) : NULL;
    struct sn_jdict *rest = args ? sn_jdict_new(r, 0) : NULL;
    struct sn_jseq *more = rest ? sn_jseq_new(r, 0) : NULL;
    struct sn_jval caller = sn_jundef(SN_JU_NAME, r->names->v[SN_ID_CALLER]);
    if (!more)
        return false;
    for (size_t i = 0; i < c->n_pos; i++) {
        if (i < m->n_params)
            args[i] = c->pos[i];
        else if (!m->uses_varargs)
            return sn_jfail(r, SENNIT_INVALID, "macro '%.*s' takes not more than %u argument(s)",
                            (int)sn_min_size(m->name->len, 100), m->name->data, m->n_params);
        else if (!sn_jseq_push(r, more, c->pos[i]))
            return false;
    }
    if (!take_kwargs(r, m, c, args, rest, &caller) ||
        (m->uses_caller && !bind_in(r, scope, SN_ID_CALLER, caller)) ||
        (m->uses_kwargs && !bind_in(r, scope, SN_ID_KWARGS, sn_jdictv(rest))) ||
        (m->uses_varargs && !bind_in(r, scope, SN_ID_VARARGS, sn_jseqv(SN_J_TUPLE, more))) ||
        !bind_params(r, m, args, scope) || !sn_jenter(r))
        return false;
    bool ok = capture(r, &m->body, scope, out) != SN_FLOW_FAIL;
    sn_jleave(r);
    r->at = at;
    return ok;
}

static bool make_macro(struct sn_jrun *r, const struct sn_jmacrodef *def, struct sn_jval *out)
{
    struct sn_jmacro *m = sn_jnew(r, 1, sizeof *m);
    if (!m)
        return false;
    *m = (struct sn_jmacro){def, r->scope};
    for (struct sn_jscope *s = r->scope; s; s = s->parent)
        s->captured = true;
    *out = (struct sn_jval){.type = SN_J_MACRO, .u.macro = m};
    return true;
}

static bool exec_callblock(struct sn_jrun *r, const struct sn_jnode *n)
{
    struct sn_jval caller, text;
    if (!make_macro(r, n->macro, &caller))
        return false;
    /* The call with one more argument, caller=..., which is a constant by now. */
    struct sn_jnode constant = {
        .kind = SN_N_CONST, .line = n->line, .col = n->col, .value = caller};
    struct sn_jnode call = *n->a;
    struct sn_jkwnode *kw = sn_jnew(r, call.args.n_kw + 1, sizeof *kw);
    const struct sn_jstr *s;
    if (!kw)
        return false;
    if (call.args.n_kw)
        memcpy(kw, call.args.kw, call.args.n_kw * sizeof *kw);
    kw[call.args.n_kw++] = (struct sn_jkwnode){r->names->v[SN_ID_CALLER], &constant};
    call.args.kw = kw;
    bool ok = sn_jeval(r, &call, &text) && sn_jstr_of(r, text, &s) && sn_jemit(r, s);
    r->at = n;
    return ok;
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* The items that pass the loop's filter; the filter sees the target but not `loop`. */
static bool filter_items(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval **items,
                         size_t *count)
{
    if (!n->c)
        return true;
    struct sn_jscope *outer = r->scope, *scope = new_scope(r, outer);
    struct sn_jval *kept = scope ? sn_jnew(r, *count + 1, sizeof *kept) : NULL;
    size_t n_kept = 0;
    bool ok = kept != NULL;
    r->scope = scope;
    for (size_t i = 0; ok && i < *count; i++) {
        struct sn_jval v;
        bool yes = false;
        scope->n = 0;
        ok = assign(r, n->a, (*items)[i]) && sn_jeval(r, n->c, &v) && sn_jtruth(r, v, &yes);
        if (ok && yes)
            kept[n_kept++] = (*items)[i];
    }
    r->scope = outer;
    *items = kept;
    *count = n_kept;
    return ok;
}

/* One round in a fresh scope: what is set in a round is gone in the next. */
static enum sn_jflow run_round(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jloop *loop,
                               struct sn_jscope **scope)
{
    if (!*scope || (*scope)->captured)
        *scope = new_scope(r, loop->outer);
    if (!*scope)
        return SN_FLOW_FAIL;
    (*scope)->n = 0;
    r->scope = *scope;
    struct sn_jval loop_value = {.type = SN_J_LOOP, .u.loop = loop};
    if (!bind_in(r, *scope, SN_ID_LOOP, loop_value) || !assign(r, n->a, loop->items[loop->index0]))
        return SN_FLOW_FAIL;
    return sn_jexec(r, &n->body);
}

static enum sn_jflow run_loop(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jscope *outer,
                              struct sn_jval over, uint32_t level0)
{
    struct sn_jval *items;
    size_t count;
    struct sn_jscope *saved = r->scope, *scope = NULL;
    r->scope = outer;
    r->at = n->b;
    bool ok = sn_jiter(r, over, &items, &count) && filter_items(r, n, &items, &count);
    struct sn_jloop *loop = ok ? sn_jnew(r, 1, sizeof *loop) : NULL;
    enum sn_jflow flow = flow_of(loop != NULL);
    if (loop)
        *loop = (struct sn_jloop){
            .node = n, .outer = outer, .items = items, .n = count, .level0 = level0};
    bool finished = false; /* a round came to its end: neither break nor continue; the reference's
                              rule for else */
    for (size_t i = 0; flow != SN_FLOW_FAIL && flow != SN_FLOW_BREAK && i < count; i++) {
        loop->index0 = i;
        flow = run_round(r, n, loop, &scope);
        finished |= flow == SN_FLOW_NEXT;
    }
    if (flow != SN_FLOW_FAIL && !finished && n->orelse.n) {
        r->scope = new_scope(r, outer);
        flow = r->scope ? sn_jexec(r, &n->orelse) : SN_FLOW_FAIL;
    } else if (flow != SN_FLOW_FAIL) {
        flow = SN_FLOW_NEXT;
    }
    r->scope = saved;
    return flow;
}

bool sn_jloop_recurse(struct sn_jrun *r, const struct sn_jloop *loop, struct sn_jval items,
                      struct sn_jval *out)
{
    struct sn_jsb sb, *outer = r->sink;
    const struct sn_jnode *at = r->at;
    if (!loop->node->flag)
        return sn_jfail(r, SENNIT_INVALID, "loop() needs a loop that is marked recursive");
    if (!sn_jenter(r))
        return false;
    sn_jsb_init(&sb, r);
    r->sink = &sb;
    bool ok = run_loop(r, loop->node, loop->outer, items, loop->level0 + 1) != SN_FLOW_FAIL;
    r->sink = outer;
    r->at = at;
    sn_jleave(r);
    return ok && sn_jsb_val(&sb, out);
}

static enum sn_jflow exec_for(struct sn_jrun *r, const struct sn_jnode *n)
{
    struct sn_jval over;
    if (!sn_jeval(r, n->b, &over))
        return SN_FLOW_FAIL;
    return run_loop(r, n, r->scope, over, 0);
}

/* ---- the other statements
 * ------------------------------------------------------------------------------------ */

static enum sn_jflow exec_if(struct sn_jrun *r, const struct sn_jnode *n)
{
    for (uint32_t i = 0; i < n->items.n; i++) {
        struct sn_jval test;
        bool yes;
        if (!sn_jeval(r, n->items.v[i], &test) || !sn_jtruth(r, test, &yes))
            return SN_FLOW_FAIL;
        if (yes)
            return sn_jexec(r, &n->bodies[i]);
    }
    return sn_jexec(r, &n->orelse);
}

static bool exec_output(struct sn_jrun *r, const struct sn_jnode *n)
{
    struct sn_jval v;
    const struct sn_jstr *s;
    if (!sn_jeval(r, n->a, &v))
        return false;
    r->at = n;
    return sn_jstr_of(r, v, &s) && sn_jemit(r, s);
}

static bool exec_set(struct sn_jrun *r, const struct sn_jnode *n)
{
    struct sn_jval v;
    return sn_jeval(r, n->b, &v) && assign(r, n->a, v);
}

/* Applies a chain of filters to v: a copy of the chain whose innermost filter takes v as a
 * constant. */
static bool apply_chain(struct sn_jrun *r, const struct sn_jnode *chain, struct sn_jval *v)
{
    size_t n = 0;
    for (const struct sn_jnode *f = chain; f; f = f->a)
        n++;
    struct sn_jnode *copies = sn_jnew(r, n + 1, sizeof *copies);
    if (!copies)
        return false;
    for (size_t k = 0; k < n; k++, chain = chain->a) {
        copies[k] = *chain;
        copies[k].a = &copies[k + 1];
    }
    copies[n] = (struct sn_jnode){.kind = SN_N_CONST, .value = *v};
    return sn_jeval(r, copies, v);
}

/* {% set x | filter %}..{% endset %} and {% filter f %}..{% endfilter %}. */
static enum sn_jflow exec_captured(struct sn_jrun *r, const struct sn_jnode *n)
{
    struct sn_jscope *scope = new_scope(r, r->scope);
    const struct sn_jnode *chain = n->kind == SN_N_SETBLOCK ? n->b : n->a;
    struct sn_jval v;
    const struct sn_jstr *s;
    if (!scope)
        return SN_FLOW_FAIL;
    enum sn_jflow flow = capture(r, &n->body, scope, &v);
    if (flow != SN_FLOW_NEXT)
        return flow;
    if (chain && !apply_chain(r, chain, &v))
        return SN_FLOW_FAIL;
    if (n->kind == SN_N_SETBLOCK)
        return flow_of(assign(r, n->a, v));
    return flow_of(sn_jstr_of(r, v, &s) && sn_jemit(r, s));
}

static enum sn_jflow exec_scoped(struct sn_jrun *r, const struct sn_jnode *n)
{
    struct sn_jscope *outer = r->scope, *scope = new_scope(r, outer);
    if (!scope)
        return SN_FLOW_FAIL;
    for (uint32_t i = 0; i < n->items.n; i += 2) { /* the values are those of the outside */
        struct sn_jval v;
        if (!sn_jeval(r, n->items.v[i + 1], &v))
            return SN_FLOW_FAIL;
        r->scope = scope;
        bool ok = assign(r, n->items.v[i], v);
        r->scope = outer;
        if (!ok)
            return SN_FLOW_FAIL;
    }
    r->scope = scope;
    enum sn_jflow flow = sn_jexec(r, &n->body);
    r->scope = outer;
    return flow;
}

static bool exec_macro(struct sn_jrun *r, const struct sn_jnode *n)
{
    struct sn_jval m;
    return make_macro(r, n->macro, &m) && sn_jbind(r, n->id, m);
}

static enum sn_jflow exec_one(struct sn_jrun *r, const struct sn_jnode *n)
{
    r->at = n;
    if (!sn_jsteps(r, 1))
        return SN_FLOW_FAIL;
    switch (n->kind) {
    case SN_N_DATA:
        return flow_of(sn_jemit(r, n->value.u.s));
    case SN_N_OUTPUT:
        return flow_of(exec_output(r, n));
    case SN_N_IF:
        return exec_if(r, n);
    case SN_N_FOR:
        return exec_for(r, n);
    case SN_N_SET:
        return flow_of(exec_set(r, n));
    case SN_N_SETBLOCK:
    case SN_N_FILTERBLOCK:
        return exec_captured(r, n);
    case SN_N_MACRO:
        return flow_of(exec_macro(r, n));
    case SN_N_CALLBLOCK:
        return flow_of(exec_callblock(r, n));
    case SN_N_WITH:
    case SN_N_GENERATION:
        return exec_scoped(r, n);
    case SN_N_BREAK:
        return SN_FLOW_BREAK;
    case SN_N_CONTINUE:
        return SN_FLOW_CONTINUE;
    default:
        return flow_of(sn_jfail(r, SENNIT_INTERNAL, "an expression where a statement belongs"));
    }
}

enum sn_jflow sn_jexec(struct sn_jrun *r, const struct sn_jblock *body)
{
    enum sn_jflow flow = SN_FLOW_NEXT;
    if (!sn_jenter(r))
        return SN_FLOW_FAIL;
    for (uint32_t i = 0; i < body->n && flow == SN_FLOW_NEXT; i++)
        flow = exec_one(r, body->v[i]);
    sn_jleave(r);
    return flow;
}
