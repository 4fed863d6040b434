/* The kernel table: one slot per operation, its contract in the comment.
 *
 * src/kernel/scalar/ is the specification. Every other implementation gives the same bits for every input, size and
 * tail (docs/numerics.md has the orders in words); kcheck proves it. An output depends on its own row and column
 * alone, so M rows give what M single rows give, and callers may split the outputs over threads as they like.
 *
 * All pointers are borrowed. Unless a slot says otherwise, pointers need the alignment of their element only, may
 * not overlap, and a kernel reads and writes nothing outside the stated elements: operands may end at a protected
 * page. Kernels never fail. They expect the floating-point environment of sn_fp_enter(). */
#ifndef SN_KERNEL_H
#define SN_KERNEL_H

#include "base/base.h"
#include "base/cpu.h"
#include "sennit/tensor.h"

/* ---- activations --------------------------------------------------------------------------------------------- */

/* What a matrix product reads. Which form a weight type needs: sn_act_form(). */
enum sn_act {
    SN_ACT_F32,     /* plain rows: f32 [n_rows][ld], ld = sn_act_ld(n_in) */
    SN_ACT_Q8_SUM,  /* 8-bit blocks; the third part of a block is f32 s = d * sum(codes) */
    SN_ACT_Q8_BIAS, /* 8-bit blocks; the third part of a block is int32 -128 * sum(codes) */
    SN_ACT_COUNT
};

/* Quantized activations are tiles of 8 rows; a tile is n_in / 32 blocks of
 *     int8 code[8][32] | f32 d[8] | third[8]          = 320 bytes, 64-byte aligned.
 * Rows of a tile that hold no token are never read by a product (n_rows says how many do). */
enum { SN_TILE_ROWS = 8, SN_BLOCK = 32, SN_TILE_BLOCK_BYTES = 320, SN_PANEL = 16 };

/* Activation matrix of n_rows rows of n_in values, in one form. Does not own its data. */
struct sn_acts {
    enum sn_act form;
    size_t n_rows, n_in;
    void *data; /* 64-byte aligned, sn_act_bytes(form, n_rows, n_in) bytes */
};

enum sn_act sn_act_form(sennit_type weight);
size_t sn_act_bytes(enum sn_act form, size_t n_rows, size_t n_in); /* whole tiles */
static inline size_t sn_act_ld(size_t n_in) { return (n_in + 15) / 16 * 16; }
static inline uint8_t *sn_act_tile(const struct sn_acts *x, size_t tile) /* Q8 forms */
{
    return (uint8_t *)x->data + tile * (x->n_in / SN_BLOCK) * SN_TILE_BLOCK_BYTES;
}

/* ---- weights ------------------------------------------------------------------------------------------------- */

/* A weight matrix repacked for the product: y[r][c] = sum over k of x[r][k] * w[c][k].
 *
 * Panels of 16 columns (columns = outputs), one vector lane each; missing columns of the last panel are zero weights.
 * Quantized types: K is cut into chunks of SN_CHUNK_BLOCKS blocks (the last may be shorter); the layout is
 * [chunk][panel][block of the chunk], accumulators are carried between chunks, so the chain per output is the same
 * whatever the chunk. A block is
 *     Q4_1: f16 d[16] | f16 m[16] | 4 x 64 bytes of codes                                 = 320 bytes
 *     Q4_0: f16 d[16] | 4 x 64 bytes of codes (0..15, offset 8 taken off by the kernel)   = 288 bytes
 *     Q8_0: 8 x 64 bytes of codes ^ 0x80 | f16 d[16]                                      = 544 bytes
 *   4-bit: byte [column * 4 + j] of 64-byte vector i (0..3) has element 8i + j low, 8i + 4 + j high;
 *   8-bit: byte [column * 4 + j] of vector i (0..7) has element 4i + j.
 * Float types: [panel][k][16] in the type itself. */
enum { SN_CHUNK_BLOCKS = 32 };

