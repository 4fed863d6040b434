/* The batchable-cache contract.
 *
 * A model layer keeps its state (keys and values, a recurrent matrix, a compressed latent ...) in a cache. A cache
 * holds any number of rows, each one sequence, and rows can join, leave, be pulled out, rolled back, published and
 * written to disk. A scheduler needs to know nothing but this header: no tensor layout, no precision, no model.
 *
 *   row       one sequence in the batch, by index 0 .. n_rows - 1
 *   serial    a cache of exactly one row; there is no other type for it
 *   position  index of a token in its row, from 0; what RoPE sees
 *   column    physical index on the token axis of a padded rectangle; position = column - left_pad(row)
 *   span      consecutive new tokens of one row in one step
 *   pool      the page allocator of one engine; charges each page and page table once, however many rows share it
 *   owned     the caller releases;  borrowed: the callee neither keeps nor releases
 *
 * The promise: a row's stored state and attention output are, bit for bit, those of the row run alone from its first
 * token ("solo replay"), whatever joined, left or was rolled back around it.
 *
 * Errors: all or nothing. A function that returns anything but SENNIT_OK has changed nothing.
 * Threads: all caches of one pool belong to one thread at a time, except sennit_cache_append_tile,
 * sennit_cache_attend_item and sennit_cache_attend_merge, which the threads of a step call at once. */
#ifndef SENNIT_CACHE_H
#define SENNIT_CACHE_H

#include "sennit/base.h"
#include "sennit/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SENNIT_UNBOUNDED UINT64_MAX

struct sennit_pool;
struct sennit_cache;
struct sennit_family;

/* ---- pool ---------------------------------------------------------------------------------------------------- */

struct sennit_pool_options {
    struct sennit_allocator allocator; /* {0} = default */
    uint32_t n_workers;                /* threads that may run append_tile and attend_item at once; 0 = 1 */
    const char *isa;                   /* "scalar", "avx2", "avx512"; NULL = the best of this CPU */
};

/* *out: owned. SENNIT_UNSUPPORTED for an isa that this CPU does not have. */
SENNIT_API sennit_status sennit_pool_create(struct sennit_pool **out, const struct sennit_pool_options *options,
                                            struct sennit_error *err);
/* NULL is fine. Every cache, donor and stored row of the pool must have been disposed of before. */
SENNIT_API void sennit_pool_free(struct sennit_pool *pool);
/* Bytes of all live pages and page tables, shared ones once. Step scratch is not among them. */
SENNIT_API uint64_t sennit_pool_bytes(const struct sennit_pool *pool);

/* ---- creation ------------------------------------------------------------------------------------------------ */

/* What must be known before the first token; zero means default. Families ignore no field that they do not use: a
 * non-zero field without meaning for the family is SENNIT_INVALID. */
struct sennit_cache_config {
    const char *family;       /* "plain", "affine" ...; sennit_cache_families() lists all */
    uint32_t n_kv_heads;      /* >= 1 */
    uint32_t d_k, d_v;        /* head dimensions of keys and values, >= 1 */
    sennit_type k_type, v_type; /* storage: SENNIT_F32, SENNIT_F16 or SENNIT_BF16; equal in "plain" */
    uint64_t max_tokens;      /* hard bound of one row; 0 = unbounded */
    uint32_t max_span;        /* largest span that will be appended; 0 = 1. A longer one is a range error only in
                                 families whose reserve depends on it */
    uint32_t round_depth;     /* most tokens of one verify round; 0 = no rounds */
    uint32_t page_tokens;     /* positions in a page: 1, 2, 4, 8, 16, 32 or 64; 0 = 64, the fastest. The same bits */
    uint32_t n_snapshots;     /* owned snapshots (donors, published rows) per row to be covered by projected_bytes */

