#include "model/edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/gguf.h"
#include "tensor/traits.h"

struct tiny_spec smallest_spec(void)
{
    struct tiny_spec s = tiny_spec_default();
    s.n_layers = 1;
    s.d_model = 8;
    s.n_heads = 2;
    s.n_kv_heads = 1;
    s.head_dim = 4;
    s.d_ff = 8;
    s.n_vocab = TINY_N_SPECIAL + 256;
    s.type = s.embd_type = SENNIT_F16;
    s.context_length = 64;
    return s;
}

static bool is(struct sn_gguf_str s, const char *name)
{
    return name && strlen(name) == s.len && memcmp(name, s.data, s.len) == 0;
}

static size_t scalar_bytes(enum sn_gguf_type type)
{
    static const size_t n[SN_GGUF_TYPE_COUNT] = {
        [SN_GGUF_U8] = 1,  [SN_GGUF_I8] = 1,  [SN_GGUF_U16] = 2, [SN_GGUF_I16] = 2,
        [SN_GGUF_U32] = 4, [SN_GGUF_I32] = 4, [SN_GGUF_F32] = 4, [SN_GGUF_BOOL] = 1,
        [SN_GGUF_U64] = 8, [SN_GGUF_I64] = 8, [SN_GGUF_F64] = 8};
    return n[type];
}

static void put_array(struct gguf_bytes *value, const struct sn_gguf_array *a)
{
    gguf_bytes_u32(value, (uint32_t)a->elem);
    gguf_bytes_u64(value, a->n);
    if (a->elem != SN_GGUF_STRING) {
        gguf_bytes_put(value, a->data, a->n * scalar_bytes(a->elem));
        return;
    }
    for (size_t i = 0; i < a->n; i++) {
        struct sn_gguf_str s = sn_gguf_array_str(a, i);
        gguf_bytes_u64(value, s.len);
        gguf_bytes_put(value, s.data, s.len);
    }
}

static void copy_key(struct gguf_writer *w, const struct sn_gguf_kv *kv)
{
    struct gguf_bytes value = {0};
    if (kv->type == SN_GGUF_ARRAY) {
        put_array(&value, &kv->array);
    } else if (kv->type == SN_GGUF_STRING) {
        uint64_t len;
        memcpy(&len, kv->data, sizeof len);
        gguf_bytes_put(&value, kv->data, sizeof len + (size_t)len);
    } else {
        gguf_bytes_put(&value, kv->data, scalar_bytes(kv->type));
    }
    gw_raw(w, kv->key.data, kv->key.len, (uint32_t)kv->type, value.data, value.len);
    gguf_bytes_free(&value);
}

static void describe_anew(struct gguf_writer *w, const char *name, const struct edit *e)
{
    size_t n_bytes = sn_row_bytes(e->type, (size_t)e->dims[0]);
    for (uint32_t i = 1; i < e->n_dims; i++)
        n_bytes *= (size_t)e->dims[i];
    void *zeros = calloc(1, n_bytes);
    if (!zeros)
        abort();
    gw_tensor(w, name, (uint32_t)e->type, e->n_dims, e->dims, zeros, n_bytes);
    free(zeros);
}

/* Copies the tensors; returns how many were changed or left out. */
static int copy_tensors(struct gguf_writer *w, const struct sn_gguf *g, const struct edit *e)
{
    int n_changed = 0;
    for (size_t i = 0; i < sn_gguf_n_tensors(g); i++) {
        const struct sn_gguf_tensor *t = sn_gguf_tensor_at(g, i);
        char name[SN_GGUF_MAX_TENSOR_NAME_BYTES + 1];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        n_changed += is(t->name, e->drop) || is(t->name, e->tensor);
        if (is(t->name, e->tensor))
            describe_anew(w, name, e);
        else if (!is(t->name, e->drop))
            gw_tensor(w, name, t->type, t->n_dims, t->dims, t->data, t->n_bytes);
    }
    return n_changed;
}

void edited_model(const struct tiny_spec *spec, const struct edit *e, struct gguf_bytes *out)
{
    struct gguf_bytes plain;
    struct gguf_writer w;
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    int n_changed = 0;
    tiny_model_build(spec, &plain);
    sn_heap_init(&heap, NULL);
    if (sn_gguf_open_memory(&g, &heap, plain.data, plain.len, NULL) != SENNIT_OK)
        abort();
    gw_init(&w, spec->version);
    for (size_t i = 0; i < sn_gguf_n_kv(g); i++) {
        struct sn_gguf_kv kv;
        sn_gguf_kv_at(g, i, &kv);
        if (is(kv.key, e->drop))
            n_changed++;
        else
            copy_key(&w, &kv);
    }
    if (e->add)
        e->add(&w);
    n_changed += copy_tensors(&w, g, e);
    if (n_changed != (e->drop != NULL) + (e->tensor != NULL)) {
        fprintf(stderr, "edited_model: nothing is called '%s'\n", e->drop ? e->drop : e->tensor);
        abort();
    }
    gw_finish(&w, out);
    sn_gguf_close(g);
    gguf_bytes_free(&plain);
}

static void *count(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    struct counter *c = ctx;
    void *p = NULL;
    if (new_bytes && posix_memalign(&p, 64, new_bytes) != 0)
        return NULL;
    if (ptr && new_bytes)
        memcpy(p, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
    free(ptr);
    c->now += new_bytes - old_bytes;
    c->peak = c->now > c->peak ? c->now : c->peak;
    return p;
}

struct sennit_allocator counting(struct counter *c) { return (struct sennit_allocator){.fn = count, .ctx = c}; }