struct sn_weights {
    sennit_type type;
    size_t n_in, n_out; /* n_in: a multiple of 32 for quantized types, anything >= 1 for float types */
    size_t n_panels;    /* ceil(n_out / 16) */
    void *data;         /* 64-byte aligned, sn_weights_bytes() bytes */
};

bool sn_weights_supported(sennit_type type);
/* Bytes of the packed form; 0 when the type is not supported, n_in does not divide, or the product overflows. */
size_t sn_weights_bytes(sennit_type type, size_t n_in, size_t n_out);
/* Packs file rows `first` .. `first + n - 1` (row = output column; GGUF layout, sn_row_bytes each) into columns
 * first.. of w. w->data must have been zeroed. Any thread; calls on distinct panels may run at once. */
void sn_weights_pack(struct sn_weights *w, const void *rows, size_t first, size_t n);
/* Value row of one column as f32 [n_in]: the embedding gather. Quantized: code*d, then + m, each rounded. */
void sn_weights_gather(const struct sn_weights *w, size_t column, float *out);

/* ---- slots --------------------------------------------------------------------------------------------------- */

/* Codes n_blocks blocks of 32 floats of one row into row `row` (0..7) of a tile. form: Q8_SUM or Q8_BIAS.
 * numerics.md "Activation block": a block with an infinity or NaN gets codes 0 and d = s = NaN (third = 0 for
 * Q8_BIAS); one with amax < 2^-100 gets zeros. */
typedef void (*sn_act_quantize_fn)(const float *x, size_t n_blocks, enum sn_act form, uint8_t *tile, size_t row);

/* y[r][c - 16 * panel] = product for rows 0 .. n_rows - 1 of tiles `tile`.. and panels panel .. panel + n_panels - 1.
 * y: f32 [n_rows][ldy], 64-byte aligned rows not required; columns of a padded last panel are written too (zeros). */
struct sn_gemm_args {
    const struct sn_weights *w;
    const struct sn_acts *x; /* form = sn_act_form(w->type); n_in = w->n_in */
    size_t panel, n_panels;
    size_t row, n_rows; /* row: a multiple of SN_TILE_ROWS; row + n_rows <= x->n_rows */
    float *y;
    size_t ldy; /* in floats, >= 16 * n_panels */
};
typedef void (*sn_gemm_fn)(const struct sn_gemm_args *a);
typedef sn_gemm_fn sn_gemm_f32_fn, sn_gemm_f16_fn, sn_gemm_bf16_fn, sn_gemm_q8_0_fn, sn_gemm_q4_0_fn, sn_gemm_q4_1_fn;

/* y = (x * r) * w, r = 1 / sqrt(sum(x^2) / n + eps). y may be x. */
typedef void (*sn_rms_norm_fn)(const float *x, const float *w, size_t n, float eps, float *y);

/* Rotates n_pairs pairs in place: (x[2i], x[2i+1]) for _pair, (x[i], x[i + n_pairs]) for _half, by cos[i], sin[i]. */
typedef void (*sn_rope_fn)(float *x, const float *cos, const float *sin, size_t n_pairs);
typedef sn_rope_fn sn_rope_pair_fn, sn_rope_half_fn;

/* y[i] = gate(g[i]) * u[i]; y may be g or u. SiLU: g / (1 + exp(-g)). GELU: 0.5 g (1 + tanh(0.79788456 (g +
 * 0.044715 g^3))) and 0.5 g (1 + erf(g / sqrt 2)); the exact operations are in scalar/. */
typedef void (*sn_gate_fn)(const float *g, const float *u, size_t n, float *y);
typedef sn_gate_fn sn_silu_mul_fn, sn_gelu_tanh_mul_fn, sn_gelu_erf_mul_fn;

typedef void (*sn_add_fn)(float *x, const float *y, size_t n);               /* x += y */
typedef void (*sn_soft_cap_fn)(float *x, size_t n, float cap);               /* cap * tanh(x * (1 / cap)) */
typedef void (*sn_scale_fn)(float *x, size_t n, float a);                    /* x *= a */

