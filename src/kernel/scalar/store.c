/* The specification of stores into cache types. */
#include "kernel/scalar/scalar.h"
#include "tensor/traits.h"

void SCALAR(sn_store_f32)(const float *x, size_t n, void *dst, size_t stride)
{
    float *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i * stride] = x[i];
}

void SCALAR(sn_store_f16)(const float *x, size_t n, void *dst, size_t stride)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i * stride] = sn_f32_to_f16_sat(x[i]);
}

void SCALAR(sn_store_bf16)(const float *x, size_t n, void *dst, size_t stride)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i * stride] = sn_f32_to_bf16(x[i]);
}
