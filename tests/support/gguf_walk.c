#include "support/gguf_walk.h"

#include <stdio.h>
#include <stdlib.h>

#include "tensor/traits.h"

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "gguf_walk: %s:%d: %s\n", __FILE__, __LINE__, #cond);                  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t sum_bytes(const struct sn_gguf *g, const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t sum = 0;
    MUST(n <= sn_gguf_file_bytes(g));
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + p[i];
    return sum;
}

static uint64_t walk_elements(const struct sn_gguf *g, const struct sn_gguf_array *a)
{
    uint64_t sum = a->n;
    for (size_t i = 0; i < a->n; i++) {
        double real = 0;
        switch (a->elem) {
        case SN_GGUF_STRING: {
            struct sn_gguf_str s = sn_gguf_array_str(a, i);
            sum += sum_bytes(g, s.data, s.len);
            break;
        }
        case SN_GGUF_F32:
            real = (double)sn_gguf_array_f32(a, i);
            sum += real > 0;
            break;
        case SN_GGUF_F64:
            real = sn_gguf_array_f64(a, i);
            sum += real > 0;
            break;
        case SN_GGUF_BOOL:
            sum += sn_gguf_array_bool(a, i);
            break;
        default:
            sum += (uint64_t)sn_gguf_array_int(a, i);
        }
    }
    return sum;
}

/* Each getter either gives the value or explains; none may crash on another type. */
static uint64_t try_getters(const struct sn_gguf *g, const char *key)
{
    struct sennit_error err = {.code = SENNIT_OK};
    uint32_t u32 = 0, each[3];
    uint64_t u64 = 0;
    float f32 = 0;
    bool b = false;
    struct sn_gguf_str s = {0};
    struct sn_gguf_array a;
    unsigned n_ok = 0;
    n_ok += sn_gguf_u32_or(g, key, 7, &u32, &err) == SENNIT_OK;
    n_ok += sn_gguf_u64(g, key, &u64, &err) == SENNIT_OK;
    n_ok += sn_gguf_f32_or(g, key, 1.5f, &f32, &err) == SENNIT_OK;
    n_ok += sn_gguf_bool(g, key, &b, &err) == SENNIT_OK;
    if (sn_gguf_str(g, key, &s, &err) == SENNIT_OK)
        n_ok += (unsigned)(sum_bytes(g, s.data, s.len) & 1);
    n_ok += sn_gguf_u32_each(g, key, 3, each, &err) == SENNIT_OK;
    n_ok += sn_gguf_int_array(g, key, &a, &err) == SENNIT_OK;
    for (uint32_t t = 0; t < SN_GGUF_TYPE_COUNT; t++)
        n_ok += sn_gguf_array(g, key, (enum sn_gguf_type)t, &a, &err) == SENNIT_OK;
    MUST(err.code != SENNIT_OK && strlen(err.message) > 10); /* no value is of all types */
    return n_ok;
}

static uint64_t walk_text(const struct sn_gguf *g, size_t index)
{
    struct sn_heap heap;
    struct sn_buf text;
    sn_heap_init(&heap, NULL);
    sn_buf_init(&text, &heap, SN_USE_TEXT, 1 << 20);
    sennit_status status = sn_gguf_format_value(g, index, &text, 5);
    MUST(status == SENNIT_OK);
    status = sn_gguf_json_value(g, index, &text, 3);
    MUST(status == SENNIT_OK || status == SENNIT_TOO_BIG);
    uint64_t sum = text.len;
    sn_buf_free(&text);
    MUST(atomic_load(&heap.total) == 0);
    return sum;
}

uint64_t gguf_walk(const struct sn_gguf *g)
{
    uint64_t sum = sn_gguf_version(g) + sn_gguf_alignment(g);
    for (size_t i = 0; i < sn_gguf_n_kv(g); i++) {
        struct sn_gguf_kv kv;
        char key[256];
        sn_gguf_kv_at(g, i, &kv);
        MUST(kv.key.len >= 1 && kv.key.len <= SN_GGUF_MAX_KEY_BYTES &&
             kv.type < SN_GGUF_TYPE_COUNT);
        sum += sum_bytes(g, kv.key.data, kv.key.len) + walk_text(g, i);
        if (kv.type == SN_GGUF_ARRAY)
            sum += walk_elements(g, &kv.array);
        if (kv.key.len >= sizeof key || memchr(kv.key.data, 0, kv.key.len))
            continue; /* cannot be asked for as a C string of this size */
        memcpy(key, kv.key.data, kv.key.len);
        key[kv.key.len] = '\0';
        MUST(sn_gguf_find(g, key) == i);
        sum += try_getters(g, key);
    }
    for (size_t i = 0; i < sn_gguf_n_tensors(g); i++) {
        const struct sn_gguf_tensor *t = sn_gguf_tensor_at(g, i);
        MUST(t->n_dims >= 1 && t->n_dims <= SN_GGUF_MAX_DIMS && sn_traits(t->type));
        MUST((uintptr_t)t->data % 8 == 0 && t->file_offset % sn_gguf_alignment(g) == 0 &&
             t->n_bytes > 0);
        sum += sum_bytes(g, t->data, t->n_bytes) + t->dims[0];
    }
    MUST(sn_gguf_tensor_at(g, sn_gguf_n_tensors(g)) == NULL);
    return sum + sn_gguf_file_hash(g);
}