/* Stores n floats as the slot's type, element i at index i * stride of dst. f16 saturates, both round to nearest
 * even. */
typedef void (*sn_store_fn)(const float *x, size_t n, void *dst, size_t stride);
typedef sn_store_fn sn_store_f32_fn, sn_store_f16_fn, sn_store_bf16_fn;

/* Attention of n_q query vectors of one KV head over one segment: up to 4 chunks of 64 keys, fresh state in, state
 * out.
 *   k_chunk[c]: keys of chunk c in the slot's type, [4][d_k][16] (group of 16 keys, dimension, key)
 *   v_chunk[c]: values, [64][d_v]
 *   visible[i * n_chunks + c]: bit j = query i sees key j of chunk c. Keys that no query sees are never read as
 *   numbers: their storage may hold anything. A chunk without a visible key is skipped.
 * The order is numerics.md "Attention". soft_cap 0 = none. d_k, d_v: multiples of 16 for vector speed, any >= 1. */
struct sn_attn_args {
    const float *q; /* [n_q][ldq], rotated and pre-scaled */
    size_t ldq;
    size_t n_q, d_k, d_v, n_chunks;
    const void *const *k_chunk, *const *v_chunk;
    const uint64_t *visible;
    float soft_cap;
    float *m, *l, *o; /* out: [n_q], [n_q], [n_q][ldo]; m = -inf and l = 0, o = 0 where nothing is visible */
    size_t ldo;
    void *scratch; /* 64-byte aligned, sn_attn_scratch_bytes(n_q, d_k, d_v) */
};
typedef void (*sn_attn_fn)(const struct sn_attn_args *a);
typedef sn_attn_fn sn_attn_f32_fn, sn_attn_f16_fn, sn_attn_bf16_fn;
size_t sn_attn_scratch_bytes(size_t n_q, size_t d_k, size_t d_v);

/* Attention over latents in 8-bit codes, in groups of SN_LATENT_GROUP along the rank: a key is a latent followed by a
 * rope key, a value is the latent. The order is numerics.md "Quantized KV" and "8-bit latent". What no query sees is
 * never read as a number. */
enum { SN_LATENT_GROUP = 64 };
struct sn_latent8_chunk {
    const uint8_t *code;       /* [64][n_groups * 64] */
    const float *scale, *bias; /* [n_groups][64 keys] */
    const float *rope;         /* [4][d_rope][16] */
};
struct sn_attn_latent8_args {
    const int8_t *q_code;     /* [n_q][n_groups * 64], pre-scaled queries in codes */
    const float *q_d, *q_s;   /* [n_q][n_groups]: what a code is worth, and that times the sum of the codes */
    const float *q_rope;      /* [n_q][ldq] */
    size_t ldq;
    size_t n_q, n_groups, d_rope, n_chunks;
    const struct sn_latent8_chunk *chunk; /* [n_chunks] */
    const uint64_t *visible;              /* as above */
    float soft_cap;
    float *m, *l, *o; /* as above, ldo >= n_groups * 64 */
    size_t ldo;
};
typedef void (*sn_attn_latent8_fn)(const struct sn_attn_latent8_args *a);

/* An indexer's scores of one query against 64 keys: out[j] = sum over heads of w * max(q . k, 0), both chains
 * ascending; a NaN stays one. Only groups of 16 keys with a wanted one are computed; keys that are not wanted may be
 * anything, and so is their score. */
struct sn_index_args {
    const float *q, *w; /* [n_heads][d], [n_heads] */
    size_t n_heads, d;
    const void *k; /* [4][d][16] in the slot's type */
    uint64_t wanted;
    float *out; /* [64] */
};
typedef void (*sn_index_fn)(const struct sn_index_args *a);
typedef sn_index_fn sn_index_f32_fn, sn_index_f16_fn;

/* Merges a later segment (m2, l2, o2) into (m, l, o), in the order of numerics.md. A segment with m2 = -inf and
 * l2 = 0 changes nothing; into a state with m = -inf and l = 0 it is copied. */
