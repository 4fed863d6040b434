/* Quantized products with AVX2 on the 16-column panels, as two halves of 8 lanes. The order of
 * every output is scalar/gemm_quant.c's; the integer dots are exact for every code: 4-bit:
 * vpmaddubsw of codes 0..15 by +-127 gives pairs up to 3,810, and all 8 steps of a block add up to
 * 30,480, so a block stays in 16 bits; 8-bit: |w| by x with the sign of w moved onto it. |w| is at
 * most 128 (as an unsigned byte), x at most 127, so a pair is at most 32,512; each step is widened
 * before the next. */
#include <immintrin.h>

#include "kernel/slots.h"
#include "kernel/x86/gemm_walk.h"
#include "kernel/x86/rows.h"

static inline __attribute__((always_inline)) __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __attribute__((always_inline)) __m256 load_halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline __attribute__((always_inline)) int32_t int_at(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline __attribute__((always_inline)) float float_at(const uint8_t *p)
{
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

/* Hides how t was made: compilers otherwise regroup the sums of a block into a tree, whose leaves
 * spill. */
static inline __attribute__((always_inline)) __m256i opaque(__m256i t)
{
    __asm__("" : "+x"(t));
    return t;
}

/* t + the dots of 8 columns' 4 signed codes with the same 4 activation codes; size = |codes|. */
static inline __attribute__((always_inline)) __m256i dot_signed(__m256i t, __m256i codes,
                                                                __m256i size, __m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, codes));
    return opaque(_mm256_add_epi32(t, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}

/* h: half of the panel, 0 or 1; base: which half 0 is (a pass over one half at a time has base 0,
 * then 1). */
#define LOAD_CHAIN(r, h)                                                                           \
    __m256 f##r##h = first ? _mm256_setzero_ps() : _mm256_loadu_ps(y + (r)*ldy + 8 * (base + (h)));
#define STORE_CHAIN(r, h) _mm256_storeu_ps(y + (r)*ldy + 8 * (base + (h)), f##r##h);
#define FROM_ZERO(r, h)   __m256i t##r##h = _mm256_setzero_si256();

#define ROW_CODES(r, unused)                                                                       \
    const __m256i x##r = _mm256_set1_epi32(int_at(codes + SN_BLOCK * (r) + at));
#define DOT_NIBBLES(r, h)                                                                          \
    t##r##h = opaque(_mm256_add_epi16(t##r##h, _mm256_maddubs_epi16(part##h, x##r)));
#define DOT_BYTES(r, h) t##r##h = dot_signed(t##r##h, part##h, size##h, x##r);

#define BOTH_NIBBLES(h) const __m256i both##h = load(w + first_code + 64 * i + 32 * (base + (h)));
#define LOW_NIBBLES(h)  const __m256i part##h = _mm256_and_si256(both##h, low);
#define HIGH_NIBBLES(h)                                                                            \
    const __m256i part##h = _mm256_and_si256(_mm256_srli_epi16(both##h, 4), low);
#define SIGNED_BYTES(h)                                                                            \
    const __m256i part##h = _mm256_xor_si256(load(w + 64 * i + 32 * (base + (h))), offset);        \
    const __m256i size##h = _mm256_abs_epi8(part##h);

#define WIDEN(r, h) t##r##h = _mm256_madd_epi16(t##r##h, _mm256_set1_epi16(1));
#define TAKE_OFF_8(r, h)                                                                           \
    t##r##h = _mm256_add_epi32(t##r##h,                                                            \
                               _mm256_srai_epi32(_mm256_set1_epi32(int_at(third + 4 * (r))), 4));
#define ADD_SCALED(r, h)                                                                           \
    f##r##h =                                                                                      \
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(t##r##h),                                               \
                        _mm256_mul_ps(d##h, _mm256_set1_ps(float_at(scale + 4 * (r)))), f##r##h);
#define ADD_MIN(r, h)                                                                              \
    f##r##h = _mm256_fmadd_ps(m##h, _mm256_set1_ps(float_at(third + 4 * (r))), f##r##h);
#define SCALE_4BIT(h) const __m256 d##h = load_halves(w + 16 * (base + (h)));
#define MIN_Q4_1(h)   const __m256 m##h = load_halves(w + SN_Q4_1_MIN + 16 * (base + (h)));
#define SCALE_Q8_0(h) const __m256 d##h = load_halves(w + SN_Q8_0_SCALE + 16 * (base + (h)));

/* ROWS: ROWS_n; n_halves: halves in one pass. */
#define NIBBLES(ROWS, n_halves, code_start)                                                        \
    for (size_t i = 0; i < 4; i++) {                                                               \
        enum { first_code = code_start };                                                          \
        EACH_##n_halves(BOTH_NIBBLES);                                                             \
        {                                                                                          \
            const size_t at = 8 * i;                                                               \
            EACH_##n_halves(LOW_NIBBLES);                                                          \
            ROWS(ROW_CODES, 0);                                                                    \
            LANES_##n_halves(ROWS, DOT_NIBBLES);                                                   \
        }                                                                                          \
        {                                                                                          \
            const size_t at = 8 * i + 4;                                                           \
            EACH_##n_halves(HIGH_NIBBLES);                                                         \
            ROWS(ROW_CODES, 0);                                                                    \
            LANES_##n_halves(ROWS, DOT_NIBBLES);                                                   \
        }                                                                                          \
    }                                                                                              \
    LANES_##n_halves(ROWS, WIDEN);

#define WORK_Q4_1(ROWS, n_halves)                                                                  \
    NIBBLES(ROWS, n_halves, SN_Q4_1_CODES);                                                        \
    EACH_##n_halves(SCALE_4BIT);                                                                   \
    EACH_##n_halves(MIN_Q4_1);                                                                     \
    LANES_##n_halves(ROWS, ADD_SCALED);                                                            \
    LANES_##n_halves(ROWS, ADD_MIN);

#define WORK_Q4_0(ROWS, n_halves)                                                                  \
    NIBBLES(ROWS, n_halves, SN_Q4_0_CODES);                                                        \
    LANES_##n_halves(ROWS, TAKE_OFF_8);                                                            \
    EACH_##n_halves(SCALE_4BIT);                                                                   \
    LANES_##n_halves(ROWS, ADD_SCALED);

#define WORK_Q8_0(ROWS, n_halves)                                                                  \
    for (size_t i = 0; i < 8; i++) {                                                               \
        const size_t at = 4 * i;                                                                   \
        EACH_##n_halves(SIGNED_BYTES);                                                             \
        ROWS(ROW_CODES, 0);                                                                        \
        LANES_##n_halves(ROWS, DOT_BYTES);                                                         \
    }                                                                                              \
    EACH_##n_halves(SCALE_Q8_0);                                                                   \
    LANES_##n_halves(ROWS, ADD_SCALED);

/* The blocks of one pass are prefetched by that pass: n_lines split over the passes. */
#define PIECE(name, n, n_halves, block_bytes, n_lines, WORK)                                       \
    static void name##_##n(const uint8_t *panel, const uint8_t *tile, size_t row, size_t n_blocks, \
                           float *y, size_t ldy, bool first)                                       \
    {                                                                                              \
        const __m256i low = _mm256_set1_epi8(15), offset = _mm256_set1_epi8(-128);                 \
        (void)low;                                                                                 \
        (void)offset;                                                                              \
        (void)ldy;                                                                                 \
        for (size_t base = 0; base < 2; base += (n_halves)) {                                      \
            const uint8_t *w = panel, *x = tile;                                                   \
            LANES_##n_halves(ROWS_##n, LOAD_CHAIN);                                                \
            for (size_t b = 0; b < n_blocks; b++) {                                                \
                const uint8_t *codes = x + SN_BLOCK * row, *scale = x + SN_TILE_SCALE + 4 * row;   \
                const uint8_t *third = x + SN_TILE_THIRD + 4 * row;                                \
                (void)third;                                                                       \
                for (size_t line = base; line < (n_lines); line += 2 / (n_halves))                 \
                    _mm_prefetch((const char *)w + SN_PREFETCH_AHEAD + 64 * line, _MM_HINT_T1);    \
                LANES_##n_halves(ROWS_##n, FROM_ZERO);                                             \
                WORK(ROWS_##n, n_halves);                                                          \
                w += (block_bytes);                                                                \
                x += SN_TILE_BLOCK_BYTES;                                                          \
            }                                                                                      \
            LANES_##n_halves(ROWS_##n, STORE_CHAIN);                                               \
        }                                                                                          \
    }

/* Two rows of both halves, or four of one, fill the 16 registers. */
#define PIECES(n, n_halves)                                                                        \
    PIECE(q4_1, n, n_halves, SN_Q4_1_BYTES, 5, WORK_Q4_1)                                          \
    PIECE(q4_0, n, n_halves, SN_Q4_0_BYTES, 5, WORK_Q4_0)                                          \
    PIECE(q8_0, n, n_halves, SN_Q8_0_BYTES, 9, WORK_Q8_0)
PIECES(1, 2)
PIECES(2, 2)
PIECES(3, 1)
PIECES(4, 1)

enum { MAX_ROWS = 4 };
#define TABLE(name) name##_1, name##_2, name##_3, name##_4
static const sn_piece_fn q4_1[MAX_ROWS] = {TABLE(q4_1)};
static const sn_piece_fn q4_0[MAX_ROWS] = {TABLE(q4_0)};
static const sn_piece_fn q8_0[MAX_ROWS] = {TABLE(q8_0)};

void sn_gemm_q4_1_avx2(const struct sn_gemm_args *a)
{
    sn_gemm_walk(a, q4_1, MAX_ROWS, SN_Q4_1_BYTES);
}

void sn_gemm_q4_0_avx2(const struct sn_gemm_args *a)
{
    sn_gemm_walk(a, q4_0, MAX_ROWS, SN_Q4_0_BYTES);
}

void sn_gemm_q8_0_avx2(const struct sn_gemm_args *a)
{
    sn_gemm_walk(a, q8_0, MAX_ROWS, SN_Q8_0_BYTES);
}