    /* "affine": bits 8 or 4; group 32 or 64, a divisor of both head dimensions. "turboquant": bits of keys 2, 4, 5 or
     * 8, of values 2, 3, 4, 5 or 8 (0, 0 = 8, 3), group 0 or 32; both head dimensions 64, 128, 256 or 512. "mla",
     * "mla-dsa": k_bits 8 for a coded latent, else 0. k_type and v_type are then 0. */
    struct {
        uint32_t k_bits, v_bits, group;
    } code;
    /* "window": a query at position p sees p - tokens + 1 .. p, and the first n_kept of the row. slack: how many
     * tokens can be trimmed after the window has moved on; 0 = 64. The storage is inner[0], a family that keeps pages
     * of keys and values ("plain", "affine", "turboquant"): its name (or external) and code; its geometry is this
     * configuration's. Or "delayed": its start and inner; rows of the window then change as it says. A span above
     * max_span (in a round: above round_depth, where that is more) is SENNIT_RANGE. */
    struct {
        uint32_t tokens, slack, n_kept;
    } window;
    /* "delayed": plain (k_type, v_type) up to this many positions, then as inner[0] codes, row by row: queries at
     * positions below `start` read plain keys, all others encoded ones, their own included. inner[0] is a family of
     * keys and values with smaller pages ("affine", "turboquant"): its name (or external) and code. 0: encoded from
     * the first token. At most 2^30. A span above max_span (in a round: above round_depth, where that is more) is
     * SENNIT_RANGE. */
    uint64_t start;
    /* "recurrent": what kind, and the layer's constants, f32, copied at creation. n_kv_heads, d_k, d_v, the types and
     * page_tokens are 0; append_begin's n_heads is n_heads, 1 for short-conv. */
    struct {
        const char *kind;     /* "deltanet", "mamba2" or "short-conv" */
        uint32_t n_heads;     /* heads of the state: value heads (deltanet), heads (mamba2); 0 for short-conv */
        uint32_t n_key_heads; /* deltanet: key heads; mamba2: groups of B and C */
        uint32_t d_state;     /* deltanet: d_k; mamba2: n; the rows of the state matrix */
        uint32_t d_head;      /* deltanet: d_v; mamba2: d_head; its columns */
        uint32_t n_channels;  /* of the convolution: all of q, k, v | x, B, C | b * x */
        uint32_t kernel;      /* taps of the convolution, >= 2 */
        bool key_head_mod;    /* deltanet: value head i uses key head i mod n_key_heads (GGUF's order), else
                                 i / (n_heads / n_key_heads) */
        const float *conv_weight;   /* [n_channels][kernel] */
        const float *conv_bias;     /* [n_channels] or NULL */
        const float *a_log, *dt_bias; /* [n_heads] */
        const float *d_skip;        /* mamba2: [n_heads] or NULL */
        float dt_min, dt_max;       /* mamba2: clamp of dt; 0, 0 = none */
    } recurrent;
    /* "mla", "mla-dsa": latent and rope key per token, shared by all heads; n_kv_heads, d_k, d_v are 0. k_type is the
     * type of both (of the rope key alone with code.k_bits). */
    struct {
        uint32_t d_latent, d_rope;
    } mla;
    /* "mla-dsa": each query attends to the top_k keys of the indexer, ties to the lower position. */
    struct {
        uint32_t n_heads, d_index, top_k;
        sennit_type type;                   /* of the indexer's keys: SENNIT_F32 or SENNIT_F16 */
        /* Take the selection of this layer, which must begin each step first, with the same spans, and run its
         * attention first; no index keys are stored then, n_heads, d_index and type are 0, top_k is that layer's.
         * Looked at in create alone: what is read is whatever cache of that layer has the step open, be it this one
         * or one made from it (a batch, a clone). NULL = own indexer. */
        const struct sennit_cache *from;
    } index;
    /* Parts and inner storage: [n_inner], copied at creation.
     * "composed": 1 to 8 parts, each a whole cache of any other family with its own role. Rows, steps and rounds are
     * of all of them together. max_tokens, max_span, round_depth and n_snapshots are the whole's, and hold for every
     * part that leaves them 0; a part's own max_tokens bounds the whole, the others may only be larger than the
     * whole's. */
    const struct sennit_cache_config *inner;
    uint32_t n_inner;
    const char *role;  /* of a part in its "composed": 1 to 31 of a-z, 0-9, '_' and '-'; copied */
    const char *reads; /* of a part: the role of the earlier part that it reads, in place of index.from or source */
    /* "donor": a cache of the layer whose keys and values it reads, of the same pool; SENNIT_INVALID for families
     * without them ("mla", "mla-dsa", "recurrent", "composed") and "naive". Looked at in create alone: what is read
     * is whatever cache of that layer has the step open, be it this one or one made from it, this step's tokens
     * included. The donor stores nothing and gets no tiles; its rows are lengths, which join, leave, are trimmed and
     * rolled back with the source's. In every step: begin the source, then the donor with the same spans; append the
     * source's tiles; attend; end the donor's step, then the source's. Heads, dimensions and windows are the
     * source's. */
    const struct sennit_cache *source;
    /* A family from outside the library (sennit/family.h), borrowed: it outlives all that is made with it. `family`
     * is then NULL or its name. NULL = one of the library's. */
    const struct sennit_family *external;
};

