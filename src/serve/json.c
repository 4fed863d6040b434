/* jansson behind a guard: the memory it gets, and the texts it is shown. */
#include "serve/json.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "serve/alloc.h"
#include "serve/answer.h"
#include "serve/text.h"

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* jansson's reader collects each token in a buffer of 16 bytes, then 32, 64 ... When that cannot grow within a
 * string, the string's own copy, which is asked for at its end, must fail too: so nothing is given after a refusal.
 * Within a number or a word the reader aborts; those fit 32 bytes (SV_MOST_BARE and the byte behind), so that this
 * one step must never fail: it gets a spare. Others may ask for as many bytes and take one, but before the buffer has
 * grown no two of them do so in a row: the copy of a short string comes first, and is smaller. */
enum { SPARE_BYTES = 32, N_SPARES = 4 };

static _Thread_local struct {
    bool watching, starved;
    bool dry; /* something was refused, not even a spare was given */
    unsigned n_spares;
    _Alignas(max_align_t) char spares[N_SPARES][SPARE_BYTES];
} memory;

static void *give(size_t n_bytes)
{
    bool refuse = memory.watching && memory.starved;
    void *ptr = refuse ? NULL : sv_alloc(n_bytes);
    if (ptr)
        return ptr;
    memory.starved = true;
    if (memory.watching && !memory.dry && n_bytes == SPARE_BYTES && memory.n_spares < N_SPARES)
        return memory.spares[memory.n_spares++];
    memory.dry = true;
    return NULL;
}

static void take_back(void *ptr)
{
    uintptr_t at = (uintptr_t)ptr, spares = (uintptr_t)memory.spares;
    if (at - spares >= sizeof memory.spares)
        sv_free(ptr);
}

void sv_json_init(void)
{
    json_set_alloc_funcs(give, take_back);
}

void sv_json_watch(void)
{
    memory.watching = true;
    memory.starved = memory.dry = false;
    memory.n_spares = 0;
}

bool sv_json_starved(void)
{
    memory.watching = false;
    return memory.starved;
}

/* ---- problems -------------------------------------------------------------------------------------------------- */

/* jansson quotes the text, whatever bytes that has. */
static void make_printable(char *s)
{
    size_t n = strlen(s), len;
    for (size_t i = 0; i < n; i += len) {
        unsigned char c = (unsigned char)s[i];
        if (sv_utf8_step(s + i, n - i, &len) != SV_UTF8_OK || c < 0x20 || c == 0x7F)
            memset(s + i, '?', len);
    }
}

/* Columns count characters, from 1, as jansson's do. */
static void wrong_at(struct sv_json_problem *problem, const char *text, size_t at, const char *what,
                     const char *limit)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        bool begins = ((unsigned char)text[i] & 0xC0) != 0x80;
        column = text[i] == '\n' ? 1 : column + begins;
        line += text[i] == '\n';
    }
    snprintf(problem->text, sizeof problem->text, "%s%s (line %zu, column %zu)", what, limit, line, column);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* What jansson needs for a value, about: "{}," is 3 bytes of text. */
enum { OBJECT_BYTES = 256, ARRAY_BYTES = 160, MEMBER_BYTES = 112, ITEM_BYTES = 56, STRING_BYTES = 56 };

struct scan {
    const char *s;
    size_t n, i, most_depth;
    size_t depth, bare; /* bytes of the number or word so far */
    uint64_t need;      /* bytes of memory for the values so far */
};

/* From behind a quote to behind the next; NULL, or what is wrong at i. */
static const char *scan_string(struct scan *c)
{
    for (; c->i < c->n; c->i++) {
        unsigned char b = (unsigned char)c->s[c->i];
        if (b < 0x20)
            return "a control character in a string; write it as an escape";
        if (b == '\\')
            c->i++;
        if (b == '"') {
            c->i++;
            break;
        }
    }
    return NULL;
}

static size_t value_bytes(char b)
{
    switch (b) {
    case '{':
        return OBJECT_BYTES;
    case '[':
        return ARRAY_BYTES;
    case ':':
        return MEMBER_BYTES;
    case ',':
        return ITEM_BYTES;
    case '"':
        return STRING_BYTES;
    default:
        return 0;
    }
}

static bool needs_too_much(const struct scan *c)
{
    return c->need > SV_JSON_BYTES + (uint64_t)SV_JSON_FACTOR * c->n;
}

/* One byte outside of strings, or a whole string. */
static const char *scan_step(struct scan *c)
{
    char b = c->s[c->i];
    c->need += value_bytes(b);
    if (needs_too_much(c))
        return "too many values for a text of this size";
    switch (b) {
    case '\0':
        return "a NUL byte";
    case '[':
    case '{':
        if (c->depth == c->most_depth)
            return "too many levels of arrays and objects";
        c->depth++;
        break;
    case ']':
    case '}':
        c->depth -= c->depth > 0;
        break;
    case '"':
    case ',':
    case ':':
    case ' ':
    case '\t':
    case '\n':
    case '\r':
        break;
    default:
        c->i++;
        return ++c->bare > SV_MOST_BARE ? "a number or word is too long" : NULL;
    }
    c->bare = 0;
    c->i++;
    return b == '"' ? scan_string(c) : NULL;
}

/* What jansson is not to see, or lets pass; all else is its business. NULL, or what is wrong at i. */
static const char *scan(struct scan *c)
{
    const char *wrong = NULL;
    if (c->n >= 3 && memcmp(c->s, "\xEF\xBB\xBF", 3) == 0)
        return "a byte order mark (EF BB BF), which JSON is sent without";
    while (!wrong && c->i < c->n)
        wrong = scan_step(c);
    return wrong;
}

static json_t *load(const char *text, size_t n_bytes, struct sv_json_problem *problem)
{
    json_error_t error;
    sv_json_watch();
    json_t *v = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    problem->no_memory = sv_json_starved();
    if (problem->no_memory) {
        json_decref(v);
        v = NULL;
        snprintf(problem->text, sizeof problem->text, "no memory");
    } else if (!v) {
        snprintf(problem->text, sizeof problem->text, "%.100s (line %d, column %d)", error.text, error.line,
                 error.column);
        make_printable(problem->text);
    }
    return v;
}

json_t *sv_json_read(const char *text, size_t n_bytes, size_t most_depth, struct sv_json_problem *problem)
{
    struct scan c = {.s = text, .n = n_bytes, .most_depth = most_depth};
    const char *wrong = scan(&c);
    *problem = (struct sv_json_problem){.no_memory = false};
    if (!wrong)
        return load(text, n_bytes, problem);
    char limit[40] = "";
    if (c.bare > SV_MOST_BARE)
        snprintf(limit, sizeof limit, ": the most is %d bytes", SV_MOST_BARE);
    else if (!needs_too_much(&c) && c.i < n_bytes && (text[c.i] == '[' || text[c.i] == '{'))
        snprintf(limit, sizeof limit, ": the most is %zu", most_depth);
    wrong_at(problem, text, c.i, wrong, limit);
    return NULL;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static int append(const char *data, size_t n_bytes, void *out)
{
    struct sv_buf *b = out;
    sv_buf_add(b, data, n_bytes);
    return b->failed ? -1 : 0;
}

void sv_json_write(struct sv_buf *out, const json_t *v)
{
    /* Seventeen digits give a double back exactly. */
    if (json_dump_callback(v, append, out, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) != 0)
        out->failed = true;
}
