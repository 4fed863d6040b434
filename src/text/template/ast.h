/* The syntax tree of a template, its lexer and its parser.
 * Everything is allocated in the template's arena and never changes after parsing. */
#ifndef SN_TEXT_TEMPLATE_AST_H
#define SN_TEXT_TEMPLATE_AST_H

#include "text/template/value.h"

/* ---- tokens ---------------------------------------------------------------------------------- */
enum sn_jtok {
    SN_T_EOF,
    SN_T_DATA,
    SN_T_BLOCK_BEGIN,
    SN_T_BLOCK_END,
    SN_T_VAR_BEGIN,
    SN_T_VAR_END,
    SN_T_NAME,
    SN_T_STRING,
    SN_T_INT,
    SN_T_FLOAT,
    SN_T_OP /* text is the operator itself, one or two characters */
};

struct sn_jtoken {
    enum sn_jtok type;
    uint32_t line, col;         /* from 1 */
    const struct sn_jstr *text; /* DATA, NAME, STRING (unescaped), OP */
    int64_t i;
    double f;
};

/* `source` is valid UTF-8, lives in the arena and is normalised in place. The tokens end with
 * SN_T_EOF. */
sennit_status sn_jinja_lex(struct sn_jarena *arena, char *source, size_t n_bytes,
                           struct sn_jtoken **tokens, size_t *n_tokens, struct sennit_error *err);

/* ---- tree ------------------------------------------------------------------------------------ */
enum sn_jkind {
    /* expressions */
    SN_N_CONST,  /* value */
    SN_N_NAME,   /* id, name */
    SN_N_LIST,   /* items */
    SN_N_TUPLE,  /* items */
    SN_N_DICT,   /* items: key, value, key, value ... */
    SN_N_ATTR,   /* a.name */
    SN_N_ITEM,   /* a[b] */
    SN_N_SLICE,  /* a[items[0]:items[1]:items[2]], each may be NULL */
    SN_N_CALL,   /* a(args) */
    SN_N_FILTER, /* a | name(args); a NULL in filter blocks */
    SN_N_TEST,   /* a is name(args) */
    SN_N_COND,   /* b if a else c; c may be NULL */
    SN_N_AND,
    SN_N_OR,
    SN_N_NOT,
    SN_N_NEG,
    SN_N_POS,
    SN_N_BINARY,  /* a op b */
    SN_N_CONCAT,  /* items joined as strings */
    SN_N_COMPARE, /* a ops[0] items[0] ops[1] items[1] ... */
    SN_N_NSREF,   /* id.name as a target */
    /* statements */
    SN_N_DATA,        /* value: text */
    SN_N_OUTPUT,      /* a */
    SN_N_IF,          /* items: condition, condition ...; bodies: one each; orelse */
    SN_N_FOR,         /* a target, b iterable, c filter or NULL, body, orelse; flag: recursive */
    SN_N_SET,         /* a target, b value */
    SN_N_SETBLOCK,    /* a target, b filter chain or NULL, body */
    SN_N_MACRO,       /* id, macro */
    SN_N_CALLBLOCK,   /* a call, macro = the caller */
    SN_N_FILTERBLOCK, /* a filter chain, body */
    SN_N_WITH,        /* items: target, value, target, value ...; body */
    SN_N_GENERATION,  /* body, in a scope of its own */
    SN_N_BREAK,
    SN_N_CONTINUE
};

enum sn_jop {
    SN_OP_ADD,
    SN_OP_SUB,
    SN_OP_MUL,
    SN_OP_DIV,
    SN_OP_FLOORDIV,
    SN_OP_MOD,
    SN_OP_POW,
    SN_OP_EQ,
    SN_OP_NE,
    SN_OP_LT,
    SN_OP_LE,
    SN_OP_GT,
    SN_OP_GE,
    SN_OP_IN,
    SN_OP_NOTIN
};

struct sn_jblock {
    struct sn_jnode **v;
    uint32_t n, cap;
};

struct sn_jkwnode {
    const struct sn_jstr *name;
    struct sn_jnode *value;
};

struct sn_jargnodes {
    struct sn_jblock pos;
    struct sn_jkwnode *kw;
    uint32_t n_kw, cap_kw;
    struct sn_jnode *star, *dstar;
};

/* Parameters and body of a macro, or of a call block (then nameless). */
struct sn_jmacrodef {
    const struct sn_jstr *name;
    uint32_t *params; /* ids */
    const struct sn_jstr **param_names;
    struct sn_jnode **defaults; /* NULL entries have none */
    uint32_t n_params, cap_params;
    bool uses_caller, uses_varargs, uses_kwargs;
    struct sn_jblock body;
};

struct sn_jnode {
    enum sn_jkind kind;
    enum sn_jop op;
    uint32_t line, col, depth; /* depth: levels below and including this node */
    uint32_t id;
    bool flag;
    const struct sn_jstr *name;
    struct sn_jval value;
    struct sn_jnode *a, *b, *c;
    struct sn_jblock items, body, orelse;
    struct sn_jblock *bodies;
    enum sn_jop *ops;
    struct sn_jargnodes args;
    const struct sn_jbuiltin *fn;
    struct sn_jmacrodef *macro;
};

/* Names that the evaluator itself needs; sn_jinja_parse interns them first, in this order. */
enum { SN_ID_LOOP, SN_ID_CALLER, SN_ID_VARARGS, SN_ID_KWARGS, SN_ID_RESERVED };

struct sn_jnames {
    const struct sn_jstr **v;
    uint32_t n, cap;
};

sennit_status sn_jinja_parse(struct sn_jarena *arena, const struct sn_jtoken *tokens,
                             size_t n_tokens, struct sn_jblock *body, struct sn_jnames *names,
                             struct sennit_error *err);

#endif