/* Names of the families, NULL-terminated, borrowed for ever. Any thread. */
SENNIT_API const char *const *sennit_cache_families(void);

/* Groups of fields of a configuration. What every family takes (family, max_tokens, max_span, round_depth,
 * n_snapshots, role) is in none. */
typedef enum sennit_cache_fields {
    SENNIT_FIELDS_HEADS = 1, /* n_kv_heads, d_k, d_v */
    SENNIT_FIELDS_TYPES = 2, /* k_type, v_type */
    SENNIT_FIELDS_PAGES = 4, /* page_tokens */
    SENNIT_FIELDS_CODE = 8,
    SENNIT_FIELDS_WINDOW = 16,
    SENNIT_FIELDS_START = 32,
    SENNIT_FIELDS_RECURRENT = 64,
    SENNIT_FIELDS_MLA = 128,
    SENNIT_FIELDS_INDEX = 256,
    SENNIT_FIELDS_INNER = 512, /* inner, n_inner */
    SENNIT_FIELDS_SOURCE = 1024
} sennit_cache_fields;

/* The lengths at which a row can be published (sennit_cache_can_publish_row). */
typedef enum sennit_publish_rule {
    SENNIT_PUBLISH_ANY,      /* all from its floor to its count */
    SENNIT_PUBLISH_RETAINED, /* those among them whose state is still there */
    SENNIT_PUBLISH_EXACT     /* its count alone */
} sennit_publish_rule;

/* What a family takes and can do: its entry in the table that the calls themselves go by. */
struct sennit_cache_family_info {
    const char *name;
    uint32_t fields;      /* sennit_cache_fields that mean something to it; the others must be zero */
    bool trimmable;       /* sennit_cache_is_trimmable */
    bool replays_rounds;  /* a rolled-back round runs the tokens that it keeps again; false: drops the others */
    bool donor_rows;      /* capture_donor_rows gives planes */
    bool donor_attention; /* capture_donor_attention gives a view */
    bool composed;        /* made of parts: all that follows from them is the example's here */
    bool precision_change; /* max_append_tokens, floors and prefill maintenance are not those of a plain row */
    bool bounded_span;     /* a span above max_span (in a round: above round_depth, where that is more) is refused */
    bool left_pads;        /* left_pad can be above 0 */
    bool copies_rows;      /* merge, extract and clone copy tokens; false: references */
    sennit_publish_rule publish;
    /* A configuration of this family, of usual size. Borrowed for ever, constants in it too. "donor": with a source
     * of one's own. */
    const struct sennit_cache_config *example;
};
/* SENNIT_NOT_FOUND for an unknown family (the message lists them). Any thread. */
SENNIT_API sennit_status sennit_cache_family_info(const char *name, struct sennit_cache_family_info *out,
                                                  struct sennit_error *err);

/* An empty layout (n_rows 0) or a fresh serial cache (n_rows 1). *out: owned, dispose with sennit_cache_dispose.
 * SENNIT_NOT_FOUND for an unknown family (the message lists them), SENNIT_INVALID for a bad geometry. */
SENNIT_API sennit_status sennit_cache_create(struct sennit_cache **out, struct sennit_pool *pool,
                                             const struct sennit_cache_config *config, uint32_t n_rows,
                                             struct sennit_error *err);

