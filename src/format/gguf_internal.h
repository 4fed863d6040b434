/* Inside of the GGUF reader. Invariants of an open one:
 *  1. Every offset and length stored here was checked against n_bytes.
 *  2. names are unique, found through an open-addressing table of at most two thirds load.
 *  3. strings[] has the offset of the length field of every element of every string array, in file
 * order. */
#ifndef SN_GGUF_INTERNAL_H
#define SN_GGUF_INTERNAL_H

#include "format/gguf.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error                                                                                             \
    "GGUF values are little-endian and are read in place; a big-endian host needs conversions here"
#endif

/* What a file needs at least per entry; with these, counts are bounded by the file's size before
 * memory is taken. */
enum {
    GGUF_HEADER_BYTES = 24,
    GGUF_MIN_KV_BYTES = 8 + 1 + 4 + 1, /* key length, one byte of key, type, one byte of value */
    GGUF_MIN_TENSOR_BYTES =
        8 + 1 + 4 + 8 + 4 + 8, /* name length, name, n_dims, one dim, type, offset */
};

/* 24 bytes for at least 14 of the file; what else is wanted to know of a value stands in the file.
 */
struct gguf_entry {
    uint64_t key_at; /* offset of the key's first byte; the value begins at key_at + key_len + 4 */
    uint64_t first_string; /* string arrays: index into strings[] */
    uint32_t key_len;
    uint32_t type;
};

struct gguf_names {
    uint32_t *slots; /* index + 1, or 0 for empty */
    size_t n_slots;  /* a power of two, or 0 */
};

struct sn_gguf {
    struct sn_heap *heap;
    const uint8_t *file;
    size_t n_bytes;
    bool mapped;
    uint32_t version, alignment;
    uint64_t hash_seed;
    struct gguf_entry *entries;
    size_t n_entries;
    uint64_t *strings;
    size_t n_strings;
    struct sn_gguf_tensor *tensors;
    size_t n_tensors;
    struct gguf_names entry_names, tensor_names;
};

/* A cursor over the file and what it is looking at, for messages. */
struct gguf_cursor {
    struct sn_gguf *g;
    size_t at;
    const char *kind;        /* "metadata key", "tensor" */
    size_t index;            /* number of the entry, for as long as it has no name */
    struct sn_gguf_str name; /* data NULL until it was read */
    struct sennit_error *err;
};

/* Fails with "KIND 'NAME' (byte AT): " before the text. */
sennit_status gguf_fail(const struct gguf_cursor *c, sennit_status status, size_t at,
                        const char *fmt, ...) SENNIT_PRINTF(4, 5);
/* Fails unless n more bytes are there. `field` names what would be read. */
sennit_status gguf_need(const struct gguf_cursor *c, uint64_t n, const char *field);
sennit_status gguf_read_u32(struct gguf_cursor *c, const char *field, uint32_t *out);
sennit_status gguf_read_u64(struct gguf_cursor *c, const char *field, uint64_t *out);
/* A length and that many bytes. */
sennit_status gguf_read_name(struct gguf_cursor *c, const char *field, size_t max,
                             struct sn_gguf_str *out);

/* Printable form of a name: other bytes as \xNN, cut with "..." when it does not fit. Returns out.
 */
enum { GGUF_SHOWN_NAME = 100 };
const char *gguf_shown(struct sn_gguf_str s, char out[GGUF_SHOWN_NAME]);

/* The parts of opening, in order. Each leaves *g releasable when it fails. */
sennit_status gguf_parse_metadata(struct gguf_cursor *c, uint64_t n_entries);
sennit_status gguf_parse_tensors(struct gguf_cursor *c, uint64_t n_tensors);

sennit_status gguf_names_init(struct gguf_names *names, struct sn_heap *heap, size_t n,
                              struct sennit_error *err);
void gguf_names_free(struct gguf_names *names, struct sn_heap *heap);
/* Index of the name, or SN_GGUF_NONE; *slot is where it is or would go. name_of gives the name of
 * an index. */
typedef struct sn_gguf_str (*gguf_name_of)(const struct sn_gguf *g, size_t index);
size_t gguf_names_find(const struct gguf_names *names, const struct sn_gguf *g,
                       gguf_name_of name_of, struct sn_gguf_str name, size_t *slot);
struct sn_gguf_str gguf_entry_name(const struct sn_gguf *g, size_t index);
struct sn_gguf_str gguf_tensor_name(const struct sn_gguf *g, size_t index);

/* Bytes of a fixed-size value type; 0 for strings, arrays and unknown numbers. */
size_t gguf_type_bytes(uint32_t type);

static inline uint64_t gguf_load(const uint8_t *p, size_t n) /* n <= 8 */
{
    uint64_t v = 0;
    memcpy(&v, p, n);
    return v;
}
/* Value of an integer type; *negative tells how to read it. */
uint64_t gguf_load_int(uint32_t type, const uint8_t *p, bool *negative);
bool gguf_is_int(uint32_t type);

#endif
