/* Writes GGUF files for tests, in memory or to disk, right ones and deliberately wrong ones.
 *
 *     struct gguf_writer w;
 *     gw_init(&w, 3);
 *     gw_u32(&w, "llama.block_count", 2);
 *     gw_tensor(&w, "output_norm.weight", SENNIT_F32, 1, (uint64_t[]){64}, data, 256);
 *     struct gguf_bytes file;
 *     gw_finish(&w, &file);      // w is released
 *     ...
 *     gguf_bytes_free(&file);
 *
 * Nothing is checked: what the calls say is what is written. Memory comes from malloc; when it runs
 * out, or a file cannot be written, the program aborts with a message, which is right for a test.
 * One thread per writer. */
#ifndef GGUF_WRITE_H
#define GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing byte array. data is aligned to 16 bytes, as malloc gives it. All zero is a valid empty
 * one. */
struct gguf_bytes {
    uint8_t *data;
    size_t len, cap;
};
void gguf_bytes_put(struct gguf_bytes *b, const void *data, size_t n);
void gguf_bytes_u8(struct gguf_bytes *b, uint8_t v);
void gguf_bytes_u32(struct gguf_bytes *b, uint32_t v); /* little-endian */
void gguf_bytes_u64(struct gguf_bytes *b, uint64_t v);
void gguf_bytes_str(struct gguf_bytes *b, const char *s); /* u64 length, then the bytes */
void gguf_bytes_free(struct gguf_bytes *b);
void gguf_bytes_save(const struct gguf_bytes *b, const char *path);

/* Value types, as GGUF numbers them. */
enum gw_type {
    GW_U8 = 0,
    GW_I8 = 1,
    GW_U16 = 2,
    GW_I16 = 3,
    GW_U32 = 4,
    GW_I32 = 5,
    GW_F32 = 6,
    GW_BOOL = 7,
    GW_STRING = 8,
    GW_ARRAY = 9,
    GW_U64 = 10,
    GW_I64 = 11,
    GW_F64 = 12
};

struct gguf_writer {
    struct gguf_bytes kv, infos, data;
    char magic[4];
    uint32_t version;
    uint32_t alignment;       /* of tensor offsets and of the data section; call gw_u32 for
                                 general.alignment too */
    uint64_t n_kv, n_tensors; /* counted by the calls; may be overwritten before gw_finish */
    bool no_padding;          /* leave out the padding between the tensor list and the data */
};

void gw_init(struct gguf_writer *w, uint32_t version);
void gw_free(struct gguf_writer *w);

void gw_u8(struct gguf_writer *w, const char *key, uint8_t v);
void gw_i8(struct gguf_writer *w, const char *key, int8_t v);
void gw_u16(struct gguf_writer *w, const char *key, uint16_t v);
void gw_i16(struct gguf_writer *w, const char *key, int16_t v);
void gw_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gw_i32(struct gguf_writer *w, const char *key, int32_t v);
void gw_u64(struct gguf_writer *w, const char *key, uint64_t v);
void gw_i64(struct gguf_writer *w, const char *key, int64_t v);
void gw_f32(struct gguf_writer *w, const char *key, float v);
void gw_f64(struct gguf_writer *w, const char *key, double v);
void gw_bool(struct gguf_writer *w, const char *key, bool v);
void gw_str(struct gguf_writer *w, const char *key, const char *v);
/* n elements of a fixed-size type, as they lie in memory. */
void gw_array(struct gguf_writer *w, const char *key, enum gw_type elem, const void *data,
              size_t n);
void gw_array_str(struct gguf_writer *w, const char *key, const char *const *strings, size_t n);
/* Any type number, and exactly these bytes as the value. */
void gw_raw(struct gguf_writer *w, const char *key, size_t key_len, uint32_t type,
            const void *value, size_t n_bytes);

/* Adds the tensor and its data at the next aligned offset. */
void gw_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
               const uint64_t *dims, const void *data, size_t n_bytes);
/* Adds only the description, with any numbers: n_dims is what is written, n_written how many dims
 * really follow. */
void gw_tensor_raw(struct gguf_writer *w, const char *name, size_t name_len, uint32_t n_dims,
                   const uint64_t *dims, uint32_t n_written, uint32_t type, uint64_t offset);

/* Puts the parts together; *out is owned by the caller. Releases the writer. */
void gw_finish(struct gguf_writer *w, struct gguf_bytes *out);

#endif