typedef void (*sn_attn_merge_fn)(float *m, float *l, float *o, float m2, float l2, const float *o2, size_t d_v);
/* o[i] = o[i] / l, for i < d_v, into out (which may be o). */
typedef void (*sn_attn_finish_fn)(const float *o, float l, size_t d_v, float *out);

/* ---- keys and values as codes -------------------------------------------------------------------------------- */

/* A query for integer dots, in groups of `group` (32 or 64; n a multiple): numerics.md "Activation block" over the
 * whole group. d[i] is group i's scale, s[i] = d * sum of its codes. n codes within +-127. */
typedef void (*sn_code_query_fn)(const float *x, size_t n, size_t group, int8_t *codes, float *d, float *s);

/* Codes of `bits` (4 or 8) with scale and bias per group of 32 or 64 (n a multiple), one byte each:
 *     bias = f16(min), scale = f16((max - min) / (2^bits - 1)), both saturating; of -0 and +0 as minimum: +0
 *     code = rint((x - bias) / scale), within 0 .. 2^bits - 1; scale 0: code 0
 * A group with an infinity or NaN: scale = bias = NaN (0x7E00), codes 0. */
typedef void (*sn_affine_encode_fn)(const float *x, size_t n, size_t group, unsigned bits, uint8_t *codes,
                                    uint16_t *scale, uint16_t *bias);

/* 64 keys, or 64 values, of one head; ng = d / group.
 *     keys    codes [4 groups of 16 keys][d / 4][16 keys][4 dimensions] at 8 bits; at 4 bits [4][d / 8][16][4], where
 *             byte j of a key's four has dimension 8i + j low and 8i + 4 + j high; scale and bias f16 [4][ng][16]
 *     values  codes [64][d] at 8 bits; at 4 bits [64][d / 32][16], byte j: dimension 32i + j low, 32i + 16 + j high;
 *             scale and bias f16 [ng][64] */
struct sn_affine_part {
    const uint8_t *codes;
    const uint16_t *scale, *bias;
};

/* As sn_attn_fn, over codes. a.k_chunk, a.v_chunk, a.q and a.ldq are not used; d_k and d_v are multiples of group.
 * numerics.md "Quantized KV" has the order. */
struct sn_attn_affine_args {
    struct sn_attn_args a;
    const struct sn_affine_part *k, *v; /* [a.n_chunks] */
    unsigned k_bits, v_bits;            /* 4 or 8 */
    size_t group;                       /* 32 or 64 */
    const int8_t *q;                    /* [n_q][d_k] of code_query */
    const float *q_d, *q_s;             /* [n_q][d_k / group] */
};
typedef void (*sn_attn_affine_fn)(const struct sn_attn_affine_args *a);

/* ---- keys and values as TurboQuant codes ----------------------------------------------------------------------- */

/* Groups are of 32 along the head dimension; d is 64, 128, 256 or 512. Codes of `bits` bits are a little-endian bit
 * stream: 4 * bits bytes per group, code i of a group at bits i * bits and on. Constants: kernel/turbo.h. */

/* A query for integer dots with keys of `bits`, as code_query does it in groups of 32: codes within +-127, d what a
 * code is worth, sum the sum of the codes (NaN for a group with a fault). The codes of each 16 dimensions are put
 * into the order in which attn_turbo takes keys out of their words: at 2 bits 0 4 8 12, 1 5 9 13, 2 6 10 14, 3 7 11
 * 15, at 4 bits 0 2 4 6, 1 3 5 7, 8 10 12 14, 9 11 13 15, else as they are. */
typedef void (*sn_turbo_query_fn)(const float *x, size_t n, unsigned bits, int8_t *codes, float *d, float *sum);

