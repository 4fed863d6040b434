/* GGUF reader: versions 2 and 3, over a memory-mapped file or a buffer.
 *
 * Opening checks everything that a later read relies on: magic, version, counts, lengths, types,
 * names, dimensions, products, alignment, offsets and overlaps. After that no accessor can read
 * outside the file, and none allocates. Memory while opening and afterwards is at most 4 times the
 * size of the metadata it describes, whatever the counts in the file claim. Errors name the key or
 * the tensor (unprintable bytes as \xNN) and the byte offset.
 *
 * Ownership: pointers handed out (keys, strings, arrays, tensor data) point into the file and live
 * until sn_gguf_close(). Strings are a pointer and a length, without a NUL, and need not be UTF-8.
 * Nothing is decoded ahead.
 *
 * Threads: an open sn_gguf does not change; any number of threads may read it. The file must not be
 * truncated while it is mapped (the system answers a read past its new end with a signal).
 *
 * Source of the format: the GGUF specification of the ggml project (docs/gguf.md there). */
#ifndef SN_GGUF_H
#define SN_GGUF_H

#include "base/base.h"

enum sn_gguf_type {
    SN_GGUF_U8 = 0,
    SN_GGUF_I8 = 1,
    SN_GGUF_U16 = 2,
    SN_GGUF_I16 = 3,
    SN_GGUF_U32 = 4,
    SN_GGUF_I32 = 5,
    SN_GGUF_F32 = 6,
    SN_GGUF_BOOL = 7,
    SN_GGUF_STRING = 8,
    SN_GGUF_ARRAY = 9,
    SN_GGUF_U64 = 10,
    SN_GGUF_I64 = 11,
    SN_GGUF_F64 = 12,
    SN_GGUF_TYPE_COUNT
};

enum { SN_GGUF_MAX_DIMS = 4, SN_GGUF_MAX_KEY_BYTES = 65535, SN_GGUF_MAX_TENSOR_NAME_BYTES = 64 };

struct sn_gguf;

struct sn_gguf_str {
    const char *data; /* not NUL-terminated */
    size_t len;
};

/* A typed array. Elements of numeric arrays may lie at any address: read them with the accessors
 * below. */
struct sn_gguf_array {
    enum sn_gguf_type elem; /* never SN_GGUF_ARRAY */
    size_t n;
    const uint8_t *data;     /* first element */
    const uint8_t *file;     /* string arrays: the file's first byte ... */
    const uint64_t *strings; /* ... and the offset in it of each element's length field; NULL for
                                numeric arrays */
};

struct sn_gguf_kv {
    struct sn_gguf_str key;
    enum sn_gguf_type type;
    const uint8_t *data;        /* the value, unaligned; for arrays use .array */
    struct sn_gguf_array array; /* when type is SN_GGUF_ARRAY */
};

struct sn_gguf_tensor {
    struct sn_gguf_str name;
    uint32_t n_dims; /* 1 .. 4 */
    uint32_t type;   /* an element type that sn_traits() knows */
    uint64_t
        dims[SN_GGUF_MAX_DIMS]; /* dims[0] is the fastest (the row length); unused ones are 1 */
    const void
        *data; /* aligned to sn_gguf_alignment() in the file, at least to 8 bytes in memory */
    size_t n_bytes;
    uint64_t file_offset; /* of data, from the start of the file */
};

/* ---- life ------------------------------------------------------------------------------------ */

/* Maps and checks a file. The path is only used during the call; messages begin with it.
 * NOT_FOUND, IO (the system refused), FORMAT (malformed), UNSUPPORTED (version, byte order, element
 * type), NOMEM. */
sennit_status sn_gguf_open(struct sn_gguf **out, struct sn_heap *heap, const char *path,
                           struct sennit_error *err);

/* The same over n_bytes at data, which is borrowed and must be aligned to 8 bytes (INVALID
 * otherwise). */
sennit_status sn_gguf_open_memory(struct sn_gguf **out, struct sn_heap *heap, const void *data,
                                  size_t n_bytes, struct sennit_error *err);
void sn_gguf_close(struct sn_gguf *g); /* NULL is fine */

uint32_t sn_gguf_version(const struct sn_gguf *g);
uint32_t sn_gguf_alignment(const struct sn_gguf *g); /* bytes; a power of two, at least 8 */
size_t sn_gguf_file_bytes(const struct sn_gguf *g);

/* XXH3-64 of all bytes of the file: the content id of a model. Reads the whole file (seconds on a
 * cold disk), leaving none of it resident. */
uint64_t sn_gguf_file_hash(const struct sn_gguf *g);

/* Tells the system that the whole pages within [ptr, ptr + n_bytes) are not needed for now, so that
 * they stop counting as resident; a later read brings them back. Nothing for buffers or for
 * addresses outside the mapping. */
void sn_gguf_drop_pages(const struct sn_gguf *g, const void *ptr, size_t n_bytes);

/* ---- metadata -------------------------------------------------------------------------------- */

/* "u32", "string", "array" ...; "unknown" for other numbers. */
const char *sn_gguf_type_name(uint32_t type);

size_t sn_gguf_n_kv(const struct sn_gguf *g);
void sn_gguf_kv_at(const struct sn_gguf *g, size_t index,
                   struct sn_gguf_kv *out); /* index < n_kv, in file order */
#define SN_GGUF_NONE SIZE_MAX
size_t sn_gguf_find(const struct sn_gguf *g, const char *key); /* index, or SN_GGUF_NONE; O(1) */
bool sn_gguf_has(const struct sn_gguf *g, const char *key);

