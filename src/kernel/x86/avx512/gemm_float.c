/* Float products with AVX-512: one lane per column and one fma chain per output, k ascending. A
 * chain alone waits for the latency of its fma, so many run side by side: 8 rows of 2 panels, or up
 * to 4 rows of 4 panels. */
#include <immintrin.h>

#include "kernel/packed.h"
#include "kernel/slots.h"
#include "kernel/x86/rows.h"

static inline __attribute__((always_inline)) __m512 load_f32(const uint8_t *p)
{
    return _mm512_loadu_ps(p);
}

static inline __attribute__((always_inline)) __m512 load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline __attribute__((always_inline)) __m512 load_bf16(const uint8_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* Some panels for some rows: x f32 [rows][ld], panels panel_bytes apart. */
typedef void (*piece_fn)(const uint8_t *w, size_t panel_bytes, const float *x, size_t ld,
                         size_t n_in, float *y, size_t ldy);

#define ZERO(r, p)      __m512 f##r##p = _mm512_setzero_ps();
#define ROW_VALUE(r, p) const __m512 x##r = _mm512_set1_ps(x[(r)*ld + k]);
#define ADD(r, p)       f##r##p = _mm512_fmadd_ps(x##r, w##p, f##r##p);
#define STORE(r, p)     _mm512_storeu_ps(y + (r)*ldy + 16 * (p), f##r##p);

#define PIECE(type, size, n, n_panels)                                                             \
    static void type##_##n##_##n_panels(const uint8_t *w, size_t panel_bytes, const float *x,      \
                                        size_t ld, size_t n_in, float *y, size_t ldy)              \
    {                                                                                              \
        (void)panel_bytes;                                                                         \
        (void)ld;                                                                                  \
        (void)ldy;                                                                                 \
        LANES_##n_panels(ROWS_##n, ZERO);                                                          \
        for (size_t k = 0; k < n_in; k++, w += 16 * (size)) {                                      \
            EACH_##n_panels(LOAD_##type);                                                          \
            ROWS_##n(ROW_VALUE, 0);                                                                \
            LANES_##n_panels(ROWS_##n, ADD);                                                       \
        }                                                                                          \
        LANES_##n_panels(ROWS_##n, STORE);                                                         \
    }

#define LOAD_AHEAD(load, p)                                                                        \
    const __m512 w##p = load(w + (p)*panel_bytes);                                                 \
    _mm_prefetch((const char *)w + (p)*panel_bytes + SN_PREFETCH_AHEAD, _MM_HINT_T1);
#define LOAD_f32(p)  LOAD_AHEAD(load_f32, p)
#define LOAD_f16(p)  LOAD_AHEAD(load_f16, p)
#define LOAD_bf16(p) LOAD_AHEAD(load_bf16, p)

#define PIECES_OF(n, n_panels)                                                                     \
    PIECE(f32, 4, n, n_panels) PIECE(f16, 2, n, n_panels) PIECE(bf16, 2, n, n_panels)
#define PIECES(n_panels)                                                                           \
    PIECES_OF(1, n_panels)                                                                         \
    PIECES_OF(2, n_panels) PIECES_OF(3, n_panels) PIECES_OF(4, n_panels)
#define PIECES_5_TO_8(n_panels)                                                                    \
    PIECES_OF(5, n_panels)                                                                         \
    PIECES_OF(6, n_panels) PIECES_OF(7, n_panels) PIECES_OF(8, n_panels)
PIECES(1)
PIECES(2)
PIECES(4)
PIECES_5_TO_8(1)
PIECES_5_TO_8(2)

/* [log2 of the panels][rows - 1]; 4 panels of 5 or more rows would not fit the registers. */
enum { WIDTHS = 3 };
#define FOUR(type, p)  type##_1_##p, type##_2_##p, type##_3_##p, type##_4_##p
#define EIGHT(type, p) FOUR(type, p), type##_5_##p, type##_6_##p, type##_7_##p, type##_8_##p
#define TABLE(type)                                                                                \
    {EIGHT(type, 1)}, {EIGHT(type, 2)},                                                            \
    {                                                                                              \
        FOUR(type, 4)                                                                              \
    }
static const piece_fn f32[WIDTHS][SN_TILE_ROWS] = {TABLE(f32)};
static const piece_fn f16[WIDTHS][SN_TILE_ROWS] = {TABLE(f16)};
static const piece_fn bf16[WIDTHS][SN_TILE_ROWS] = {TABLE(bf16)};

static size_t width_for(size_t n_rows, size_t n_panels)
{
    if (n_panels >= 4 && n_rows <= 4)
        return 2;
    return n_panels >= 2 ? 1 : 0;
}

static void gemm(const struct sn_gemm_args *a, const piece_fn pieces[WIDTHS][SN_TILE_ROWS],
                 size_t size)
{
    size_t n_in = a->w->n_in, ld = sn_act_ld(n_in), panel_bytes = n_in * SN_PANEL * size;
    const float *x = (const float *)a->x->data + a->row * ld;
    const uint8_t *w = (const uint8_t *)a->w->data + a->panel * panel_bytes;
    for (size_t p = 0; p < a->n_panels;) {
        size_t width = width_for(a->n_rows, a->n_panels - p);
        for (size_t r = 0; r < a->n_rows; r += SN_TILE_ROWS)
            pieces[width][sn_min_size(SN_TILE_ROWS, a->n_rows - r) - 1](
                w + p * panel_bytes, panel_bytes, x + r * ld, ld, n_in,
                a->y + r * a->ldy + p * SN_PANEL, a->ldy);
        p += (size_t)1 << width;
    }
}

void sn_gemm_f32_avx512(const struct sn_gemm_args *a)
{
    gemm(a, f32, 4);
}
void sn_gemm_f16_avx512(const struct sn_gemm_args *a)
{
    gemm(a, f16, 2);
}
void sn_gemm_bf16_avx512(const struct sn_gemm_args *a)
{
    gemm(a, bf16, 2);
}