/* Frees everything and sets *cache to NULL; *cache NULL is fine, so calling twice is safe. Donors and extracted,
 * cloned or merged caches stay valid. Legal at any time, also within a step or a round. */
SENNIT_API void sennit_cache_dispose(struct sennit_cache **cache);

/* ---- questions (never fail, change nothing) ------------------------------------------------------------------ */

/* Rows held; a row with zero tokens counts. An emptied layout and a fresh one are the same. */
SENNIT_API uint32_t sennit_cache_batch_size(const struct sennit_cache *cache);
/* Valid tokens of a row = the next RoPE position. A value: nothing that a later append does changes what was read. */
SENNIT_API uint64_t sennit_cache_row_offset(const struct sennit_cache *cache, uint32_t row);
/* Columns before the row's first valid token; 0 in layouts that need no rectangle. */
SENNIT_API uint64_t sennit_cache_left_pad(const struct sennit_cache *cache, uint32_t row);
/* Head of the group: the largest row_offset + left_pad; 0 without rows. */
SENNIT_API uint64_t sennit_cache_offset(const struct sennit_cache *cache);
/* Hard bound of one row, in tokens; SENNIT_UNBOUNDED = none. */
SENNIT_API uint64_t sennit_cache_max_tokens(const struct sennit_cache *cache);
/* Earliest prefix length from which generation may resume bit-exactly, for one row, or the maximum over rows for
 * row -1. Set by an irreversible change of precision; carried by clone, extract, merge, save and load. */
SENNIT_API uint64_t sennit_cache_minimum_reusable_offset(const struct sennit_cache *cache, int64_t row);
/* false, out untouched: every row stands at sennit_cache_offset. true: out[batch_size] = the rows' positions for
 * per-row RoPE. Read once per forward, before the append. */
SENNIT_API bool sennit_cache_rope_offset_arr(const struct sennit_cache *cache, int32_t *out);
/* The most bytes that one row holds at any moment on its way from empty to `tokens` tokens, nothing shared: storage
 * plus the reserve fixed at creation from (max_span, round_depth, n_snapshots), which is 0 for (1, 0, 0). Pure,
 * monotone, also for an empty layout. Storage equals the allocator's count at every page boundary. */
SENNIT_API uint64_t sennit_cache_projected_bytes(const struct sennit_cache *cache, uint64_t tokens);
/* What the row holds now, its share of nothing: pages and tables that others hold too are charged to the pool alone
 * and count 0 here. */
SENNIT_API uint64_t sennit_cache_current_bytes(const struct sennit_cache *cache, uint32_t row);
/* Storage that one more token costs one row, averaged over a page; 0 for constant-size state. */
SENNIT_API uint64_t sennit_cache_bytes_per_token(const struct sennit_cache *cache);
/* May the row be published as a prefix of exactly `tokens` forwarded tokens? */
SENNIT_API bool sennit_cache_can_publish_row(const struct sennit_cache *cache, uint32_t row, uint64_t tokens);
/* Committed positions left before this row's state changes precision; SENNIT_UNBOUNDED = no boundary ahead. The
 * scheduler cuts spans there: a longer one is SENNIT_RANGE. 0 where the change is due and may not be made: between
 * begin_prefill and end_prefill, and in a verify round that began below it. */
SENNIT_API uint64_t sennit_cache_max_append_tokens(const struct sennit_cache *cache, uint32_t row);
/* The longest prefix of at most `tokens` tokens from which a new row can go on bit-exactly: what clone, and trim to
 * that length, give. In a "composed" cache the minimum over its parts at a boundary that every part can restore; 0
 * where there is none but the empty one. To be asked with the length that a prompt has in common with a row. */
SENNIT_API uint64_t sennit_cache_reusable_tokens(const struct sennit_cache *cache, uint32_t row, uint64_t tokens);
/* Can trim drop tokens at all? */
SENNIT_API bool sennit_cache_is_trimmable(const struct sennit_cache *cache);
/* Stable storage identity: family, element types, geometry. Mandatory for every family; capability tests and disk
 * codecs compare it. A wrapper reports its own kind plus the inner kind. Borrowed, valid as long as the cache. */
