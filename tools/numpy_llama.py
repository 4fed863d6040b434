"""A Llama forward in double precision and plain numpy: straight from the formulas, on the GGUF file's own
order of rows. It checks the transformers reference, and can be made wrong on purpose in the ways such
code usually is, or rounded as the engine rounds."""
import numpy as np

# name -> what is wrong. Each must be told apart from the right answer by a test of the engine.
WRONG = {
    "rope_half_split": "RoPE turns element i with i + d/2 instead of adjacent pairs",
    "rope_base_x10": "ten times the RoPE base",
    "rope_queries_only": "RoPE is not applied to the keys",
    "eps_x100": "a hundred times the norm's epsilon",
    "gate_up_swapped": "silu(up) * gate instead of silu(gate) * up",
    "gelu": "GELU (tanh form) in place of SiLU",
    "no_score_scale": "scores are not divided by sqrt(head_dim)",
    "kv_head_modulo": "query head i reads KV head i mod n_kv_heads, not i / group",
    "no_final_norm_weight": "the last norm's weight is left out",
    "residual_of_normed": "the residual is the normed input, not the input",
    "no_causal_mask": "every position sees the whole text",
    "mask_off_by_one": "a position does not see itself (except the first)",
}


def applies(variant, file):
    """kv_head_modulo is right by accident when there is one KV head or one per query head."""
    return variant != "kv_head_modulo" or 1 < file.n_kv_heads < file.n_heads


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def rope(x, base, half_split):
    """x: [n, heads, d], positions 0 .. n-1."""
    n, _, d = x.shape
    angle = np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    out = np.empty_like(x)
    first, second = ((slice(0, d // 2), slice(d // 2, d)) if half_split
                     else (slice(0, d, 2), slice(1, d, 2)))
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def round_activations(x):
    """Blocks of 32: scale amax/127, codes rounded to nearest even; what 8-bit activations lose."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    amax = np.abs(blocks).max(-1, keepdims=True)
    d = np.where(amax > 0, amax / 127, 1)
    return (np.clip(np.rint(blocks / d), -127, 127) * d).reshape(x.shape)


def causal_mask(n, variant):
    if variant == "no_causal_mask":
        return np.ones((n, n), bool)
    mask = np.tril(np.ones((n, n), bool), -1 if variant == "mask_off_by_one" else 0)
    mask[0, 0] = True
    return mask


class NumpyLlama:
    """variant: a key of WRONG or None. q8: round the inputs of quantized products to 8 bits.
    kv_f16: round keys and values to float16, as a cache in that type does."""

    def __init__(self, file, variant=None, q8=False, kv_f16=False):
        self.file, self.variant, self.q8, self.kv_f16 = file, variant, q8, kv_f16
        self.eps = file.eps * (100 if variant == "eps_x100" else 1)
        self.base = file.rope_base * (10 if variant == "rope_base_x10" else 1)

    def weight(self, name):
        return self.file.weight(name).astype(np.float64)

    def product(self, name, x):
        if self.q8 and self.file.is_quantized(name):
            x = round_activations(x)
        return x @ self.weight(name).T

    def attention(self, layer, x):
        f, n = self.file, len(x)
        q = self.product(f"blk.{layer}.attn_q.weight", x).reshape(n, f.n_heads, f.head_dim)
        k = self.product(f"blk.{layer}.attn_k.weight", x).reshape(n, f.n_kv_heads, f.head_dim)
        v = self.product(f"blk.{layer}.attn_v.weight", x).reshape(n, f.n_kv_heads, f.head_dim)
        half = self.variant == "rope_half_split"
        q = rope(q, self.base, half)
        if self.variant != "rope_queries_only":
            k = rope(k, self.base, half)
        if self.kv_f16:
            k, v = k.astype(np.float16).astype(np.float64), v.astype(np.float16).astype(np.float64)
        mask = causal_mask(n, self.variant)
        scale = 1.0 if self.variant == "no_score_scale" else f.head_dim ** -0.5
        out = np.empty_like(q)
        for head in range(f.n_heads):
            kv = head // (f.n_heads // f.n_kv_heads)
            if self.variant == "kv_head_modulo":
                kv = head % f.n_kv_heads
            scores = np.where(mask, q[:, head] @ k[:, kv].T * scale, -np.inf)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = p / p.sum(-1, keepdims=True) @ v[:, kv]
        return self.product(f"blk.{layer}.attn_output.weight", out.reshape(n, -1))

    def mlp(self, layer, x):
        gate = self.product(f"blk.{layer}.ffn_gate.weight", x)
        up = self.product(f"blk.{layer}.ffn_up.weight", x)
        if self.variant == "gate_up_swapped":
            gate, up = up, gate
        act = gelu if self.variant == "gelu" else silu
        return self.product(f"blk.{layer}.ffn_down.weight", act(gate) * up)

    def logits(self, ids):
        """[n, n_vocab] in double."""
        f = self.file
        x = self.weight("token_embd.weight")[ids]
        for layer in range(f.n_layers):
            for norm, part in (("attn_norm", self.attention), ("ffn_norm", self.mlp)):
                normed = rms_norm(x, self.weight(f"blk.{layer}.{norm}.weight"), self.eps)
                residual = normed if self.variant == "residual_of_normed" else x
                x = residual + part(layer, normed)
        last = self.weight("output_norm.weight")
        x = rms_norm(x, 1.0 if self.variant == "no_final_norm_weight" else last, self.eps)
        return self.product("token_embd.weight" if f.tied else "output.weight", x)
