#include "tensor/traits.h"

/* Block sizes: GGUF specification, "ggml_type", and the block structures of ggml's format description. */
static const struct sn_traits table[] = {
    [SENNIT_F32] = {"F32", 1, 4, true},         [SENNIT_F16] = {"F16", 1, 2, true},
    [SENNIT_Q4_0] = {"Q4_0", 32, 18, true},     [SENNIT_Q4_1] = {"Q4_1", 32, 20, true},
    [SENNIT_Q5_0] = {"Q5_0", 32, 22, false},    [SENNIT_Q5_1] = {"Q5_1", 32, 24, false},
    [SENNIT_Q8_0] = {"Q8_0", 32, 34, true},     [SENNIT_Q8_1] = {"Q8_1", 32, 36, false},
    [SENNIT_Q2_K] = {"Q2_K", 256, 84, false},   [SENNIT_Q3_K] = {"Q3_K", 256, 110, false},
    [SENNIT_Q4_K] = {"Q4_K", 256, 144, false},  [SENNIT_Q5_K] = {"Q5_K", 256, 176, false},
    [SENNIT_Q6_K] = {"Q6_K", 256, 210, false},  [SENNIT_Q8_K] = {"Q8_K", 256, 292, false},
    [SENNIT_IQ2_XXS] = {"IQ2_XXS", 256, 66, false}, [SENNIT_IQ2_XS] = {"IQ2_XS", 256, 74, false},
    [SENNIT_IQ3_XXS] = {"IQ3_XXS", 256, 98, false}, [SENNIT_IQ1_S] = {"IQ1_S", 256, 50, false},
    [SENNIT_IQ4_NL] = {"IQ4_NL", 32, 18, false},    [SENNIT_IQ3_S] = {"IQ3_S", 256, 110, false},
    [SENNIT_IQ2_S] = {"IQ2_S", 256, 82, false},     [SENNIT_IQ4_XS] = {"IQ4_XS", 256, 136, false},
    [SENNIT_I8] = {"I8", 1, 1, false},          [SENNIT_I16] = {"I16", 1, 2, false},
    [SENNIT_I32] = {"I32", 1, 4, false},        [SENNIT_I64] = {"I64", 1, 8, false},
    [SENNIT_F64] = {"F64", 1, 8, false},        [SENNIT_IQ1_M] = {"IQ1_M", 256, 56, false},
    [SENNIT_BF16] = {"BF16", 1, 2, true},       [SENNIT_TQ1_0] = {"TQ1_0", 256, 54, false},
    [SENNIT_TQ2_0] = {"TQ2_0", 256, 66, false}, [SENNIT_MXFP4] = {"MXFP4", 32, 17, false},
};

const struct sn_traits *sn_traits(uint32_t type)
{
    return type < SN_ARRAY_LEN(table) && table[type].name ? &table[type] : NULL;
}

const char *sennit_type_name(sennit_type type)
{
    const struct sn_traits *t = sn_traits((uint32_t)type);
    return t ? t->name : "unknown";
}

size_t sn_row_bytes(uint32_t type, size_t n)
{
    const struct sn_traits *t = sn_traits(type);
    size_t bytes;
    if (!t || n % t->block_len != 0 || sn_mul_overflows(n / t->block_len, t->block_bytes, &bytes))
        return 0;
    return bytes;
}

static float bits_to_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t f32_to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float sn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023u;
    if (exponent == 31)
        return bits_to_f32(sign | 0x7F800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    if (exponent != 0)
        return bits_to_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    return bits_to_f32(f32_to_bits((float)mantissa * 0x1p-24f) | sign);
}

uint16_t sn_f32_to_f16(float f)
{
    uint32_t u = f32_to_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF;
    if (a > 0x7F800000)
        return (uint16_t)(sign | 0x7E00 | (a >> 13 & 0x3FF));
    if (a >= 0x477FF000)
        return (uint16_t)(sign | 0x7C00);
    if (a < 0x38800000) { /* subnormal result, or zero */
        if (a < 0x33000000)
            return (uint16_t)sign;
        uint32_t m = (a & 0x7FFFFF) | 0x800000, shift = 126 - (a >> 23), r = m >> shift;
        uint32_t rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
        if (rest > half || (rest == half && (r & 1)))
            r++;
        return (uint16_t)(sign | r);
    }
    uint32_t r = a - 0x38000000;
    r += 0xFFF + (r >> 13 & 1);
    return (uint16_t)(sign | r >> 13);
}

uint16_t sn_f32_to_f16_sat(float f)
{
    f = f < -65504.0f ? -65504.0f : f;
    f = f > 65504.0f ? 65504.0f : f;
    return sn_f32_to_f16(f);
}

float sn_bf16_to_f32(uint16_t h) { return bits_to_f32((uint32_t)h << 16); }

uint16_t sn_f32_to_bf16(float f)
{
    uint32_t u = f32_to_bits(f);
    if ((u & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

static uint16_t load16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

/* Q4_0, Q4_1: byte j of the codes holds element j in its low half and element j + 16 in its high half. */
static void expand_q4(const uint8_t *b, size_t n, bool with_min, float *dst)
{
    size_t step = with_min ? 20 : 18;
    for (size_t i = 0; i < n; i += 32, b += step) {
        float d = sn_f16_to_f32(load16(b)), m = with_min ? sn_f16_to_f32(load16(b + 2)) : 0;
        const uint8_t *q = b + (with_min ? 4 : 2);
        for (size_t j = 0; j < 16; j++) {
            int lo = q[j] & 15, hi = q[j] >> 4;
            dst[i + j] = with_min ? (float)lo * d + m : (float)(lo - 8) * d;
            dst[i + j + 16] = with_min ? (float)hi * d + m : (float)(hi - 8) * d;
        }
    }
}

static void expand_q8_0(const uint8_t *b, size_t n, float *dst)
{
    for (size_t i = 0; i < n; i += 32, b += 34) {
        float d = sn_f16_to_f32(load16(b));
        for (size_t j = 0; j < 32; j++)
            dst[i + j] = (float)(int8_t)b[2 + j] * d;
    }
}

bool sn_dequantize_row(uint32_t type, const void *src, size_t n, float *dst)
{
    const uint8_t *b = src;
    switch (type) {
    case SENNIT_F32: memcpy(dst, src, n * sizeof *dst); return true;
    case SENNIT_F16:
        for (size_t i = 0; i < n; i++)
            dst[i] = sn_f16_to_f32(load16(b + 2 * i));
        return true;
    case SENNIT_BF16:
        for (size_t i = 0; i < n; i++)
            dst[i] = sn_bf16_to_f32(load16(b + 2 * i));
        return true;
    case SENNIT_Q4_0: expand_q4(b, n, false, dst); return true;
    case SENNIT_Q4_1: expand_q4(b, n, true, dst); return true;
    case SENNIT_Q8_0: expand_q8_0(b, n, dst); return true;
    default: return false;
    }
}
