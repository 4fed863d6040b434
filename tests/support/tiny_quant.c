/* Rounds floats into the block formats, in plain code: what the formats' common quantizer does,
 * without tuning. */
#include "support/tiny_model.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/traits.h"

enum { BLOCK = 32 };

size_t tiny_type_bytes(sennit_type type, size_t n)
{
    return sn_row_bytes((uint32_t)type, n);
}

static uint8_t *put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v & 255);
    p[1] = (uint8_t)(v >> 8);
    return p + 2;
}

static int round_clamp(float x, int lo, int hi)
{
    int v = (int)(x < 0 ? x - 0.5f
                        : x + 0.5f); /* |x| is small: the callers divide by the block's maximum */
    return v < lo ? lo : v > hi ? hi : v;
}

static float abs_f(float x)
{
    return x < 0 ? -x : x;
}

/* Q8_0: f16 d = amax/127, then 32 signed codes. */
static uint8_t *block_q8_0(const float *x, uint8_t *p)
{
    float amax = 0;
    for (int i = 0; i < BLOCK; i++)
        amax = abs_f(x[i]) > amax ? abs_f(x[i]) : amax;
    float d = amax / 127.0f, inv = d > 0 ? 1.0f / d : 0;
    p = put16(p, sn_f32_to_f16(d));
    for (int i = 0; i < BLOCK; i++)
        *p++ = (uint8_t)(int8_t)round_clamp(x[i] * inv, -127, 127);
    return p;
}

/* Byte j holds the code of element j low and of element j + 16 high. */
static uint8_t *put_nibbles(uint8_t *p, const int *codes)
{
    for (int j = 0; j < BLOCK / 2; j++)
        *p++ = (uint8_t)(codes[j] | codes[j + BLOCK / 2] << 4);
    return p;
}

/* Q4_0: f16 d = (the value of largest magnitude)/-8, codes 0..15 stand for (code - 8)·d. */
static uint8_t *block_q4_0(const float *x, uint8_t *p)
{
    float most = 0;
    for (int i = 0; i < BLOCK; i++)
        most = abs_f(x[i]) > abs_f(most) ? x[i] : most;
    float d = most / -8.0f, inv = most < 0 || most > 0 ? 1.0f / d : 0;
    int codes[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        codes[i] = round_clamp(x[i] * inv + 8.0f, 0, 15);
    return put_nibbles(put16(p, sn_f32_to_f16(d)), codes);
}

/* Q4_1: f16 d = (max - min)/15 and f16 m = min, codes stand for code·d + m. */
static uint8_t *block_q4_1(const float *x, uint8_t *p)
{
    float lo = x[0], hi = x[0];
    for (int i = 1; i < BLOCK; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    float d = (hi - lo) / 15.0f, inv = d > 0 ? 1.0f / d : 0;
    int codes[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        codes[i] = round_clamp((x[i] - lo) * inv, 0, 15);
    p = put16(put16(p, sn_f32_to_f16(d)), sn_f32_to_f16(lo));
    return put_nibbles(p, codes);
}

void tiny_quantize(sennit_type type, const float *src, size_t n, void *dst)
{
    uint8_t *p = dst;
    size_t step = sn_traits((uint32_t)type)->block_len;
    for (size_t i = 0; i < n; i += step) {
        switch (type) {
        case SENNIT_F32:
            memcpy(p, &src[i], 4);
            p += 4;
            break;
        case SENNIT_F16:
            p = put16(p, sn_f32_to_f16(src[i]));
            break;
        case SENNIT_BF16:
            p = put16(p, sn_f32_to_bf16(src[i]));
            break;
        case SENNIT_Q8_0:
            p = block_q8_0(src + i, p);
            break;
        case SENNIT_Q4_0:
            p = block_q4_0(src + i, p);
            break;
        case SENNIT_Q4_1:
            p = block_q4_1(src + i, p);
            break;
        default:
            abort();
        }
    }
}
