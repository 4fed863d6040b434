/* Quantized products with AVX-512 VNNI. One lane per column, one integer and one float accumulator
 * per row; the order of every output is scalar/gemm_quant.c's. vpdpbusd multiplies unsigned weight
 * codes by signed activation codes and does not saturate (32 * 255 * 128 < 2^31), so t is exact.
 * Q8_0 codes are stored with 128 added and Q4_0 codes with 8: the integer accumulator starts at
 * -128 * sum(x) or at a sixteenth of it. */
#include <immintrin.h>

#include "kernel/slots.h"
#include "kernel/x86/gemm_walk.h"
#include "kernel/x86/rows.h"

/* acc + the dots of 16 columns' 4 codes with the same 4 activation codes. Inline assembly because a
 * broadcast from memory costs nothing here, and compilers otherwise spend an instruction and a
 * register on it. */
static inline __attribute__((always_inline)) __m512i dot4(__m512i acc, __m512i codes,
                                                          const uint8_t *x)
{
    typedef int32_t four_codes __attribute__((may_alias));
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(codes), "m"(*(const four_codes *)x));
    return acc;
}

static inline __attribute__((always_inline)) __m512 load_halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline __attribute__((always_inline)) float float_at(const uint8_t *p, size_t i)
{
    float f;
    memcpy(&f, p + 4 * i, sizeof f);
    return f;
}

static inline __attribute__((always_inline)) int32_t int_at(const uint8_t *p, size_t i)
{
    int32_t v;
    memcpy(&v, p + 4 * i, sizeof v);
    return v;
}

#define LOAD_CHAIN(r, p)  __m512 f##r = first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + (r)*ldy);
#define STORE_CHAIN(r, p) _mm512_storeu_ps(y + (r)*ldy, f##r);
#define FROM_ZERO(r, p)   __m512i t##r = _mm512_setzero_si512();
#define FROM_BIAS(r, p)   __m512i t##r = _mm512_set1_epi32(int_at(x + SN_TILE_THIRD, r));
#define FROM_BIAS_16TH(r, p)                                                                       \
    __m512i t##r = _mm512_srai_epi32(_mm512_set1_epi32(int_at(x + SN_TILE_THIRD, r)), 4);
#define DOT(r, p) t##r = dot4(t##r, codes, x + SN_BLOCK * (r) + at);
#define ADD_SCALED(r, p)                                                                           \
    f##r =                                                                                         \
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(t##r),                                                  \
                        _mm512_mul_ps(d, _mm512_set1_ps(float_at(x + SN_TILE_SCALE, r))), f##r);
#define ADD_MIN(r, p)                                                                              \
    f##r = _mm512_fmadd_ps(m, _mm512_set1_ps(float_at(x + SN_TILE_THIRD, r)), f##r);

#define PREFETCH(n_lines)                                                                          \
    for (size_t line = 0; line < (n_lines); line++)                                                \
        _mm_prefetch((const char *)w + SN_PREFETCH_AHEAD + 64 * line, _MM_HINT_T1);

/* Elements 4 * i of 8-bit codes. */
#define BYTES(ROWS, i)                                                                             \
    {                                                                                              \
        enum { at = 4 * (i) };                                                                     \
        const __m512i codes = _mm512_loadu_si512(w + 64 * (i));                                    \
        ROWS(DOT, 0);                                                                              \
    }
/* Elements 8 * i (low halves) and 8 * i + 4 (high halves) of 4-bit codes. */
#define NIBBLES(ROWS, first_code, i)                                                               \
    {                                                                                              \
        const __m512i both = _mm512_loadu_si512(w + (first_code) + 64 * (i));                      \
        {                                                                                          \
            enum { at = 8 * (i) };                                                                 \
            const __m512i codes = _mm512_and_si512(both, low);                                     \
            ROWS(DOT, 0);                                                                          \
        }                                                                                          \
        {                                                                                          \
            enum { at = 8 * (i) + 4 };                                                             \
            const __m512i codes = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);               \
            ROWS(DOT, 0);                                                                          \
        }                                                                                          \
    }

