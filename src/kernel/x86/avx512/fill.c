#include "kernel/slots.h"

/* What this level has. */
void sn_kernels_fill_avx512(struct sn_kernels *k)
{
#define FILL(slot) k->slot = sn_##slot##_avx512, k->variant[SN_K_##slot] = "avx512"
    FILL(act_quantize);
    FILL(gemm_f32);
    FILL(gemm_f16);
    FILL(gemm_bf16);
    FILL(gemm_q8_0);
    FILL(gemm_q4_0);
    FILL(gemm_q4_1);
    FILL(rms_norm);
    FILL(rope_pair);
    FILL(rope_half);
    FILL(silu_mul);
    FILL(gelu_tanh_mul);
    FILL(gelu_erf_mul);
    FILL(add);
    FILL(soft_cap);
    FILL(scale);
    FILL(store_f32);
    FILL(store_f16);
    FILL(store_bf16);
    FILL(attn_f32);
    FILL(attn_f16);
    FILL(attn_bf16);
    FILL(attn_latent8);
    FILL(index_f32);
    FILL(index_f16);
    FILL(attn_affine);
    FILL(code_query);
    FILL(affine_encode);
    FILL(turbo_query);
    FILL(turbo_keys);
    FILL(turbo_values);
    FILL(turbo_rotate);
    FILL(attn_turbo);
    FILL(attn_merge);
    FILL(attn_finish);
    FILL(max);
    FILL(sum_exp);
    FILL(all_finite);
    FILL(top_k);
    FILL(exp);
    FILL(tanh);
    FILL(erf);
    FILL(conv);
    FILL(l2_norm);
    FILL(delta_step);
    FILL(ssm_step);
#undef FILL
}