/* Codes of a key (bits 2, 4, 5, 8; n a multiple of 32) with f16 scale and zero per group; with top = 2^bits - 1, or
 * 254 at 8 bits:
 *     scale = f16 of the larger of (max - min) / top and amax / 2048, saturating; the next f16 up where that was
 *             rounded below amax / 2048
 *     zero  = rint(min / scale), at 8 bits rint((max + min) / (2 * scale)), within +-2048, never -0
 *     code  = rint(x / scale - zero), within 0 .. top, at 8 bits within +-127 and stored with 128 added
 * max = min: scale = f16(|x|), zero = the sign of x as -1, 0 or 1, codes 0 (stored: 128 at 8 bits). A group with an
 * infinity or NaN: scale = NaN (0x7E00), zero = 0, codes 0 likewise. */
typedef void (*sn_turbo_keys_fn)(const float *x, size_t n, unsigned bits, uint8_t *codes, uint16_t *scale,
                                 uint16_t *zero);

/* Codes of a value of d numbers (bits 2, 3, 4, 5, 8) with an f16 scale per group: y = turbo_rotate's transform the
 * other way round (signs, stages, norm); scale = f16(sqrt(sum(y^2) * (1 / 32))), the sum in 16 lanes, saturating;
 * code = the number of thresholds below y / (scale + 1e-8). A group where y has an infinity or NaN: scale = NaN
 * (0x7E00), codes 0. */
typedef void (*sn_turbo_values_fn)(const float *x, size_t d, unsigned bits, uint8_t *codes, uint16_t *scale);

/* Back from the rotated space, in place: for h = 1, 2, 4 ... d / 2 (x[i], x[i + h]) = (x[i] + x[i + h], x[i] -
 * x[i + h]) where i has no bit h, then x * norm, then the signs. */
typedef void (*sn_turbo_rotate_fn)(float *x, size_t d);

/* 64 keys, or 64 values, of one head; ng = d / 32.
 *     keys    codes [4 groups of 16 keys][ng][bits][16 keys][4 bytes]: bytes 4j .. 4j + 3 of all keys' streams are
 *             neighbours; scale and zero f16 [4][ng][16]
 *     values  codes [64][d * bits / 8], scale f16 [ng][64], zero NULL */
struct sn_turbo_part {
    const uint8_t *codes;
    const uint16_t *scale, *zero;
};

/* As sn_attn_fn, over codes, values in the rotated space (so is the output). a.k_chunk, a.v_chunk, a.q and a.ldq are
 * not used. numerics.md "TurboQuant" has the order. */
struct sn_attn_turbo_args {
    struct sn_attn_args a;
    const struct sn_turbo_part *k, *v; /* [a.n_chunks] */
    unsigned k_bits, v_bits;
    const int8_t *q;           /* [n_q][d_k] of turbo_query for k_bits */
    const float *q_d, *q_sum;  /* [n_q][d_k / 32] */
};
typedef void (*sn_attn_turbo_fn)(const struct sn_attn_turbo_args *a);

/* ---- recurrent layers ------------------------------------------------------------------------------------------ */

/* One position of a causal depthwise convolution, for n channels: acc = w[0] * x[0] (with a bias: fma(w[0], x[0],
 * bias)), then fma over the taps in order; with silu, acc / (1 + exp(-acc)). Taps before position 0 are +0 and take
 * part like any other. y may be one of the x. */
struct sn_conv_args {
    const float *const *x; /* [n_taps]: the inputs at positions t - n_taps + 1 .. t */
    const float *w;        /* tap j of channel i at w[j * ldw + i] */
    size_t ldw;
    const float *bias; /* [n] or NULL */
    size_t n_taps, n;  /* n_taps >= 1 */
    bool silu;
    float *y;
};
typedef void (*sn_conv_fn)(const struct sn_conv_args *a);
/* y = x * (1 / sqrt(sum(x^2) + eps)). y may be x. */
typedef void (*sn_l2_norm_fn)(const float *x, size_t n, float eps, float *y);

