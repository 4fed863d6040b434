/* Float products with AVX2: one lane per column (a panel is two vectors) and one fma chain per
 * output, k ascending. A chain alone waits for the latency of its fma, so many run side by side, as
 * many as 16 registers hold. */
#include <immintrin.h>

#include "kernel/packed.h"
#include "kernel/slots.h"
#include "kernel/x86/rows.h"

static inline __attribute__((always_inline)) __m256 load_f32(const uint8_t *p)
{
    return _mm256_loadu_ps((const float *)(const void *)p);
}

static inline __attribute__((always_inline)) __m256 load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline __attribute__((always_inline)) __m256 load_bf16(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* Some vectors of 8 columns for some rows: x f32 [rows][ld], panels panel_bytes apart. */
typedef void (*piece_fn)(const uint8_t *w, size_t panel_bytes, const float *x, size_t ld,
                         size_t n_in, float *y, size_t ldy);

#define ZERO(r, v)      __m256 f##r##v = _mm256_setzero_ps();
#define ADD(r, v)       f##r##v = _mm256_fmadd_ps(x##r, w##v, f##r##v);
#define ROW_VALUE(r, v) const __m256 x##r = _mm256_set1_ps(x[(r)*ld + k]);
#define STORE(r, v)     _mm256_storeu_ps(y + (r)*ldy + 8 * (v), f##r##v);

#define PIECE(type, size, n, n_vectors)                                                            \
    static void type##_##n##_##n_vectors(const uint8_t *w, size_t panel_bytes, const float *x,     \
                                         size_t ld, size_t n_in, float *y, size_t ldy)             \
    {                                                                                              \
        (void)panel_bytes;                                                                         \
        (void)ld;                                                                                  \
        (void)ldy;                                                                                 \
        LANES_##n_vectors(ROWS_##n, ZERO);                                                         \
        for (size_t k = 0; k < n_in; k++, w += 16 * (size)) {                                      \
            EACH_##n_vectors(LOAD_##type);                                                         \
            ROWS_##n(ROW_VALUE, 0);                                                                \
            LANES_##n_vectors(ROWS_##n, ADD);                                                      \
        }                                                                                          \
        LANES_##n_vectors(ROWS_##n, STORE);                                                        \
    }

/* Vector v is half v % 2 of panel v / 2; the first half's load asks for the line ahead. */
#define LOAD_VECTOR(load, size, v)                                                                 \
    const __m256 w##v = load(w + (v) / 2 * panel_bytes + (v) % 2 * (8 * (size)));                  \
    if ((v) % 2 == 0)                                                                              \
        _mm_prefetch((const char *)w + (v) / 2 * panel_bytes + SN_PREFETCH_AHEAD, _MM_HINT_T1);
#define LOAD_f32(v)  LOAD_VECTOR(load_f32, 4, v)
#define LOAD_f16(v)  LOAD_VECTOR(load_f16, 2, v)
#define LOAD_bf16(v) LOAD_VECTOR(load_bf16, 2, v)

#define PIECES(n, n_vectors)                                                                       \
    PIECE(f32, 4, n, n_vectors) PIECE(f16, 2, n, n_vectors) PIECE(bf16, 2, n, n_vectors)
PIECES(1, 8)
PIECES(1, 4)
PIECES(1, 2)
PIECES(2, 4)
PIECES(2, 2)
PIECES(3, 2)
PIECES(4, 2)

/* [rows - 1][log2 of the panels]; NULL where the registers would not do. */
enum { MAX_ROWS = 4, WIDTHS = 3 };
#define TABLE(type)                                                                                \
    {type##_1_2, type##_1_4, type##_1_8}, {type##_2_2, type##_2_4}, {type##_3_2},                  \
    {                                                                                              \
        type##_4_2                                                                                 \
    }
static const piece_fn f32[MAX_ROWS][WIDTHS] = {TABLE(f32)};
static const piece_fn f16[MAX_ROWS][WIDTHS] = {TABLE(f16)};
static const piece_fn bf16[MAX_ROWS][WIDTHS] = {TABLE(bf16)};

static size_t width_for(size_t n_rows, size_t n_panels)
{
    if (n_panels >= 4 && n_rows == 1)
        return 2;
    return n_panels >= 2 && n_rows <= 2 ? 1 : 0;
}

static void gemm(const struct sn_gemm_args *a, const piece_fn pieces[MAX_ROWS][WIDTHS], size_t size)
{
    size_t n_in = a->w->n_in, ld = sn_act_ld(n_in), panel_bytes = n_in * SN_PANEL * size;
    const float *x = (const float *)a->x->data + a->row * ld;
    const uint8_t *w = (const uint8_t *)a->w->data + a->panel * panel_bytes;
    for (size_t p = 0; p < a->n_panels;) {
        size_t width = width_for(a->n_rows, a->n_panels - p);
        for (size_t r = 0; r < a->n_rows; r += MAX_ROWS)
            pieces[sn_min_size(MAX_ROWS, a->n_rows - r) - 1][width](
                w + p * panel_bytes, panel_bytes, x + r * ld, ld, n_in,
                a->y + r * a->ldy + p * SN_PANEL, a->ldy);
        p += (size_t)1 << width;
    }
}

void sn_gemm_f32_avx2(const struct sn_gemm_args *a)
{
    gemm(a, f32, 4);
}
void sn_gemm_f16_avx2(const struct sn_gemm_args *a)
{
    gemm(a, f16, 2);
}
void sn_gemm_bf16_avx2(const struct sn_gemm_args *a)
{
    gemm(a, bf16, 2);
}