SENNIT_API const char *sennit_cache_signature(const struct sennit_cache *cache);

/* What keys and values are stored as: "F16", "affine k8 v4 g32" ... ("composed": each part has its own); what a
 * donor's view is called. Borrowed, valid as long as the cache. */
SENNIT_API const char *sennit_cache_dtype(const struct sennit_cache *cache);

/* One part of a composed cache. */
struct sennit_cache_part {
    const char *role;
    const struct sennit_cache *cache; /* borrowed */
};
/* The parts of a cache that is made of other storage: *parts (borrowed) and their count; 0 for a leaf. A part may be
 * asked, leased (sennit_cache_state) and captured (the whole has no donors) on its own. */
SENNIT_API uint32_t sennit_cache_composed(const struct sennit_cache *cache, const struct sennit_cache_part **parts);

/* ---- rows ---------------------------------------------------------------------------------------------------- */

/* An empty layout of the same kind and parameters; allocates no token storage. */
SENNIT_API sennit_status sennit_cache_make_empty_batch(const struct sennit_cache *cache, struct sennit_cache **out,
                                                       struct sennit_error *err);
/* Fills this empty layout: first source a running layout or one serial cache, then one serial cache per joining row.
 * Sources are neither consumed nor changed, on success or failure. SENNIT_STATE when this layout has rows;
 * SENNIT_INVALID when a signature differs or a later source is not serial. Copies references, never tokens ("padded":
 * tokens). */
SENNIT_API sennit_status sennit_cache_merge_rows(struct sennit_cache *cache,
                                                 const struct sennit_cache *const *sources, uint32_t n_sources,
                                                 struct sennit_error *err);
/* An independent serial cache with exactly the row's valid tokens. It keeps nothing of the rest of the batch
 * alive. */
SENNIT_API sennit_status sennit_cache_extract_row(const struct sennit_cache *cache, uint32_t row,
                                                  struct sennit_cache **out, struct sennit_error *err);
/* As extract_row; says that the caller means a cheap reference, to be trimmed and published. */
SENNIT_API sennit_status sennit_cache_clone(const struct sennit_cache *cache, uint32_t row, struct sennit_cache **out,
                                            struct sennit_error *err);
/* Keeps the listed rows in that order; n_keep 0 empties the layout. A duplicate is SENNIT_INVALID, an index outside
 * SENNIT_RANGE. Cannot run out of memory. */
SENNIT_API sennit_status sennit_cache_filter_rows(struct sennit_cache *cache, const uint32_t *keep, uint32_t n_keep,
                                                  struct sennit_error *err);
/* Drops the last n tokens of every row, exactly, or refuses: SENNIT_RANGE when n is above the shortest row or below
 * a row's floor, SENNIT_UNSUPPORTED when the family cannot trim. `bypass` skips the guard right after a multi-token
 * append, reaches at most that append, and is exact or refused like any trim. */
SENNIT_API sennit_status sennit_cache_trim(struct sennit_cache *cache, uint64_t n, bool bypass,
                                           struct sennit_error *err);

/* ---- speculation: one verify round --------------------------------------------------------------------------- */

/* The window of a row is what was appended since begin. SENNIT_UNSUPPORTED with round_depth 0. While a round is open
 * only append, attend, commit, rollback and dispose are legal; all else is SENNIT_STATE. */
SENNIT_API sennit_status sennit_cache_spec_round_begin(struct sennit_cache *cache, struct sennit_error *err);
/* Full acceptance of every row's window. */
SENNIT_API sennit_status sennit_cache_spec_round_commit(struct sennit_cache *cache, struct sennit_error *err);
/* Keeps the first keep[row] tokens of each row's window; the state is then that of a cache fed only those. A keep
 * outside 0 .. window: SENNIT_RANGE, the round stays open. */
SENNIT_API sennit_status sennit_cache_spec_round_rollback(struct sennit_cache *cache, const uint64_t *keep,
                                                          struct sennit_error *err);

/* ---- prefill maintenance: precision changes during shared prefill --------------------------------------------- */

