/* XXH3-64 of what every slot of the specification gives for seed 1 and the quick cases, NaN made
 * canonical. The same on every machine, compiler and build type. A change of an order of operations
 * changes it, and raises SENNIT_NUMERICS; `kcheck --print-golden` prints the table. */
#ifndef SN_KCHECK_GOLDEN_H
#define SN_KCHECK_GOLDEN_H

static const uint64_t kcheck_golden[SN_K_COUNT] = {
    [SN_K_act_quantize] = 0x5E3197BCAB874074, [SN_K_gemm_f32] = 0x888428FA16A86CEA,
    [SN_K_gemm_f16] = 0xB32C6C6532B224A5,     [SN_K_gemm_bf16] = 0xFB85A81A57FB047D,
    [SN_K_gemm_q8_0] = 0xB6DDCFE9DB98B8B4,    [SN_K_gemm_q4_0] = 0x43B2E41AC1F265EE,
    [SN_K_gemm_q4_1] = 0x2E5B666ADC0640BC,    [SN_K_rms_norm] = 0x620F8BF58AB89A50,
    [SN_K_rope_pair] = 0x3DEBA2A566C0284F,    [SN_K_rope_half] = 0x683868D49B731D6C,
    [SN_K_silu_mul] = 0x0BD70CD55FF82834,     [SN_K_gelu_tanh_mul] = 0x6C367C3EA88EFB63,
    [SN_K_gelu_erf_mul] = 0x43376E37D80880B6, [SN_K_add] = 0xA26104CD22EA97D3,
    [SN_K_soft_cap] = 0x67416084727300F7,     [SN_K_scale] = 0x503459E358F2EB25,
    [SN_K_store_f32] = 0xFDE41A2984CAF469,    [SN_K_store_f16] = 0x1EA76CBB1F7FA40D,
    [SN_K_store_bf16] = 0xDA79395E38FDA65C,   [SN_K_attn_f32] = 0x981B8A4A2CA6BBD4,
    [SN_K_attn_f16] = 0x0B1F54B56EDCB45E,     [SN_K_attn_bf16] = 0xB417E7C949D19750,
    [SN_K_attn_merge] = 0xDDE3094C38B50806,   [SN_K_attn_finish] = 0x8F68366BE52F5B99,
    [SN_K_max] = 0x72D6A3741C3E9898,          [SN_K_sum_exp] = 0xAEAB46DF65F464E5,
    [SN_K_all_finite] = 0x0FBA5822F78A8CD8,   [SN_K_top_k] = 0x324C056522FEE137,
    [SN_K_exp] = 0xD394A981F149B4E1,          [SN_K_tanh] = 0x657334D1DDDEF346,
    [SN_K_erf] = 0x3D58C11E18AF5F4F,          [SN_K_attn_latent8] = 0xF1BC2CAEA27F4139,
    [SN_K_index_f32] = 0xB295E0B8880CCDD2,    [SN_K_index_f16] = 0x8A7D84FC4A3A04EC,
    [SN_K_attn_affine] = 0xC98B0F5D0CC11742,  [SN_K_code_query] = 0xFDA6209E8E0EF192,
    [SN_K_affine_encode] = 0xEB9B3AE025CFCDE7,
    [SN_K_conv] = 0xDFF2D455B734611C,         [SN_K_l2_norm] = 0x0855EB1EAB7794C1,
    [SN_K_delta_step] = 0x4A45DBC40725F1D6,   [SN_K_ssm_step] = 0x161F313D43EE3D7C,
    [SN_K_turbo_query] = 0xE70D67FFBA5896DF,  [SN_K_turbo_keys] = 0xA1FE6F8853EBB9BB,
    [SN_K_turbo_values] = 0x446BEB1D40220933, [SN_K_turbo_rotate] = 0x2C8D943E5620981D,
    [SN_K_attn_turbo] = 0xAA83740EFDF3FED4,
};

#endif
