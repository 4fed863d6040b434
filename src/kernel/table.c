#include "kernel/kernel.h"

#if defined(__x86_64__)
#define X86 1
#endif

sennit_status sn_kernels_init(struct sn_kernels *k, enum sn_isa isa, const struct sn_cpu *cpu,
                              struct sennit_error *err)
{
    memset(k, 0, sizeof *k);
    if ((unsigned)isa >= SN_ISA_COUNT || !sn_isa_available(cpu, isa))
        return sn_fail(err, SENNIT_UNSUPPORTED,
                       "this CPU does not have the instruction-set level '%s'; its best is '%s'",
                       sn_isa_name(isa), sn_isa_name(sn_isa_best(cpu)));
    k->isa = isa;
    sn_kernels_fill_scalar(k);
#ifdef X86
    if (cpu->fma)
        sn_kernels_fill_scalar_fma(k);
    if (isa >= SN_ISA_AVX2 && isa <= SN_ISA_AVX512)
        sn_kernels_fill_avx2(k);
    if (isa == SN_ISA_AVX512)
        sn_kernels_fill_avx512(k);
#endif
    return SENNIT_OK;
}

const char *sn_kernel_name(enum sn_kernel_id id)
{
    static const char *const names[SN_K_COUNT] = {
#define SN_KERNEL(slot) #slot,
#include "kernel/kernel.list"
#undef SN_KERNEL
    };
    return (unsigned)id < SN_K_COUNT ? names[id] : "unknown";
}

enum sn_kernel_id sn_kernel_gemm_id(sennit_type type)
{
    switch (type) {
    case SENNIT_F32:
        return SN_K_gemm_f32;
    case SENNIT_F16:
        return SN_K_gemm_f16;
    case SENNIT_BF16:
        return SN_K_gemm_bf16;
    case SENNIT_Q8_0:
        return SN_K_gemm_q8_0;
    case SENNIT_Q4_0:
        return SN_K_gemm_q4_0;
    case SENNIT_Q4_1:
        return SN_K_gemm_q4_1;
    default:
        return SN_K_COUNT;
    }
}

sn_gemm_fn sn_kernels_gemm(const struct sn_kernels *k, sennit_type type)
{
    switch (sn_kernel_gemm_id(type)) {
    case SN_K_gemm_f32:
        return k->gemm_f32;
    case SN_K_gemm_f16:
        return k->gemm_f16;
    case SN_K_gemm_bf16:
        return k->gemm_bf16;
    case SN_K_gemm_q8_0:
        return k->gemm_q8_0;
    case SN_K_gemm_q4_0:
        return k->gemm_q4_0;
    case SN_K_gemm_q4_1:
        return k->gemm_q4_1;
    default:
        return NULL;
    }
}

enum sn_kernel_id sn_kernel_attn_id(sennit_type kv_type)
{
    switch (kv_type) {
    case SENNIT_F32:
        return SN_K_attn_f32;
    case SENNIT_F16:
        return SN_K_attn_f16;
    case SENNIT_BF16:
        return SN_K_attn_bf16;
    default:
        return SN_K_COUNT;
    }
}

/* One K and one V chunk as f32, and a row of 64 weights per query, each part a whole number of
 * cache lines. */
size_t sn_attn_scratch_bytes(size_t n_q, size_t d_k, size_t d_v)
{
    return 64 * sizeof(float) * (d_k + d_v + n_q);
}
