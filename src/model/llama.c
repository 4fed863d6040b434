/* The Llama graph: Llama 1-3, Mistral, SmolLM and their kin as GGUF files name them ("llama").
 *
 *   h = x + o(attend(rope(q(norm(x))), rope(k(norm(x))), v(norm(x))))
 *   x = h + down(silu(gate(norm(h))) * up(norm(h)))
 *
 * GGUF converters permute the rows of q and k so that RoPE turns adjacent pairs (2i, 2i + 1).
 * Sources: Touvron et al., arXiv 2302.13971; GGUF specification, "llama" keys. */
#include "model/forward.h"
#include "model/hparams.h"
#include "model/loader.h"

#include <stdio.h>

static sennit_status load_layer(struct sennit_model *m, struct sn_loader *ld, uint32_t i,
                                struct sennit_error *err)
{
    const struct sn_hparams *hp = &m->hp;
    struct sn_layer *l = &m->layers[i];
    size_t d = hp->d_model, nq = (size_t)hp->n_heads * hp->d_k,
           nk = (size_t)hp->n_kv_heads * hp->d_k, nv = (size_t)hp->n_kv_heads * hp->d_v,
           no = (size_t)hp->n_heads * hp->d_v;
    char name[96];
#define NAME(suffix) (snprintf(name, sizeof name, "blk.%u.%s.weight", i, suffix), name)
    SN_TRY(sn_load_vector(ld, NAME("attn_norm"), d, &l->attn_norm, err));
    SN_TRY(sn_load_matrix(ld, NAME("attn_q"), d, nq, &l->q, err));
    SN_TRY(sn_load_matrix(ld, NAME("attn_k"), d, nk, &l->k, err));
    SN_TRY(sn_load_matrix(ld, NAME("attn_v"), d, nv, &l->v, err));
    SN_TRY(sn_load_matrix(ld, NAME("attn_output"), no, d, &l->o, err));
    SN_TRY(sn_load_vector(ld, NAME("ffn_norm"), d, &l->ffn_norm, err));
    SN_TRY(sn_load_matrix(ld, NAME("ffn_gate"), d, hp->d_ff, &l->gate, err));
    SN_TRY(sn_load_matrix(ld, NAME("ffn_up"), d, hp->d_ff, &l->up, err));
    SN_TRY(sn_load_matrix(ld, NAME("ffn_down"), hp->d_ff, d, &l->down, err));
#undef NAME
    return SENNIT_OK;
}

static sennit_status load(struct sennit_model *m, struct sn_loader *ld, struct sennit_error *err)
{
    SN_TRY(sn_hparams_read(m, ld, "llama", err));
    struct sn_hparams *hp = &m->hp;
    SN_TRY(sn_load_matrix(ld, "token_embd.weight", hp->d_model, hp->n_vocab, &m->embed, err));
    SN_TRY(sn_load_vector(ld, "output_norm.weight", hp->d_model, &m->out_norm, err));
    m->head = m->embed; /* tied, unless the file has an output of its own */
    if (sn_loader_has(ld, "output.weight"))
        SN_TRY(sn_load_matrix(ld, "output.weight", hp->d_model, hp->n_vocab, &m->head, err));
    for (uint32_t i = 0; i < hp->n_layers; i++)
        SN_TRY(load_layer(m, ld, i, err));
    return SENNIT_OK;
}

static void forward(struct sn_forward *f, struct sn_lane *lane)
{
    const struct sennit_model *m = f->m;
    sn_part_embed(f, lane); /* x [n_tokens, d_model] */
    for (uint32_t i = 0; i < m->hp.n_layers; i++) {
        const struct sn_layer *l = &m->layers[i];
        uint32_t qkv_forms = sn_form_bit(&l->q) | sn_form_bit(&l->k) | sn_form_bit(&l->v);
        const struct sn_acts *in = sn_part_norm(f, lane, l->attn_norm, qkv_forms);
        sn_part_qkv(f, lane, i, in,
                    false);         /* q [n_tokens, n_heads, d_k]; keys and values to the cache */
        sn_part_attend(f, lane, i); /* attn [n_tokens, n_heads, d_v] */
        if (i + 1 == m->hp.n_layers)
            sn_part_narrow(f, lane);      /* x [n_logits, d_model] from here on */
        sn_part_attn_out(f, lane, &l->o); /* x += o(attn) */
        in = sn_part_norm(f, lane, l->ffn_norm, sn_form_bit(&l->gate) | sn_form_bit(&l->up));
        sn_part_mlp(f, lane, l, in, SN_K_silu_mul); /* x += down(silu(gate) * up) */
    }
    sn_part_head(f, lane); /* logits [n_logits, n_vocab] */
}

const struct sn_arch sn_arch_llama = {.name = "llama", .load = load, .forward = forward};