/* Getters. A missing key is FORMAT and the message names it; so does one of another type, with both
 * types. u32 and u64 take any integer type whose value is in range; f32 takes f32 and f64
 * (rounded), finite. *out is set on success only. The _or forms set *out to `fallback` when the key
 * is missing; a wrong type is an error there too. */
sennit_status sn_gguf_u32(const struct sn_gguf *g, const char *key, uint32_t *out,
                          struct sennit_error *err);
sennit_status sn_gguf_u64(const struct sn_gguf *g, const char *key, uint64_t *out,
                          struct sennit_error *err);
sennit_status sn_gguf_f32(const struct sn_gguf *g, const char *key, float *out,
                          struct sennit_error *err);
sennit_status sn_gguf_bool(const struct sn_gguf *g, const char *key, bool *out,
                           struct sennit_error *err);
sennit_status sn_gguf_str(const struct sn_gguf *g, const char *key, struct sn_gguf_str *out,
                          struct sennit_error *err);

sennit_status sn_gguf_u32_or(const struct sn_gguf *g, const char *key, uint32_t fallback,
                             uint32_t *out, struct sennit_error *err);
sennit_status sn_gguf_u64_or(const struct sn_gguf *g, const char *key, uint64_t fallback,
                             uint64_t *out, struct sennit_error *err);
sennit_status sn_gguf_f32_or(const struct sn_gguf *g, const char *key, float fallback, float *out,
                             struct sennit_error *err);
sennit_status sn_gguf_bool_or(const struct sn_gguf *g, const char *key, bool fallback, bool *out,
                              struct sennit_error *err);
/* `fallback` is a C string or NULL (data NULL, len 0). */
sennit_status sn_gguf_str_or(const struct sn_gguf *g, const char *key, const char *fallback,
                             struct sn_gguf_str *out, struct sennit_error *err);

/* An array whose elements have exactly this type; the message of a mismatch has both. */
sennit_status sn_gguf_array(const struct sn_gguf *g, const char *key, enum sn_gguf_type elem,
                            struct sn_gguf_array *out, struct sennit_error *err);
/* The same; n = 0 when the key is missing. */
sennit_status sn_gguf_array_or_empty(const struct sn_gguf *g, const char *key,
                                     enum sn_gguf_type elem, struct sn_gguf_array *out,
                                     struct sennit_error *err);
/* An array of any integer type: read it with sn_gguf_array_int(). */
sennit_status sn_gguf_int_array(const struct sn_gguf *g, const char *key, struct sn_gguf_array *out,
                                struct sennit_error *err);

/* A value per layer: an integer stands for all n, an array must have exactly n integers. Fills
 * out[0 .. n). */
sennit_status sn_gguf_u32_each(const struct sn_gguf *g, const char *key, size_t n, uint32_t *out,
                               struct sennit_error *err);

/* Element i < n. The element type must be the one that the name says. */
static inline float sn_gguf_array_f32(const struct sn_gguf_array *a, size_t i)
{
    float v;
    memcpy(&v, a->data + i * sizeof v, sizeof v);
    return v;
}
static inline double sn_gguf_array_f64(const struct sn_gguf_array *a, size_t i)
{
    double v;
    memcpy(&v, a->data + i * sizeof v, sizeof v);
    return v;
}
static inline int32_t sn_gguf_array_i32(const struct sn_gguf_array *a, size_t i)
{
    int32_t v;
    memcpy(&v, a->data + i * sizeof v, sizeof v);
    return v;
}
static inline uint32_t sn_gguf_array_u32(const struct sn_gguf_array *a, size_t i)
{
    uint32_t v;
    memcpy(&v, a->data + i * sizeof v, sizeof v);
    return v;
}
static inline bool sn_gguf_array_bool(const struct sn_gguf_array *a, size_t i)
{
    return a->data[i] != 0;
}
static inline struct sn_gguf_str sn_gguf_array_str(const struct sn_gguf_array *a, size_t i)
{
    const uint8_t *field = a->file + a->strings[i];
    uint64_t len;
    memcpy(&len, field, sizeof len);
    return (struct sn_gguf_str){(const char *)field + sizeof len, (size_t)len};
}
/* Any integer type; a u64 above INT64_MAX gives INT64_MAX. */
int64_t sn_gguf_array_int(const struct sn_gguf_array *a, size_t i);

/* ---- tensors --------------------------------------------------------------------------------- */

size_t sn_gguf_n_tensors(const struct sn_gguf *g);
const struct sn_gguf_tensor *sn_gguf_tensor_at(const struct sn_gguf *g,
                                               size_t index); /* file order; NULL past the end */
const struct sn_gguf_tensor *sn_gguf_tensor(const struct sn_gguf *g,
                                            const char *name); /* NULL when missing; O(1) */

/* ---- text ------------------------------------------------------------------------------------ */

/* Appends a readable short form of the value at `index`: numbers plain, strings in quotes with
 * escapes and cut after 200 bytes, arrays as "[3, 1, 2, ... 49152 in all]" with at most max_items
 * elements. OK, NOMEM or TOO_BIG. */
sennit_status sn_gguf_format_value(const struct sn_gguf *g, size_t index, struct sn_buf *out,
                                   size_t max_items);

/* Appends the value as JSON: strings whole, bytes that are not UTF-8 as U+FFFD, numbers that JSON
 * lacks as null, of arrays the first max_items elements. */
sennit_status sn_gguf_json_value(const struct sn_gguf *g, size_t index, struct sn_buf *out,
                                 size_t max_items);

#endif
