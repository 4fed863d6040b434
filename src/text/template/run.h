/* The state of one render and what evaluator, operations and builtins share.
 *
 * Functions return false after a failure, which is then recorded in r->status and r->err with the
 * place r->at. Every function that takes a value of the template by recursion goes through
 * sn_jenter, which bounds the C stack.
 */
#ifndef SN_TEXT_TEMPLATE_RUN_H
#define SN_TEXT_TEMPLATE_RUN_H

#include "text/template/ast.h"
#include "text/template/template.h"

struct sn_jbind {
    uint32_t id;
    struct sn_jval v;
};

/* Names set in a loop round, a macro call, a block. The template's own level is r->root, indexed by
 * id. */
struct sn_jscope {
    struct sn_jscope *parent; /* NULL: r->root comes next */
    struct sn_jbind *v;
    uint32_t n, cap;
    bool captured; /* a macro refers to it, so it may not be reused for the next round */
};

struct sn_jmacro {
    const struct sn_jmacrodef *def;
    struct sn_jscope *scope; /* where it was defined; NULL = the template's level */
};

struct sn_jloop {
    const struct sn_jnode *node;
    struct sn_jscope *outer;
    struct sn_jval *items;
    size_t n, index0;
    uint32_t level0;
    struct sn_jval changed; /* last arguments of loop.changed(), ABSENT before the first */
};

struct sn_jsb;
struct sn_jrun {
    struct sn_jarena arena;
    const struct sn_jnames *names;
    const struct sn_render_opts *opts;
    struct sennit_error *err;
    sennit_status status;
    const struct sn_jnode *at;
    uint64_t steps, max_steps;
    uint32_t depth, max_depth;
    struct sn_jval *root; /* [names->n], ABSENT = not set */
    struct sn_jscope *scope;
    struct sn_jsb *sink; /* where output goes: NULL = out and spans */
    struct sn_buf *out;
    struct sn_span_list *spans;
    size_t out_start, max_output;
};

SN_MUST bool sn_jfail(struct sn_jrun *r, sennit_status status, const char *fmt, ...)
    SENNIT_PRINTF(3, 4);
SN_MUST bool sn_jnomem(struct sn_jrun *r);
SN_MUST bool sn_jsteps(struct sn_jrun *r, uint64_t n);
SN_MUST bool sn_jenter(struct sn_jrun *r); /* paired with sn_jleave when it returned true */
static inline void sn_jleave(struct sn_jrun *r)
{
    r->depth--;
}
void *sn_jnew(struct sn_jrun *r, size_t n,
              size_t size); /* zeroed; NULL has been recorded as failure */

/* ---- string building
 * ----------------------------------------------------------------------------------------- */
/* Collects bytes with their trust. After a failure further appends do nothing and sn_jsb_done
 * returns false. */
struct sn_jsb {
    struct sn_jrun *r;
    char *data;
    uint8_t *mask; /* NULL while all bytes so far have the same trust */
    size_t len, cap;
    bool trusted, failed;
};
void sn_jsb_init(struct sn_jsb *b, struct sn_jrun *r);
void sn_jsb_bytes(struct sn_jsb *b, const char *data, size_t n, bool trusted);
void sn_jsb_text(struct sn_jsb *b, const char *z); /* trusted */
void sn_jsb_part(struct sn_jsb *b, const struct sn_jstr *s, size_t from,
                 size_t to); /* byte offsets */
void sn_jsb_str(struct sn_jsb *b, const struct sn_jstr *s);
void sn_jsb_char(struct sn_jsb *b, uint32_t cp, bool trusted);
SN_MUST bool sn_jsb_done(struct sn_jsb *b, const struct sn_jstr **out);
SN_MUST bool sn_jsb_val(struct sn_jsb *b, struct sn_jval *out);