#define PIECE(name, n, block_bytes, n_lines, START, DOTS, FINISH)                                  \
    static void name##_##n(const uint8_t *w, const uint8_t *x, size_t row, size_t n_blocks,        \
                           float *y, size_t ldy, bool first)                                       \
    {                                                                                              \
        (void)row; /* 0: a piece begins with its tile */                                           \
        const __m512i low = _mm512_set1_epi8(15);                                                  \
        (void)low;                                                                                 \
        (void)ldy;                                                                                 \
        ROWS_##n(LOAD_CHAIN, 0);                                                                   \
        for (; n_blocks > 0; n_blocks--, w += (block_bytes), x += SN_TILE_BLOCK_BYTES) {           \
            ROWS_##n(START, 0);                                                                    \
            PREFETCH(n_lines);                                                                     \
            DOTS(ROWS_##n);                                                                        \
            FINISH(ROWS_##n);                                                                      \
        }                                                                                          \
        ROWS_##n(STORE_CHAIN, 0);                                                                  \
    }

#define DOTS_Q4_1(ROWS)                                                                            \
    NIBBLES(ROWS, SN_Q4_1_CODES, 0);                                                               \
    NIBBLES(ROWS, SN_Q4_1_CODES, 1);                                                               \
    NIBBLES(ROWS, SN_Q4_1_CODES, 2);                                                               \
    NIBBLES(ROWS, SN_Q4_1_CODES, 3);
#define FINISH_Q4_1(ROWS)                                                                          \
    const __m512 d = load_halves(w), m = load_halves(w + SN_Q4_1_MIN);                             \
    ROWS(ADD_SCALED, 0);                                                                           \
    ROWS(ADD_MIN, 0);

#define DOTS_Q4_0(ROWS)                                                                            \
    NIBBLES(ROWS, SN_Q4_0_CODES, 0);                                                               \
    NIBBLES(ROWS, SN_Q4_0_CODES, 1);                                                               \
    NIBBLES(ROWS, SN_Q4_0_CODES, 2);                                                               \
    NIBBLES(ROWS, SN_Q4_0_CODES, 3);
#define FINISH_Q4_0(ROWS)                                                                          \
    const __m512 d = load_halves(w);                                                               \
    ROWS(ADD_SCALED, 0);

#define DOTS_Q8_0(ROWS)                                                                            \
    BYTES(ROWS, 0);                                                                                \
    BYTES(ROWS, 1);                                                                                \
    BYTES(ROWS, 2);                                                                                \
    BYTES(ROWS, 3);                                                                                \
    BYTES(ROWS, 4);                                                                                \
    BYTES(ROWS, 5);                                                                                \
    BYTES(ROWS, 6);                                                                                \
    BYTES(ROWS, 7);
#define FINISH_Q8_0(ROWS)                                                                          \
    const __m512 d = load_halves(w + SN_Q8_0_SCALE);                                               \
    ROWS(ADD_SCALED, 0);

#define PIECES(n)                                                                                  \
    PIECE(q4_1, n, SN_Q4_1_BYTES, 5, FROM_ZERO, DOTS_Q4_1, FINISH_Q4_1)                            \
    PIECE(q4_0, n, SN_Q4_0_BYTES, 5, FROM_BIAS_16TH, DOTS_Q4_0, FINISH_Q4_0)                       \
    PIECE(q8_0, n, SN_Q8_0_BYTES, 9, FROM_BIAS, DOTS_Q8_0, FINISH_Q8_0)
PIECES(1)
PIECES(2)
PIECES(3)
PIECES(4)
PIECES(5)
PIECES(6)
PIECES(7)
PIECES(8)

#define TABLE(name) name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8
static const sn_piece_fn q4_1[SN_TILE_ROWS] = {TABLE(q4_1)};
static const sn_piece_fn q4_0[SN_TILE_ROWS] = {TABLE(q4_0)};
static const sn_piece_fn q8_0[SN_TILE_ROWS] = {TABLE(q8_0)};

void sn_gemm_q4_1_avx512(const struct sn_gemm_args *a)
{
    sn_gemm_walk(a, q4_1, SN_TILE_ROWS, SN_Q4_1_BYTES);
}

void sn_gemm_q4_0_avx512(const struct sn_gemm_args *a)
{
    sn_gemm_walk(a, q4_0, SN_TILE_ROWS, SN_Q4_0_BYTES);
}

void sn_gemm_q8_0_avx512(const struct sn_gemm_args *a)
{
    sn_gemm_walk(a, q8_0, SN_TILE_ROWS, SN_Q8_0_BYTES);
}
