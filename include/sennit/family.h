/* A cache family of your own, added from outside the library.
 *
 * A family says how keys and values lie in a page; the library does everything else of sennit/cache.h with it: rows,
 * merge, filter, extract, clone, trim, verify rounds, donors, save and load, accounting, and the attention, whose
 * core gets keys and values 64 at a time as f32. docs/own-family.md goes through one, examples/own-family is it, and
 * the program sennit-conformance (sennit/conformance.h) tries it.
 *
 * Nothing is registered: a configuration points to its family.
 *
 *     struct sennit_cache_config config = {.external = &my_family, .n_kv_heads = 8, .d_k = 64, .d_v = 64};
 *
 * So it goes through sennit_cache_create, through sennit_engine_create (sennit_engine_options.cache_external), and as
 * the inner family of a "window" or of "delayed" (inner[0].external).
 *
 * Lifetime: the struct and what it points to are borrowed, and must stay as they are until every cache, donor and
 * engine made with them is gone. A static const struct is right.
 *
 * Threads: check, signature, page_bytes and spans are called on the thread that creates a cache; fill_tail on the
 * owner's; store and load_chunk on the threads of a step, many at once, over different positions. None may call back
 * into the library, keep a pointer that it is given, or depend on anything but its arguments: the same bytes and
 * numbers must come out on any thread, at any time, on any machine. The floating-point environment of store and
 * load_chunk is round to nearest with denormals on. Compile with -ffp-contract=off where a multiplication and an
 * addition could be fused.
 *
 * Errors: only creation can refuse. sennit_cache_create is SENNIT_INVALID, with a message that names the family and
 * the slot, for a family or a geometry that cannot be; SENNIT_UNSUPPORTED for a struct of a later library that asks
 * for something that this one does not know. */
#ifndef SENNIT_FAMILY_H
#define SENNIT_FAMILY_H

#include "sennit/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SENNIT_FAMILY_NAME_BYTES = 24,      /* of a name, its NUL included */
    SENNIT_FAMILY_SIGNATURE_BYTES = 24, /* of the text that a family adds to its signature, its NUL included */
    SENNIT_FAMILY_MAX_SPANS = 16,
    SENNIT_FAMILY_CHUNK = 64            /* keys that load_chunk gives at a time */
};

/* What a cache was created with, as every function of its family gets it. */
struct sennit_family_geometry {
    const void *ctx;        /* the family's own */
    uint32_t n_kv_heads;    /* these three: 1 to 65536 */
    uint32_t d_k, d_v;
    uint32_t page_tokens;   /* positions in a page: 1, 2, 4, 8, 16, 32 or 64 */
    sennit_type k_type, v_type;    /* 0 without SENNIT_FIELDS_TYPES */
    uint32_t k_bits, v_bits, group; /* 0 without SENNIT_FIELDS_CODE */
};

/* A piece of a page that has a name and a type, for those who list or check what is stored (sennit_cache_state,
 * donors). It covers all positions of the page. */
struct sennit_family_span {
    const char *name; /* "key", "key_scale" ...; lasts as long as the family */
    sennit_type type; /* SENNIT_I8 for bytes that only the family reads */
    size_t offset;    /* in the page */
    size_t n_bytes;
};

/* Where 64 consecutive keys of one row are. */
struct sennit_family_chunk {
    const void *const *pages; /* [64 / page_tokens], in order; NULL for a page without a wanted key */
    uint64_t wanted;          /* bit j: key j, in page j / page_tokens at slot j % page_tokens, is wanted */
    uint32_t kv_head;
};

/* Slots are mandatory unless their comment says what NULL means. Sizes of pages are those of g->page_tokens. */
struct sennit_family {
    size_t struct_bytes;    /* sizeof(struct sennit_family): how much of it this program knows */
    const char *name;       /* a-z, 0-9 and '-', from a letter on; none of sennit_cache_families() */
    const void *ctx;        /* handed to every function; what tells variants of one family apart */
    /* SENNIT_FIELDS_TYPES and SENNIT_FIELDS_CODE where these fields of a configuration mean something to the family.
     * The heads, page_tokens and what all families take always do; any other that is not 0 is SENNIT_INVALID. */
    uint32_t fields;
    uint32_t n_spans; /* of a page: 1 to 16 */

    /* false, and a reason that says what to do ("d_k is 40; it must be a multiple of 32"), for a geometry that the
     * family cannot store. NULL: it can store any. */
    bool (*check)(const struct sennit_family_geometry *g, char *reason, size_t n_bytes);

    /* What tells stores of this family apart beside the configuration, "e4m3" for example: n_bytes is
     * SENNIT_FAMILY_SIGNATURE_BYTES; no more than n_bytes - 1 characters, printable. The library puts the name before
     * it and the geometry behind it. NULL: nothing. */
    void (*signature)(const struct sennit_family_geometry *g, char *out, size_t n_bytes);

    /* Bytes of a page: page_tokens positions of all heads, keys and values, and nothing else. At least 1. */
    size_t (*page_bytes)(const struct sennit_family_geometry *g);

    /* The page's spans, out [n_spans], in a fixed order, none of them beyond the page. */
    void (*spans)(const struct sennit_family_geometry *g, struct sennit_family_span *out);

    /* One token of one role, SENNIT_ROLE_KEY or SENNIT_ROLE_VALUE: its heads first_head .. first_head + n_heads - 1,
     * head h at x + h * d_k (d_v), into position `slot` of the page (aligned to 64 bytes). Other threads store other
     * heads, roles and slots of the page meanwhile, so no byte may belong to two of them. */
    void (*store)(const struct sennit_family_geometry *g, void *page, uint32_t slot, sennit_role role,
                  uint32_t first_head, uint32_t n_heads, const float *x);

    /* Sets every byte that positions from .. page_tokens - 1 have in the page, and no other; with from = 0 all of the
     * page, where no byte is without a position. (A saved row's unwritten rest goes out as zeros by it.) */
    void (*fill_tail)(const struct sennit_family_geometry *g, void *page, uint32_t from, uint8_t byte);

    /* The wanted keys of one KV head, and their values, as f32: key j at k + j * d_k, value j at v + j * d_v; k is
     * [64][d_k], v [64][d_v], both aligned to 64 bytes. Rows that are not wanted may be left alone or hold anything,
     * NaN too: their pages may hold what nobody wrote. A page can come from a saved row that somebody forged, so any
     * bytes must do no more than give some number. */
    void (*load_chunk)(const struct sennit_family_geometry *g, const struct sennit_family_chunk *chunk, float *k,
                       float *v);
};

#ifdef __cplusplus
}
#endif
#endif