static inline bool sn_jtrust(const struct sn_jstr *s, size_t i)
{
    return s->mask ? s->mask[i] != 0 : s->trusted;
}
SN_MUST bool sn_jslice_bytes(struct sn_jrun *r, const struct sn_jstr *s, size_t from, size_t to,
                             struct sn_jval *out);
size_t sn_jbyte_of(const struct sn_jstr *s, size_t i_char); /* byte offset of a character */
SN_MUST bool sn_jlit(struct sn_jrun *r, const char *z, struct sn_jval *out); /* trusted copy of z */
SN_MUST bool sn_jescape(struct sn_jrun *r, const struct sn_jstr *s,
                        const struct sn_jstr **out); /* & < > ' " for HTML */
/* Plain text: markup is not looked at and not kept. */
SN_MUST bool sn_jconcat(struct sn_jrun *r, const struct sn_jstr *a, const struct sn_jstr *b,
                        const struct sn_jstr **out);
SN_MUST bool sn_jcase(struct sn_jrun *r, const struct sn_jstr *s, enum sn_case first,
                      enum sn_case rest, bool per_word, struct sn_jval *out);
bool sn_jfind(const struct sn_jstr *s, size_t from, const struct sn_jstr *what,
              size_t *at); /* bytes */

/* ---- conversions and operations (ops.c, repr.c)
 * ---------------------------------------------------- */
SN_MUST bool sn_jfrom_json(struct sn_jrun *r, const json_t *j, bool trusted, struct sn_jval *out);
SN_MUST bool sn_jstr_of(struct sn_jrun *r, struct sn_jval v,
                        const struct sn_jstr **out); /* str(v) */
void sn_jrepr(struct sn_jsb *b, struct sn_jval v);
void sn_jfloat_repr(struct sn_jsb *b, double f);
struct sn_jjson {
    bool ascii, sort_keys, pretty;
    const struct sn_jstr *indent, *item_sep, *key_sep;
};
void sn_jto_json(struct sn_jsb *b, struct sn_jval v, const struct sn_jjson *opts, uint32_t level);

SN_MUST bool sn_jtruth(struct sn_jrun *r, struct sn_jval v, bool *out);
SN_MUST bool sn_jequal(struct sn_jrun *r, struct sn_jval a, struct sn_jval b, bool *out);
SN_MUST bool sn_jcompare(struct sn_jrun *r, struct sn_jval a, struct sn_jval b, enum sn_jop op,
                         bool *out);
SN_MUST bool sn_jcontains(struct sn_jrun *r, struct sn_jval hay, struct sn_jval needle, bool *out);
SN_MUST bool sn_jbinary(struct sn_jrun *r, enum sn_jop op, struct sn_jval a, struct sn_jval b,
                        struct sn_jval *out);
SN_MUST bool sn_jpercent(struct sn_jrun *r, const struct sn_jstr *fmt, struct sn_jval args,
                         struct sn_jval *out);
SN_MUST bool sn_jlength(struct sn_jrun *r, struct sn_jval v, int64_t *out);
/* The items of anything iterable as an array; consumes an ITER. */
SN_MUST bool sn_jiter(struct sn_jrun *r, struct sn_jval v, struct sn_jval **items, size_t *n);
SN_MUST bool sn_jundef_error(struct sn_jrun *r, struct sn_jval v);
SN_MUST bool sn_jattr(struct sn_jrun *r, struct sn_jval obj, const struct sn_jstr *name,
                      struct sn_jval *out);
SN_MUST bool sn_jitem(struct sn_jrun *r, struct sn_jval obj, struct sn_jval key,
                      struct sn_jval *out);
SN_MUST bool sn_jslice(struct sn_jrun *r, struct sn_jval obj, const struct sn_jval bounds[3],
                       struct sn_jval *out);

