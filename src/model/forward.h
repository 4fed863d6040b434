/* One step through a model: its inputs, its buffers, and the parts that graphs are made of.
 *
 * Every worker of the thread pool runs the graph function; a part does this worker's share and ends, where the next
 * part needs all of it, at a barrier. Work is split over outputs only, so no split can change a result.
 *
 *   ids -> embed -> x f32 [n_tokens, d_model]
 *   layer: norm -> q k v (rotate, append) -> attend -> o, + x -> norm -> gate up -> down, + x
 *   last layer, after attend: the rows that sample or report go on alone
 *   head:  norm -> logits f32 [n_logits, logits_ld] -> on_logits per row */
#ifndef SN_FORWARD_H
#define SN_FORWARD_H

#include "model/model.h"

/* Called once per logits row, from any worker, after all logits are there. */
typedef void (*sn_logits_fn)(void *ctx, uint32_t index, const float *logits, struct sn_lane *lane);

/* One worker's own things. */
struct sn_lane {
    int index, n_lanes;
    struct sn_calls *calls;
    uint64_t weight_bytes;           /* read by products in this step */
    float *tile;                     /* f32 [SN_ROW_BLOCK][tile_ld]: a product before its epilogue */
    float *row;                      /* f32 [widest]: a normed row before it is coded */
    struct sn_acts acts[SN_ACT_COUNT]; /* private inputs of a step of at most SN_PRIVATE_ROWS rows */
};

/* Rows of one product call: its activations stay in the second-level cache while panels stream. */
enum { SN_ROW_BLOCK = 64 };
/* Up to this many rows each worker norms and codes all rows for itself, which is cheaper than a barrier. */
enum { SN_PRIVATE_ROWS = 2 };

struct sn_forward {
    const struct sennit_model *m;
    const struct sn_kernels *k;
    struct sn_pool *threads;
    struct sn_heap *heap;
    uint32_t max_tokens, max_logits, n_lanes;
    struct sn_lane *lanes; /* [n_lanes] */

    /* set for each step by the caller */
    struct sennit_cache *const *caches; /* [n_layers] */
    const struct sennit_span *spans;
    uint32_t n_spans, n_tokens, n_logits;
    uint32_t n_rows;          /* of x that the parts work on: n_tokens, then n_logits after sn_part_narrow */
    int32_t *ids;             /* [n_tokens] */
    uint32_t *token_span;     /* [n_tokens] index of the span */
    uint32_t *logit_tokens;   /* [n_logits] tokens whose logits are wanted, ascending */
    sn_logits_fn on_logits;
    void *on_logits_ctx;

    /* results */
    float *logits;            /* f32 [max_logits][logits_ld] */
    size_t logits_ld;
    _Atomic uint8_t *fault;   /* [max_tokens] 1 = a NaN or infinity in the token's keys or values */

    /* buffers, by the shape in the comment */
    float *x;                 /* [max_tokens][d_model] residual stream */
    float *q;                 /* [max_tokens][n_heads * d_k] */
    float *attn;              /* [max_tokens][n_heads * d_v] */
    float *cos, *sin;         /* [max_tokens][n_rot / 2] */
    struct sn_acts in[SN_ACT_COUNT];   /* [max_tokens][d_model] */
    struct sn_acts mid[SN_ACT_COUNT];  /* [max_tokens][n_heads * d_v] */
    struct sn_acts ff[SN_ACT_COUNT];   /* [max_tokens][d_ff] */
    struct sn_acts top[SN_ACT_COUNT];  /* [max_logits][d_model] */
    uint32_t n_items, n_merges;        /* of the layer's attention, set by worker 0 before a barrier */
    struct sn_ticket *tickets;         /* [2 * n_layers + 1]: items and merges of each layer, logits rows */
    size_t tile_ld, widest;
};

/* Buffers for steps of at most max_tokens tokens and max_logits logits rows. `calls` is [n_lanes], borrowed.
 * Bytes are charged to SN_USE_SCRATCH; sn_forward_bytes says how many, without allocating. */
sennit_status sn_forward_create(struct sn_forward **out, struct sn_heap *heap, const struct sennit_model *m,
                                const struct sn_kernels *k, struct sn_pool *threads, struct sn_calls *calls,
                                uint32_t max_tokens, uint32_t max_logits, struct sennit_error *err);
void sn_forward_free(struct sn_forward *f); /* NULL is fine */

/* Runs the step: spans, ids, token_span, logit_tokens and caches are set, every cache's append_begin has succeeded.
 * Runs the graph on all workers and commits the caches. */
void sn_forward_run(struct sn_forward *f);

/* ---- parts ----------------------------------------------------------------------------------------------------- */

void sn_part_embed(struct sn_forward *f, struct sn_lane *lane);
/* Norms x and codes it in every form of `forms` (bit = enum sn_act). Returns the inputs to use. */
const struct sn_acts *sn_part_norm(struct sn_forward *f, struct sn_lane *lane, const float *weight, uint32_t forms);
/* Products of q, k and v, rotation, queries into f->q, keys and values into the cache, the attention's plan. `half`:
 * RoPE pairing. */
void sn_part_qkv(struct sn_forward *f, struct sn_lane *lane, uint32_t layer, const struct sn_acts *in, bool half);
/* The cache's attention into f->attn. */
void sn_part_attend(struct sn_forward *f, struct sn_lane *lane, uint32_t layer);
/* After the last layer's attention, whose keys and values every token had to leave, only the rows with wanted logits
 * go on: they move to the front of x and f->attn. */
void sn_part_narrow(struct sn_forward *f, struct sn_lane *lane);
/* x += w * attention output. */
void sn_part_attn_out(struct sn_forward *f, struct sn_lane *lane, const struct sn_weights *o);
/* x += down * (gate(gate * in) * (up * in)) */
void sn_part_mlp(struct sn_forward *f, struct sn_lane *lane, const struct sn_layer *l, const struct sn_acts *in,
                 enum sn_kernel_id gate);
/* Logits of the wanted rows, then on_logits. */
void sn_part_head(struct sn_forward *f, struct sn_lane *lane);

static inline uint32_t sn_form_bit(const struct sn_weights *w) { return 1u << sn_act_form(w->type); }

#endif
