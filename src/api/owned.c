#include "api/owned.h"

struct owned {
    struct sennit_allocator host;
    size_t n_bytes; /* of the whole block */
};
enum { HEADER = 64 }; /* keeps the data aligned */

static void *own(struct sn_heap *heap, const void *data, size_t n, size_t extra, void **owner)
{
    size_t total;
    if (sn_add_overflows(n, HEADER + extra, &total))
        return NULL;
    struct owned *o = heap->host.fn(heap->host.ctx, NULL, 0, total);
    if (!o)
        return NULL;
    *o = (struct owned){.host = heap->host, .n_bytes = total};
    char *at = (char *)o + HEADER;
    if (n)
        memcpy(at, data, n);
    memset(at + n, 0, extra);
    *owner = o;
    return at;
}

static void disown(void *owner)
{
    struct owned *o = owner;
    if (!o)
        return;
    struct sennit_allocator host = o->host;
    host.fn(host.ctx, o, o->n_bytes, 0);
}

sennit_status sn_own_text(struct sn_heap *heap, const char *data, size_t n, struct sennit_text *out,
                          struct sennit_error *err)
{
    struct sennit_text t = {.n_bytes = n};
    t.data = own(heap, data, n, 1, &t.owner);
    if (!t.data)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %zu bytes of text", n);
    *out = t;
    return SENNIT_OK;
}

sennit_status sn_own_tokens(struct sn_heap *heap, const int32_t *ids, size_t n, struct sennit_tokens *out,
                            struct sennit_error *err)
{
    struct sennit_tokens t = {.n_ids = n};
    t.ids = own(heap, ids, n * sizeof *ids, sizeof *ids, &t.owner);
    if (!t.ids)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %zu tokens", n);
    *out = t;
    return SENNIT_OK;
}

void sennit_text_free(struct sennit_text *text)
{
    if (!text)
        return;
    disown(text->owner);
    *text = (struct sennit_text){0};
}

void sennit_tokens_free(struct sennit_tokens *tokens)
{
    if (!tokens)
        return;
    disown(tokens->owner);
    *tokens = (struct sennit_tokens){0};
}
