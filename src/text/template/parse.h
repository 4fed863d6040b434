/* Shared by the two halves of the parser: parse.c (statements) and parse_expr.c
 * (expressions). */
#ifndef SN_TEXT_TEMPLATE_PARSE_H
#define SN_TEXT_TEMPLATE_PARSE_H

#include "text/template/ast.h"
#include "text/template/run.h"

/* Nesting of the source: brackets, blocks, chains of operators. The evaluator's own limit is on
 * top. */
enum { SN_J_PARSE_DEPTH = 200 };

struct sn_jparser {
    struct sn_jarena *arena;
    struct sennit_error *err;
    sennit_status status;
    const struct sn_jtoken *t; /* the current token */
    const struct sn_jtoken *end;
    struct sn_jnames *names;
    uint32_t *name_index; /* hash table of id + 1 */
    uint32_t n_name_index;
    uint32_t depth;
    uint32_t loop_depth; /* loops around that break may leave */
    bool soft;           /* inside an if: an unknown filter is an error only when it is reached */
    struct sn_jblock pending;     /* unknown filters and tests outside such places */
    bool caller, varargs, kwargs; /* the macro being read names these */
};

SN_MUST bool sn_jp_fail(struct sn_jparser *p, const struct sn_jtoken *t, sennit_status status,
                        const char *fmt, ...) SENNIT_PRINTF(4, 5);
SN_MUST bool sn_jp_unexpected(struct sn_jparser *p, const char *wanted);
SN_MUST bool sn_jp_nomem(struct sn_jparser *p);
SN_MUST bool sn_jp_enter(struct sn_jparser *p);
static inline void sn_jp_leave(struct sn_jparser *p)
{
    p->depth--;
}

bool sn_jp_is_op(const struct sn_jparser *p, const char *op);
bool sn_jp_is_name(const struct sn_jparser *p, const char *name);
bool sn_jp_next_is_name(const struct sn_jparser *p,
                        const char *name); /* the token after the current one */
void sn_jp_advance(struct sn_jparser *p);
bool sn_jp_skip_op(struct sn_jparser *p, const char *op);
bool sn_jp_skip_name(struct sn_jparser *p, const char *name);
SN_MUST bool sn_jp_expect_op(struct sn_jparser *p, const char *op);

struct sn_jnode *sn_jp_node(struct sn_jparser *p, enum sn_jkind kind, const struct sn_jtoken *at);
SN_MUST bool sn_jp_push(struct sn_jparser *p, struct sn_jblock *b, struct sn_jnode *n);
/* Sets n->depth from its children and refuses too deep a tree. */
SN_MUST bool sn_jp_child(struct sn_jparser *p, struct sn_jnode *n, const struct sn_jnode *child);
SN_MUST bool sn_jp_intern(struct sn_jparser *p, const struct sn_jstr *name, uint32_t *id);

SN_MUST bool sn_jp_expr(struct sn_jparser *p, struct sn_jnode **out);
/* with_cond false: `a if b` is not read. end_name: a name that ends the tuple, or NULL. */
SN_MUST bool sn_jp_tuple(struct sn_jparser *p, bool with_cond, bool parens, const char *end_name,
                         struct sn_jnode **out);
SN_MUST bool sn_jp_target(struct sn_jparser *p, bool with_ns, const char *end_name,
                          struct sn_jnode **out);
/* A chain of filters; `first` reads one without the leading bar. *node may start as NULL. */
SN_MUST bool sn_jp_filters(struct sn_jparser *p, bool first, struct sn_jnode **node);

#endif