/* Suspends the change; an append that would need it is then SENNIT_RANGE. Belongs to this cache, not to its rows:
 * what is merged, extracted or cloned from it is not suspended. Begin twice, and commit or end without it, is
 * SENNIT_STATE; in families without a change that is all there is to it. */
SENNIT_API sennit_status sennit_cache_begin_prefill(struct sennit_cache *cache, struct sennit_error *err);
/* Runs it for exactly these rows, whose own planned span just ended: those that stand where their precision changes;
 * the others stay as they are. */
SENNIT_API sennit_status sennit_cache_commit_prefill(struct sennit_cache *cache, const uint32_t *rows,
                                                     uint32_t n_rows, struct sennit_error *err);
/* Resumes it. */
SENNIT_API sennit_status sennit_cache_end_prefill(struct sennit_cache *cache, struct sennit_error *err);

/* ---- donors: owned snapshots ---------------------------------------------------------------------------------- */

/* A typed piece of storage. */
struct sennit_span_view {
    const char *name;  /* "key", "value", "table" ...; fixed order per family */
    sennit_type type;
    uint32_t row;
    uint64_t pos, n_tokens; /* positions that it covers */
    uint32_t part;          /* of a "composed" cache */
    const void *data;
    size_t n_bytes;
    /* "padded": data is [n_kv_heads][n_columns][head dimension], position pos at column `column`, which is the row's
     * left_pad. The tensor [n_rows][n_kv_heads][n_columns][head dimension] of a name begins row * n_bytes before the
     * data of any of its spans. (While a donor holds storage that has been trimmed or filtered since, rows lie where
     * the donor has them, and `column` counts there.) 0 in families that have no columns. */
    uint64_t column, n_columns;
};

/* A read-only snapshot of the K and V planes; unchanged by any later append, trim, filter, conversion or dispose of
 * the source. Its arrays live as long as the snapshot. */
struct sennit_donor {
    uint32_t n_rows;
    const uint64_t *offsets;        /* [n_rows] position counts */
    const uint64_t *starts, *ends;  /* [n_rows] first and one past last retained position */
    uint64_t width;                 /* largest ends - starts */
    const struct sennit_span_view *planes; /* by reference, as stored */
    size_t n_planes;
};
SENNIT_API sennit_status sennit_cache_capture_donor_rows(const struct sennit_cache *cache, struct sennit_donor **out,
                                                         struct sennit_error *err);
SENNIT_API void sennit_donor_free(struct sennit_donor *donor); /* NULL is fine */

/* An attention view over the same kind of snapshot. */
struct sennit_donor_attention {
    uint32_t n_rows;
    const uint64_t *offsets, *starts, *ends; /* as in sennit_donor */
    uint64_t width;
    const char *dtype; /* storage type name */
    uint32_t n_kv_heads, d_k, d_v;
};
SENNIT_API sennit_status sennit_cache_capture_donor_attention(const struct sennit_cache *cache,
                                                              struct sennit_donor_attention **out,
                                                              struct sennit_error *err);
/* q f32 [n_rows][n_heads][n_q][d_k], rotated, unscaled; n_heads a multiple of n_kv_heads. mask NULL = all retained
 * keys, else uint8 [n_rows][n_q][width], index = position - starts[row], 0 = hidden. out f32
 * [n_rows][n_heads][n_q][d_v]; a query that sees nothing gives zeros. Keys outside starts .. ends are hidden whatever
 * the mask says. Owner's thread only. */
SENNIT_API sennit_status sennit_donor_attend(struct sennit_donor_attention *view, const float *q, uint32_t n_heads,
                                             uint32_t n_q, float scale, const uint8_t *mask, float *out,
                                             struct sennit_error *err);
SENNIT_API void sennit_donor_attention_free(struct sennit_donor_attention *view); /* NULL is fine */

/* ---- the live storage ----------------------------------------------------------------------------------------- */

/* A lease on the storage as typed, named spans in a fixed order: rows ascending, positions ascending. Valid until the
 * cache changes; release it always (sennit_state_release), also where nothing had to be built. */