struct sn_jseq *sn_jseq_new(struct sn_jrun *r, size_t cap);
SN_MUST bool sn_jseq_push(struct sn_jrun *r, struct sn_jseq *s, struct sn_jval v);
struct sn_jdict *sn_jdict_new(struct sn_jrun *r, size_t cap);
SN_MUST bool sn_jdict_set(struct sn_jrun *r, struct sn_jdict *d, struct sn_jval key,
                          struct sn_jval v);
/* *out = NULL when the key is not there; false for a key that cannot be one. */
SN_MUST bool sn_jdict_get(struct sn_jrun *r, const struct sn_jdict *d, struct sn_jval key,
                          struct sn_jval **out);
struct sn_jval *sn_jdict_find(const struct sn_jdict *d, const struct sn_jstr *key);
SN_MUST bool sn_jhashable(struct sn_jrun *r, struct sn_jval v, bool *yes);

/* ---- builtins -------------------------------------------------------------------------------- */
enum { SN_J_MAX_PARAMS = 6 };
struct sn_jkw {
    const struct sn_jstr *name;
    struct sn_jval v;
};
/* What a builtin receives: arguments bound to its parameters in a[], or raw in pos/kw when it
 * declares none. */
struct sn_jcall {
    struct sn_jval self;
    struct sn_jval a[SN_J_MAX_PARAMS]; /* ABSENT where not given */
    const struct sn_jval *pos;
    size_t n_pos;
    const struct sn_jkw *kw;
    size_t n_kw;
};
typedef bool (*sn_jfn)(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out);
struct sn_jbuiltin {
    const char *name;
    sn_jfn fn;
    const char *params; /* names separated by blanks; NULL = takes anything, reads pos and kw */
    uint8_t n_required;
};
struct sn_jtable {
    const struct sn_jbuiltin *v;
    size_t n;
};
extern const struct sn_jtable sn_jfilters_text, sn_jfilters_seq, sn_jfilters_markup;
extern const struct sn_jtable sn_jtests, sn_jglobals;
extern const struct sn_jtable sn_jmethods_str, sn_jmethods_seq, sn_jmethods_dict, sn_jmethods_loop;

const struct sn_jbuiltin *sn_jtable_find(const struct sn_jtable *t, const struct sn_jstr *name);
const struct sn_jbuiltin *sn_jfilter_find(const struct sn_jstr *name);
const struct sn_jbuiltin *sn_jtest_find(const struct sn_jstr *name);
SN_MUST bool sn_jbuiltin_call(struct sn_jrun *r, const struct sn_jbuiltin *fn, struct sn_jcall *c,
                              struct sn_jval *out);
/* Calls any callable value. */
SN_MUST bool sn_jcall_value(struct sn_jrun *r, struct sn_jval f, const struct sn_jcall *c,
                            struct sn_jval *out);
SN_MUST bool sn_jmacro_call(struct sn_jrun *r, const struct sn_jmacro *m, const struct sn_jcall *c,
                            struct sn_jval *out);
SN_MUST bool sn_jloop_recurse(struct sn_jrun *r, const struct sn_jloop *loop, struct sn_jval items,
                              struct sn_jval *out);
SN_MUST bool sn_jstrftime(struct sn_jrun *r, const struct sn_jstr *fmt, struct sn_jval *out);
SN_MUST bool sn_jformat(struct sn_jrun *r, const struct sn_jcall *c,
                        struct sn_jval *out); /* str.format */

/* ---- evaluator ------------------------------------------------------------------------------- */
SN_MUST bool sn_jeval(struct sn_jrun *r, const struct sn_jnode *n, struct sn_jval *out);
enum sn_jflow { SN_FLOW_NEXT, SN_FLOW_BREAK, SN_FLOW_CONTINUE, SN_FLOW_FAIL };
SN_MUST enum sn_jflow sn_jexec(struct sn_jrun *r, const struct sn_jblock *body);
SN_MUST bool sn_jbind(struct sn_jrun *r, uint32_t id, struct sn_jval v);
SN_MUST bool sn_jemit(struct sn_jrun *r, const struct sn_jstr *s);

#endif
