#include "support/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what)
{
    fprintf(stderr, "gguf_write: %s\n", what);
    abort();
}

void gguf_bytes_put(struct gguf_bytes *b, const void *data, size_t n)
{
    if (n > b->cap - b->len) {
        size_t cap = b->cap * 2 > b->len + n ? b->cap * 2 : b->len + n;
        uint8_t *grown = realloc(b->data, cap);
        if (!grown)
            die("out of memory");
        b->data = grown;
        b->cap = cap;
    }
    if (n != 0)
        memcpy(b->data + b->len, data, n);
    b->len += n;
}

void gguf_bytes_u8(struct gguf_bytes *b, uint8_t v)
{
    gguf_bytes_put(b, &v, 1);
}

/* Byte by byte, so that the file is little-endian wherever the test runs. */
static void put_le(struct gguf_bytes *b, uint64_t v, unsigned n)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < n; i++)
        bytes[i] = (uint8_t)(v >> (8 * i));
    gguf_bytes_put(b, bytes, n);
}

void gguf_bytes_u32(struct gguf_bytes *b, uint32_t v)
{
    put_le(b, v, 4);
}

void gguf_bytes_u64(struct gguf_bytes *b, uint64_t v)
{
    put_le(b, v, 8);
}

void gguf_bytes_str(struct gguf_bytes *b, const char *s)
{
    gguf_bytes_u64(b, strlen(s));
    gguf_bytes_put(b, s, strlen(s));
}

void gguf_bytes_free(struct gguf_bytes *b)
{
    free(b->data);
    *b = (struct gguf_bytes){0};
}

void gguf_bytes_save(const struct gguf_bytes *b, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f || (b->len && fwrite(b->data, 1, b->len, f) != b->len) || fclose(f) != 0)
        die(path);
}

void gw_init(struct gguf_writer *w, uint32_t version)
{
    *w = (struct gguf_writer){.magic = {'G', 'G', 'U', 'F'}, .version = version, .alignment = 32};
}

void gw_free(struct gguf_writer *w)
{
    gguf_bytes_free(&w->kv);
    gguf_bytes_free(&w->infos);
    gguf_bytes_free(&w->data);
}

static struct gguf_bytes *begin_kv(struct gguf_writer *w, const char *key, uint32_t type)
{
    gguf_bytes_str(&w->kv, key);
    gguf_bytes_u32(&w->kv, type);
    w->n_kv++;
    return &w->kv;
}

void gw_u8(struct gguf_writer *w, const char *key, uint8_t v)
{
    put_le(begin_kv(w, key, GW_U8), v, 1);
}

void gw_i8(struct gguf_writer *w, const char *key, int8_t v)
{
    put_le(begin_kv(w, key, GW_I8), (uint8_t)v, 1);
}

void gw_u16(struct gguf_writer *w, const char *key, uint16_t v)
{
    put_le(begin_kv(w, key, GW_U16), v, 2);
}

void gw_i16(struct gguf_writer *w, const char *key, int16_t v)
{
    put_le(begin_kv(w, key, GW_I16), (uint16_t)v, 2);
}

void gw_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    put_le(begin_kv(w, key, GW_U32), v, 4);
}

void gw_i32(struct gguf_writer *w, const char *key, int32_t v)
{
    put_le(begin_kv(w, key, GW_I32), (uint32_t)v, 4);
}

void gw_u64(struct gguf_writer *w, const char *key, uint64_t v)
{
    put_le(begin_kv(w, key, GW_U64), v, 8);
}

void gw_i64(struct gguf_writer *w, const char *key, int64_t v)
{
    put_le(begin_kv(w, key, GW_I64), (uint64_t)v, 8);
}

void gw_f32(struct gguf_writer *w, const char *key, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_le(begin_kv(w, key, GW_F32), bits, 4);
}

void gw_f64(struct gguf_writer *w, const char *key, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_le(begin_kv(w, key, GW_F64), bits, 8);
}

void gw_bool(struct gguf_writer *w, const char *key, bool v)
{
    put_le(begin_kv(w, key, GW_BOOL), v, 1);
}

void gw_str(struct gguf_writer *w, const char *key, const char *v)
{
    gguf_bytes_str(begin_kv(w, key, GW_STRING), v);
}

void gw_array(struct gguf_writer *w, const char *key, enum gw_type elem, const void *data, size_t n)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    struct gguf_bytes *b = begin_kv(w, key, GW_ARRAY);
    gguf_bytes_u32(b, elem);
    gguf_bytes_u64(b, n);
    gguf_bytes_put(b, data, n * sizes[elem]);
}

void gw_array_str(struct gguf_writer *w, const char *key, const char *const *strings, size_t n)
{
    struct gguf_bytes *b = begin_kv(w, key, GW_ARRAY);
    gguf_bytes_u32(b, GW_STRING);
    gguf_bytes_u64(b, n);
    for (size_t i = 0; i < n; i++)
        gguf_bytes_str(b, strings[i]);
}

void gw_raw(struct gguf_writer *w, const char *key, size_t key_len, uint32_t type,
            const void *value, size_t n_bytes)
{
    gguf_bytes_u64(&w->kv, key_len);
    gguf_bytes_put(&w->kv, key, key_len);
    gguf_bytes_u32(&w->kv, type);
    gguf_bytes_put(&w->kv, value, n_bytes);
    w->n_kv++;
}

static void pad(struct gguf_bytes *b, size_t start, uint32_t alignment)
{
    while (alignment > 1 && (start + b->len) % alignment != 0)
        gguf_bytes_u8(b, 0);
}

void gw_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
               const uint64_t *dims, const void *data, size_t n_bytes)
{
    pad(&w->data, 0, w->alignment);
    gw_tensor_raw(w, name, strlen(name), n_dims, dims, n_dims, type, w->data.len);
    gguf_bytes_put(&w->data, data, n_bytes);
}

void gw_tensor_raw(struct gguf_writer *w, const char *name, size_t name_len, uint32_t n_dims,
                   const uint64_t *dims, uint32_t n_written, uint32_t type, uint64_t offset)
{
    gguf_bytes_u64(&w->infos, name_len);
    gguf_bytes_put(&w->infos, name, name_len);
    gguf_bytes_u32(&w->infos, n_dims);
    for (uint32_t i = 0; i < n_written; i++)
        gguf_bytes_u64(&w->infos, dims[i]);
    gguf_bytes_u32(&w->infos, type);
    gguf_bytes_u64(&w->infos, offset);
    w->n_tensors++;
}

void gw_finish(struct gguf_writer *w, struct gguf_bytes *out)
{
    *out = (struct gguf_bytes){0};
    gguf_bytes_put(out, w->magic, 4);
    gguf_bytes_u32(out, w->version);
    gguf_bytes_u64(out, w->n_tensors);
    gguf_bytes_u64(out, w->n_kv);
    gguf_bytes_put(out, w->kv.data, w->kv.len);
    gguf_bytes_put(out, w->infos.data, w->infos.len);
    if (w->data.len != 0 && !w->no_padding)
        pad(out, 0, w->alignment);
    gguf_bytes_put(out, w->data.data, w->data.len);
    gw_free(w);
}
