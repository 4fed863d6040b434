/* The room's entry: parse once, render many times. A render's whole state is on its own stack and
 * in its arena. */
#include "text/template/template.h"

#include <limits.h>
#include <locale.h>

#include "text/template/run.h"

struct sn_template {
    struct sn_heap *heap;
    struct sn_jarena arena; /* tokens, tree, names: never touched after parsing */
    struct sn_jblock body;
    struct sn_jnames names;
};

enum { MAX_SOURCE_BYTES = 4 << 20, MAX_TREE_BYTES = 512 << 20, MAX_DEPTH = 1000 };

/* Numbers are read and printed with a point, whatever locale the host program has set: the C locale is this thread's
 * for the time of a call. */
struct c_locale {
    locale_t own, before;
};

static sennit_status enter_c_locale(struct c_locale *c, struct sennit_error *err)
{
    c->own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c->own == (locale_t)0)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the C locale");
    c->before = uselocale(c->own);
    return SENNIT_OK;
}

static void leave_c_locale(struct c_locale *c)
{
    uselocale(c->before);
    freelocale(c->own);
}

void sn_span_list_init(struct sn_span_list *list, struct sn_heap *heap)
{
    *list = (struct sn_span_list){.heap = heap};
}

void sn_span_list_free(struct sn_span_list *list)
{
    sn_free(list->heap, SN_USE_TEXT, list->items, list->cap * sizeof *list->items);
    sn_span_list_init(list, list->heap);
}

static sennit_status parse_into(struct sn_template *t, const char *source, size_t n,
                                struct sennit_error *err)
{
    size_t bad, n_tokens;
    struct sn_jtoken *tokens;
    if (n > MAX_SOURCE_BYTES)
        return sn_fail(err, SENNIT_TOO_BIG, "the template has %zu bytes, more than the allowed %d",
                       n, MAX_SOURCE_BYTES);
    if (!sn_uni_valid(source, n, &bad))
        return sn_fail(err, SENNIT_FORMAT, "the template is not UTF-8 at byte %zu", bad);
    char *copy = sn_jarena_alloc(&t->arena, n + 1);
    if (!copy)
        return sn_fail(err, SENNIT_NOMEM, "out of memory while reading a template of %zu bytes", n);
    if (n)
        memcpy(copy, source, n);
    struct c_locale locale = {0};
    SN_TRY(enter_c_locale(&locale, err));
    sennit_status status = sn_jinja_lex(&t->arena, copy, n, &tokens, &n_tokens, err);
    leave_c_locale(&locale);
    SN_TRY(status);
    return sn_jinja_parse(&t->arena, tokens, n_tokens, &t->body, &t->names, err);
}

sennit_status sn_template_parse(struct sn_template **out, struct sn_heap *heap, const char *source,
                                size_t n_bytes, struct sennit_error *err)
{
    *out = NULL;
    struct sn_template *t = sn_calloc(heap, SN_USE_TEXT, 1, sizeof *t);
    if (!t)
        return sn_fail(err, SENNIT_NOMEM, "out of memory for a template");
    t->heap = heap;
    sn_jarena_init(&t->arena, heap, MAX_TREE_BYTES);
    sennit_status status = parse_into(t, source, n_bytes, err);
    if (status != SENNIT_OK) {
        sn_template_free(t);
        return status;
    }
    *out = t;
    return SENNIT_OK;
}

void sn_template_free(struct sn_template *t)
{
    if (!t)
        return;
    sn_jarena_free(&t->arena);
    sn_free(t->heap, SN_USE_TEXT, t, sizeof *t);
}

/* ---- rendering ------------------------------------------------------------------------------- */

static bool is_trusted_name(const struct sn_render_opts *opts, const struct sn_jstr *name)
{
    static const char *const standard[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                           NULL};
    for (const char *const *p = opts->trusted_names ? opts->trusted_names : standard; *p; p++)
        if (sn_jstr_eq(name, *p))
            return true;
    return false;
}

/* Only variables that the template names are converted. */
static bool load_vars(struct sn_jrun *r, const json_t *vars)
{
    for (uint32_t id = 0; id < r->names->n; id++) {
        const struct sn_jstr *name = r->names->v[id];
        const json_t *v = json_object_getn(vars, name->data, name->len);
        if (v && !sn_jfrom_json(r, v, is_trusted_name(r->opts, name), &r->root[id]))
            return false;
    }
    return true;
}

static void set_limits(struct sn_jrun *r, const struct sn_render_limits *l)
{
    r->max_steps = l->max_steps ? l->max_steps : 20000000;
    r->max_output = l->max_output_bytes ? l->max_output_bytes : (size_t)64 << 20;
    r->arena.max = l->max_memory_bytes ? l->max_memory_bytes : (size_t)512 << 20;
    r->max_depth = l->max_depth && l->max_depth < MAX_DEPTH ? l->max_depth : MAX_DEPTH;
}

static bool run(struct sn_jrun *r, const struct sn_template *t, const json_t *vars)
{
    r->root = sn_jnew(r, t->names.n + 1, sizeof *r->root);
    if (!r->root || (vars && !load_vars(r, vars)))
        return false;
    return sn_jexec(r, &t->body) != SN_FLOW_FAIL;
}

sennit_status sn_template_render(const struct sn_template *t, const json_t *vars,
                                 const struct sn_render_opts *opts, struct sn_buf *out,
                                 struct sn_span_list *spans, struct sennit_error *err)
{
    static const struct sn_render_opts defaults = {0};
    if (vars && !json_is_object(vars))
        return sn_fail(err, SENNIT_INVALID, "the variables of a template must be a JSON object");
    struct sn_jrun r = {.names = &t->names,
                        .opts = opts ? opts : &defaults,
                        .err = err,
                        .out = out,
                        .spans = spans,
                        .out_start = out->len};
    struct c_locale locale = {0};
    SN_TRY(enter_c_locale(&locale, err));
    sn_jarena_init(&r.arena, t->heap, 0);
    set_limits(&r, &r.opts->limits);
    if (spans)
        spans->n = 0;
    bool ok = run(&r, t, vars);
    sn_jarena_free(&r.arena);
    leave_c_locale(&locale);
    if (ok)
        return SENNIT_OK;
    out->len = r.out_start;
    if (out->data)
        out->data[out->len] = '\0';
    if (spans)
        spans->n = 0;
    return r.status != SENNIT_OK
               ? r.status
               : sn_fail(err, SENNIT_INTERNAL, "a render failed without a reason");
}