/* One position of gated DeltaNet for 16 value lanes, numerics.md "Gated DeltaNet". State: [d_state][16]. */
struct sn_delta_args {
    const float *from; /* state before; may be to */
    float *to;         /* state after */
    size_t d_state;
    const float *k, *q; /* [d_state], normalised; q scaled too */
    const float *v;     /* [16] */
    float decay, beta;  /* exp(g), 0 .. 1 */
    float *out;         /* [16] */
};
typedef void (*sn_delta_step_fn)(const struct sn_delta_args *a);

/* One position of Mamba-2 for n_blocks times 16 lanes of one head, numerics.md "Mamba-2". State: [n_blocks][d_state]
 * [16]. */
struct sn_ssm_args {
    const float *from; /* state before; may be to */
    float *to;         /* state after */
    size_t n_blocks, d_state;
    const float *b, *c; /* [d_state] */
    const float *x;     /* [n_blocks * 16] */
    float dt, decay;    /* decay: exp(-exp(A_log) dt) */
    const float *skip;  /* D, one number, or NULL */
    float *out;         /* [n_blocks * 16] */
};
typedef void (*sn_ssm_step_fn)(const struct sn_ssm_args *a);

/* Largest of x[0..n-1] by `x > m ? x : m` from -inf: a NaN never wins. The sign of a zero result is unspecified. */
typedef float (*sn_max_fn)(const float *x, size_t n);
/* Sum of exp(x[i] - max): 16 partial sums, lane i mod 16, folded 8, 4, 2, 1. */
typedef float (*sn_sum_exp_fn)(const float *x, size_t n, float max);
typedef bool (*sn_all_finite_fn)(const float *x, size_t n);
/* Indices of the k largest of x, by (value descending, index ascending), k <= n; no NaN among them. -0 equals +0. */
typedef void (*sn_top_k_fn)(const float *x, size_t n, size_t k, uint32_t *out);

typedef void (*sn_unary_fn)(const float *x, size_t n, float *y); /* y may be x */
typedef sn_unary_fn sn_exp_fn, sn_tanh_fn, sn_erf_fn;

/* ---- table --------------------------------------------------------------------------------------------------- */

enum sn_kernel_id {
#define SN_KERNEL(slot) SN_K_##slot,
#include "kernel/kernel.list"
#undef SN_KERNEL
    SN_K_COUNT
};

struct sn_kernels {
    enum sn_isa isa; /* the level that was asked for; single slots may come from a lower one */
#define SN_KERNEL(slot) sn_##slot##_fn slot;
#include "kernel/kernel.list"
#undef SN_KERNEL
    const char *variant[SN_K_COUNT]; /* who fills each slot: "scalar", "scalar-fma", "avx2", "avx512" */
};

/* Fills the table for a level: the specification first, then each level up to `isa` overwrites its slots.
 * SENNIT_UNSUPPORTED when the CPU does not have the level. */
sennit_status sn_kernels_init(struct sn_kernels *k, enum sn_isa isa, const struct sn_cpu *cpu,
                              struct sennit_error *err);
const char *sn_kernel_name(enum sn_kernel_id id);
/* The product slot of a weight type; NULL when there is none. */
sn_gemm_fn sn_kernels_gemm(const struct sn_kernels *k, sennit_type type);
enum sn_kernel_id sn_kernel_gemm_id(sennit_type type);
enum sn_kernel_id sn_kernel_attn_id(sennit_type kv_type); /* F32, F16, BF16 */

/* What each thread did, for --json's account of what was in force: one per thread, never shared while it runs. */
struct sn_calls {
    _Alignas(64) uint64_t n[SN_K_COUNT];
};
/* Calls a kernel and counts it: SN_CALL(kernels, calls, rms_norm, x, w, n, eps, y). */
#define SN_CALL(k, calls, slot, ...) ((calls)->n[SN_K_##slot]++, (k)->slot(__VA_ARGS__))

/* Fillers, one per folder. */
void sn_kernels_fill_scalar(struct sn_kernels *k);
void sn_kernels_fill_scalar_fma(struct sn_kernels *k);
void sn_kernels_fill_avx2(struct sn_kernels *k);
void sn_kernels_fill_avx512(struct sn_kernels *k);

#endif
