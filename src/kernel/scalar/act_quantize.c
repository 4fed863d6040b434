/* Activation block (docs/numerics.md): 32 floats to 8-bit codes of one scale. */
#include "kernel/packed.h"
#include "kernel/scalar/scalar.h"

/* True when one of the 32 is an infinity or NaN: all exponent bits set. */
static bool has_fault(const float *x)
{
    for (size_t i = 0; i < SN_BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        if ((bits & 0x7F800000) == 0x7F800000)
            return true;
    }
    return false;
}

static float largest_magnitude(const float *x)
{
    float m = 0;
    for (size_t i = 0; i < SN_BLOCK; i++)
        m = fabsf(x[i]) > m ? fabsf(x[i]) : m;
    return m;
}

/* codes[i] = rint(x[i] * inverse) within +-127; returns their sum. rintf rounds ties to even here.
 */
static int32_t code_block(const float *x, float inverse, int8_t *codes)
{
    int32_t sum = 0;
    for (size_t i = 0; i < SN_BLOCK; i++) {
        float q = rintf(x[i] * inverse);
        q = q < -127.0f ? -127.0f : q;
        q = q > 127.0f ? 127.0f : q;
        codes[i] = (int8_t)q;
        sum += codes[i];
    }
    return sum;
}

void SCALAR(sn_act_quantize)(const float *x, size_t n_blocks, enum sn_act form, uint8_t *tile,
                             size_t row)
{
    for (size_t b = 0; b < n_blocks; b++, x += SN_BLOCK, tile += SN_TILE_BLOCK_BYTES) {
        int8_t *codes = (int8_t *)tile + row * SN_BLOCK;
        bool fault = has_fault(x);
        float amax = fault ? 0 : largest_magnitude(x), d = 0;
        int32_t sum = 0;
        if (amax < 0x1p-100f) { /* nothing to tell from zero; also the codes of a fault */
            memset(codes, 0, SN_BLOCK);
            d = fault ? NAN : 0.0f;
        } else {
            d = amax / 127.0f;
            sum = code_block(x, 127.0f / amax, codes);
        }
        float s = d * (float)sum;
        int32_t bias = -128 * sum;
        memcpy(tile + SN_TILE_SCALE + 4 * row, &d, sizeof d);
        if (form == SN_ACT_Q8_SUM)
            memcpy(tile + SN_TILE_THIRD + 4 * row, &s, sizeof s);
        else
            memcpy(tile + SN_TILE_THIRD + 4 * row, &bias, sizeof bias);
    }
}