struct sennit_state {
    const struct sennit_span_view *spans;
    size_t n_spans;
    bool needs_dispose; /* the spans were built for this lease rather than borrowed */
    void *owner;        /* the library's */
};
SENNIT_API sennit_status sennit_cache_state(const struct sennit_cache *cache, struct sennit_state *out,
                                            struct sennit_error *err);
SENNIT_API void sennit_state_release(struct sennit_state *state);

/* Byte stream for saved state, with a sticky error, a byte count and an XXH3-64 checksum over all bytes.
 * `move` transfers exactly n bytes (read or write as the stream is meant) or returns false. */
struct sennit_stream {
    bool (*move)(void *ctx, void *data, size_t n_bytes);
    void *ctx;
    bool failed;      /* sticky */
    uint64_t n_bytes; /* so far */
    uint64_t limit;   /* readers: refuse more than this many bytes in all; 0 = none */
    void *hash;       /* the library's; NULL at the start */
};
/* Writes one row: signature, numeric specification, lengths, pages, checksum. */
SENNIT_API sennit_status sennit_cache_save(const struct sennit_cache *cache, uint32_t row,
                                           struct sennit_stream *stream, struct sennit_error *err);
/* Reads one row into a new serial cache of the same kind and parameters as `like`. SENNIT_FORMAT for damage,
 * SENNIT_INVALID for another signature or numeric specification; *out is then untouched. */
SENNIT_API sennit_status sennit_cache_load(const struct sennit_cache *like, struct sennit_stream *stream,
                                           struct sennit_cache **out, struct sennit_error *err);

/* ---- the step -------------------------------------------------------------------------------------------------- */

/* Consecutive new tokens of one row. Token `first_token + i` of the step's flat array has position `pos + i`. */
struct sennit_span {
    uint32_t row;
    uint64_t pos;         /* must equal the row's offset */
    uint32_t n_tokens;    /* >= 1 */
    uint32_t first_token; /* index in the step's flat arrays */
};

/* What a tile of appended data is. */
typedef enum sennit_role {
    SENNIT_ROLE_KEY,        /* f32 [n_heads][d_k], rotated */
    SENNIT_ROLE_VALUE,      /* f32 [n_heads][d_v] */
    SENNIT_ROLE_LATENT,    /* f32 [d_latent]: one for all heads, normed */
    SENNIT_ROLE_ROPE_KEY,  /* f32 [d_rope]: one for all heads, rotated */
    SENNIT_ROLE_INDEX_KEY, /* f32 [d_index]: one for all heads, normed and rotated */
    /* Recurrent layers. A "head" of these roles is one number: heads first_head .. first_head + n_heads - 1 are
     * consecutive elements. Per token:
     *   CONV_IN  [recurrent.n_channels], the convolution's raw inputs, in this order:
     *            deltanet    q [n_key_heads][d_state] | k [n_key_heads][d_state] | v [n_heads][d_head]
     *            mamba2      x [n_heads][d_head] | B [n_key_heads][d_state] | C [n_key_heads][d_state]
     *            short-conv  b * x
     *   DECAY    [n_heads], deltanet: a, before dt_bias and softplus;  BETA [n_heads]: b, before the sigmoid
     *   DT       [n_heads], mamba2: dt, before dt_bias and softplus */
    SENNIT_ROLE_CONV_IN,
    SENNIT_ROLE_DECAY,
    SENNIT_ROLE_BETA,
    SENNIT_ROLE_DT,
    SENNIT_ROLE_COUNT,
    SENNIT_ROLE_OF_PART = 0x7FFFFFFF /* room for SENNIT_PART */
} sennit_role;
/* A role of one part of a "composed" cache, by its index in sennit_cache_composed, for append_tile. */
#define SENNIT_PART(part, role) ((sennit_role)((unsigned)(role) | (unsigned)(part) << 8))

/* Opens a step: checks the spans (each row at most once) and reserves everything that the step needs, the attention's
 * scratch for n_heads query heads included. The only call of the step that can fail; SENNIT_RANGE past max_tokens or,
 * in a round, past round_depth; SENNIT_NOMEM; SENNIT_STATE while a step is open. The spans are copied.
 * The caches of a pool share the scratch: begin the steps of all of them before the first attend_plan, and plan, run
 * and merge one cache after the other. A begin that must grow the scratch while another cache's plan is in it is
 * SENNIT_STATE. "mla-dsa" with index.from: SENNIT_STATE unless the layer that it names has a step of the same spans
 * open and not yet planned; likewise "donor" and its source. */
