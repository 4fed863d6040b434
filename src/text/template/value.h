/* Values of the template language, and the arena they live in.
 *
 * Everything a render creates lives in one arena and goes away with it; nothing is freed singly, so
 * a value may be copied freely. Strings are valid UTF-8, immutable, and carry for each byte whether
 * it is trusted. Positions and lengths that a template sees count characters (code points); `len`
 * counts bytes.
 */
#ifndef SN_TEXT_TEMPLATE_VALUE_H
#define SN_TEXT_TEMPLATE_VALUE_H

#include "base/base.h"

#define SN_MUST __attribute__((warn_unused_result))

/* ---- arena: a list of chunks, newest first
 * ------------------------------------------------------------------- */
struct sn_jchunk;
struct sn_jarena {
    struct sn_heap *heap;
    struct sn_jchunk *head;
    size_t used, max; /* bytes taken from the heap, and the most allowed (0 = no limit) */
    bool over;        /* the last failure was the limit, not the heap */
};
void sn_jarena_init(struct sn_jarena *a, struct sn_heap *heap, size_t max);
void sn_jarena_free(struct sn_jarena *a);
void *sn_jarena_alloc(struct sn_jarena *a,
                      size_t n_bytes); /* zeroed, 16-byte aligned; NULL on failure */

/* ---- values ---------------------------------------------------------------------------------- */
enum sn_jtype {
    SN_J_ABSENT, /* not a value: an argument that was not given */
    SN_J_UNDEF,
    SN_J_NONE,
    SN_J_BOOL,
    SN_J_INT,
    SN_J_FLOAT,
    SN_J_STR,
    SN_J_LIST, /* LIST .. ITER share struct sn_jseq */
    SN_J_TUPLE,
    SN_J_RANGE,
    SN_J_VIEW, /* dict.keys(), .values(), .items() */
    SN_J_ITER, /* what map, select ... give: can be walked once */
    SN_J_DICT,
    SN_J_NS,
    SN_J_FUNC,
    SN_J_MACRO,
    SN_J_METHOD,
    SN_J_LOOP
};

/* How the name in an undefined value reads in an error. */
enum sn_jundef { SN_JU_NAME, SN_JU_ATTR, SN_JU_ARG, SN_JU_UNSAFE, SN_JU_EMPTY };

struct sn_jgrow;

/* mask NULL: every byte is `trusted`; otherwise byte i is trusted when mask[i] != 0. */
struct sn_jstr {
    const char *data;
    const uint8_t *mask;
    size_t len, n_chars;
    struct sn_jgrow *grow; /* the buffer behind `data` when it may be appended to in place */
    bool trusted,
        markup; /* markup: result of |safe; joining it with plain text escapes that text */
};

struct sn_jval {
    enum sn_jtype type;
    uint32_t aux; /* UNDEF: enum sn_jundef; VIEW: 'k', 'v' or 'i' */
    union {
        bool b;
        int64_t i;
        double f;
        const struct sn_jstr *s;
        struct sn_jseq *seq;
        struct sn_jdict *dict;
        const struct sn_jbuiltin *fn;
        const struct sn_jmacro *macro;
        const struct sn_jmethod *method;
        struct sn_jloop *loop;
    } u;
};

struct sn_jseq {
    struct sn_jval *v;
    size_t n, cap;
    size_t pos;                /* ITER: items already taken */
    int64_t start, stop, step; /* RANGE */
};

/* Insertion order, with an index once it has grown. Keys compare as the language compares (1 == 1.0
 * == true). */
struct sn_jdict {
    struct sn_jval *keys, *vals;
    size_t n, cap;
    uint32_t *index; /* n_index slots of entry number + 1; NULL while small */
    size_t n_index;
};

struct sn_jmethod {
    struct sn_jval self;
    const struct sn_jbuiltin *fn;
};

static inline struct sn_jval sn_jnone(void)
{
    return (struct sn_jval){.type = SN_J_NONE};
}
static inline struct sn_jval sn_jbool(bool b)
{
    return (struct sn_jval){.type = SN_J_BOOL, .u.b = b};
}
static inline struct sn_jval sn_jint(int64_t i)
{
    return (struct sn_jval){.type = SN_J_INT, .u.i = i};
}
static inline struct sn_jval sn_jfloat(double f)
{
    return (struct sn_jval){.type = SN_J_FLOAT, .u.f = f};
}
static inline struct sn_jval sn_jstrv(const struct sn_jstr *s)
{
    return (struct sn_jval){.type = SN_J_STR, .u.s = s};
}
static inline struct sn_jval sn_jseqv(enum sn_jtype t, struct sn_jseq *s)
{
    return (struct sn_jval){.type = t, .u.seq = s};
}
static inline struct sn_jval sn_jdictv(struct sn_jdict *d)
{
    return (struct sn_jval){.type = SN_J_DICT, .u.dict = d};
}
static inline struct sn_jval sn_jundef(enum sn_jundef kind, const struct sn_jstr *name)
{
    return (struct sn_jval){.type = SN_J_UNDEF, .aux = (uint32_t)kind, .u.s = name};
}
static inline bool sn_jis_seq(struct sn_jval v)
{
    return v.type >= SN_J_LIST && v.type <= SN_J_ITER;
}
static inline bool sn_jis_int(struct sn_jval v)
{
    return v.type == SN_J_INT || v.type == SN_J_BOOL;
}
static inline bool sn_jis_num(struct sn_jval v)
{
    return sn_jis_int(v) || v.type == SN_J_FLOAT;
}
static inline int64_t sn_jint_of(struct sn_jval v)
{
    return v.type == SN_J_BOOL ? (int64_t)v.u.b : v.u.i;
}
static inline double sn_jfloat_of(struct sn_jval v)
{
    return v.type == SN_J_FLOAT ? v.u.f : (double)sn_jint_of(v);
}

const char *
sn_jtype_name(struct sn_jval v); /* the name Python gives the type: "str", "dict", "NoneType" ... */
bool sn_jstr_eq(const struct sn_jstr *s, const char *z);
bool sn_jstr_same(const struct sn_jstr *a, const struct sn_jstr *b);

/* ---- characters (unicode.c)
 * ---------------------------------------------------------------------------- */
/* Decodes one character of valid UTF-8 at s[*i] and moves *i past it. */
uint32_t sn_uni_next(const char *s, size_t n, size_t *i);
size_t sn_uni_put(char out[4], uint32_t cp); /* bytes written */
size_t sn_uni_count(const char *s, size_t n);
bool sn_uni_valid(const char *s, size_t n,
                  size_t *bad); /* *bad = offset of the first offending byte */
bool sn_uni_space(uint32_t cp);
bool sn_uni_alnum(uint32_t cp);
bool sn_uni_alpha(uint32_t cp);
bool sn_uni_digit(uint32_t cp);
bool sn_uni_printable(uint32_t cp);
bool sn_uni_linebreak(uint32_t cp);
enum sn_case { SN_UPPER, SN_LOWER, SN_TITLE };
size_t sn_uni_case(enum sn_case mode, uint32_t cp,
                   uint32_t out[3]); /* full mapping, number of characters */

#endif
