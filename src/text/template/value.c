/* Arena and the small helpers of values. */
#include "text/template/value.h"

#include <stdalign.h>

/* A chunk is one block of the heap: this header, then `cap` bytes, of which `used` are given out.
 */
struct sn_jchunk {
    struct sn_jchunk *next;
    size_t used, cap;
    alignas(16) unsigned char data[];
};

enum { CHUNK_BYTES = 32 << 10 };

void sn_jarena_init(struct sn_jarena *a, struct sn_heap *heap, size_t max)
{
    *a = (struct sn_jarena){.heap = heap, .max = max};
}

void sn_jarena_free(struct sn_jarena *a)
{
    while (a->head) {
        struct sn_jchunk *next = a->head->next;
        sn_free(a->heap, SN_USE_TEXT, a->head, sizeof *a->head + a->head->cap);
        a->head = next;
    }
    a->used = 0;
}

static struct sn_jchunk *add_chunk(struct sn_jarena *a, size_t n_bytes)
{
    /* A large block gets a chunk of its own, placed behind the current one so that the latter stays
     * in use. */
    bool own = n_bytes > CHUNK_BYTES / 4 && a->head;
    size_t cap = own || n_bytes > CHUNK_BYTES ? n_bytes : (size_t)CHUNK_BYTES, total;
    a->over = false;
    if (sn_add_overflows(cap, sizeof(struct sn_jchunk), &total) ||
        (a->max != 0 && total > a->max - sn_min_size(a->used, a->max))) {
        a->over = true;
        return NULL;
    }
    struct sn_jchunk *c = sn_alloc(a->heap, SN_USE_TEXT, total);
    if (!c)
        return NULL;
    c->cap = cap;
    c->used = 0;
    c->next = own ? a->head->next : a->head;
    if (own)
        a->head->next = c;
    else
        a->head = c;
    a->used += total;
    return c;
}

void *sn_jarena_alloc(struct sn_jarena *a, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX - 16) {
        a->over = true;
        return NULL;
    }
    n_bytes = sn_round_up(sn_max_size(n_bytes, 1), 16);
    struct sn_jchunk *c = a->head;
    if (!c || c->cap - c->used < n_bytes) {
        c = add_chunk(a, n_bytes);
        if (!c)
            return NULL;
    }
    void *p = c->data + c->used;
    c->used += n_bytes;
    memset(p, 0, n_bytes);
    return p;
}

const char *sn_jtype_name(struct sn_jval v)
{
    switch (v.type) {
    case SN_J_ABSENT:
        break;
    case SN_J_UNDEF:
        return "Undefined";
    case SN_J_NONE:
        return "NoneType";
    case SN_J_BOOL:
        return "bool";
    case SN_J_INT:
        return "int";
    case SN_J_FLOAT:
        return "float";
    case SN_J_STR:
        return "str";
    case SN_J_LIST:
        return "list";
    case SN_J_TUPLE:
        return "tuple";
    case SN_J_RANGE:
        return "range";
    case SN_J_VIEW:
        return v.aux == 'k' ? "dict_keys" : v.aux == 'v' ? "dict_values" : "dict_items";
    case SN_J_ITER:
        return "generator";
    case SN_J_DICT:
        return "dict";
    case SN_J_NS:
        return "Namespace";
    case SN_J_FUNC:
    case SN_J_METHOD:
        return "function";
    case SN_J_MACRO:
        return "Macro";
    case SN_J_LOOP:
        return "LoopContext";
    }
    return "nothing";
}

bool sn_jstr_eq(const struct sn_jstr *s, const char *z)
{
    size_t n = strlen(z);
    return s->len == n && memcmp(s->data, z, n) == 0;
}

bool sn_jstr_same(const struct sn_jstr *a, const struct sn_jstr *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}