SENNIT_API sennit_status sennit_cache_append_begin(struct sennit_cache *cache, const struct sennit_span *spans,
                                                   uint32_t n_spans, uint32_t n_heads, struct sennit_error *err);
/* The same where the parts of a "composed" cache differ in heads: n_heads[i] for part i of n_parts. append_begin
 * hands one number to all of them. A leaf has one part. */
SENNIT_API sennit_status sennit_cache_append_begin_parts(struct sennit_cache *cache, const struct sennit_span *spans,
                                                         uint32_t n_spans, const uint32_t *n_heads, uint32_t n_parts,
                                                         struct sennit_error *err);
/* Stores heads first_head .. first_head + n_heads - 1 of tokens `token` .. `token + n_tokens - 1` of one span (token
 * counted within the span). data: f32, head h of token t at data + t * token_stride + h * head dimension, h counted
 * from 0. Every (token, head, role) exactly once per step, from any thread; in a "composed" cache every one of every
 * part, with SENNIT_PART. */
SENNIT_API void sennit_cache_append_tile(struct sennit_cache *cache, uint32_t span, uint32_t token, uint32_t n_tokens,
                                         sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                                         size_t token_stride, uint32_t worker);
/* Ends the step: the spans' tokens are now part of their rows. Owner's thread. */
SENNIT_API void sennit_cache_append_commit(struct sennit_cache *cache);
/* Ends the step as if it had not been: rows are as before append_begin. Only a change of precision that was due, and
 * that append_begin made, stays: the row has as many tokens as before, and whatever comes next reads the same.
 * Owner's thread. */
SENNIT_API void sennit_cache_append_abort(struct sennit_cache *cache);

/* What the model hands over for the attention of the open step. Token index = the step's flat index.
 * "recurrent": query is NULL, and scale, soft_cap and sinks have no meaning. out is [n_heads][d_head] of a token,
 * before the layer's norm and gate; for short-conv [n_channels], with 1 head. Plan once per step: items convolve,
 * merges run the recurrence. A step that is committed without a plan moves the state all the same. */
struct sennit_attend_inputs {
    /* f32, head h of token t at query + t * query_stride + h * d_k; rotated, unscaled. "mla", "mla-dsa": absorbed,
     * [d_latent + d_rope] per head. */
    const float *query;
    size_t query_stride; /* floats */
    /* "mla-dsa" with an indexer: f32 [n_index_heads][d_index], rotated, and [n_index_heads], scaled as the model
     * says, of token t at t times that many floats. NULL in families without. */
    const float *index_query, *index_weight;
    uint32_t part;       /* "composed": whose attention this is; 0 in a leaf */
    float scale;
    float soft_cap;      /* 0 = none */
    const float *sinks;  /* f32 [n_heads] learned sink logits, or NULL */
    float *out;          /* f32, head h of token t at out + t * out_stride + h * d_v; "mla": d_v = d_latent */
    size_t out_stride;   /* floats */
};
/* Plans the attention of the open step; the inputs are copied (the pointers, not what they point to, which must be
 * valid while items run). *n_items may run in any order on any thread once all appended tiles are in; then, after
 * all items, *n_merges likewise. "composed": once per part that wants attention, each after the items and
 * merges of the one before, in the order of the parts where one reads another. Nothing in an item depends on who runs
 * it. Owner's thread. Cannot fail: append_begin reserved what it needs. */
SENNIT_API void sennit_cache_attend_plan(struct sennit_cache *cache, const struct sennit_attend_inputs *inputs,
                                         uint32_t *n_items, uint32_t *n_merges);
/* worker: 0 .. n_workers - 1 of the pool, distinct for threads that run at once. */
SENNIT_API void sennit_cache_attend_item(struct sennit_cache *cache, uint32_t item, uint32_t worker);
SENNIT_API void sennit_cache_attend_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker);

#ifdef __cplusplus
}
#endif
#endif
