"""Reads a Llama GGUF file into Hugging Face's own implementation, as the reference of the engine.

Weights are dequantized by the `gguf` package, so nothing here shares code with the engine. The
converter that writes GGUF files permutes the rows of attn_q and attn_k so that RoPE turns adjacent
pairs; `unpermute` puts them back, as Hugging Face turns the two halves of a head.

requirements (the versions that made the committed files):
    numpy==2.4.6 gguf==0.19.0 tokenizers==0.23.3 jinja2==3.1.6 torch==2.15.0 transformers==5.24.0
"""
import math

import gguf
import numpy as np


class Gguf:
    """Metadata and dequantized weights (float32, [out, in]) of a Llama GGUF file."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {t.name: t for t in reader.tensors}
        if self.get("general.architecture") != "llama":
            raise SystemExit(f"{path}: not a llama file but {self.get('general.architecture')!r}")
        self.n_layers = self.get("llama.block_count")
        self.d_model = self.get("llama.embedding_length")
        self.d_ff = self.get("llama.feed_forward_length")
        self.n_heads = self.get("llama.attention.head_count")
        self.n_kv_heads = self.get("llama.attention.head_count_kv", self.n_heads)
        self.head_dim = self.get("llama.attention.key_length", self.d_model // self.n_heads)
        self.eps = float(self.get("llama.attention.layer_norm_rms_epsilon"))
        self.rope_base = float(self.get("llama.rope.freq_base", 10000.0))
        self.context_length = self.get("llama.context_length")
        self.n_vocab = int(self.tensors["token_embd.weight"].shape[1])
        self.tied = "output.weight" not in self.tensors

    def get(self, key, default=None):
        return self.fields[key].contents() if key in self.fields else default

    def weight(self, name):
        t = self.tensors[name]
        return np.asarray(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32)

    def is_quantized(self, name):
        """True where the engine multiplies with 8-bit activations."""
        return self.tensors[name].tensor_type.name.startswith("Q")


def unpermute(w, n_heads):
    """[n_heads * head_dim, in]: adjacent pairs (GGUF) to two halves (Hugging Face)."""
    rows, cols = w.shape
    half = rows // n_heads // 2
    return w.reshape(n_heads, half, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def exact_rope(model, base, head_dim, dtype):
    """Replaces the model's rotary embedding, which computes angles in float32 whatever the model's type
    is, by one in double."""
    import torch

    class Rope(torch.nn.Module):
        def forward(self, x, position_ids):
            index = torch.arange(0, head_dim, 2, dtype=torch.float64)
            angle = position_ids[..., None].double() * base ** (-index / head_dim)
            angle = torch.cat((angle, angle), dim=-1)
            return angle.cos().to(dtype), angle.sin().to(dtype)

    model.model.rotary_emb = Rope()


def load_transformers(file, dtype):
    """A LlamaForCausalLM with the weights of a Gguf. dtype: torch.float32 or torch.float64; in the
    latter the RoPE angles are double too."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=file.n_vocab, hidden_size=file.d_model, intermediate_size=file.d_ff,
        num_hidden_layers=file.n_layers, num_attention_heads=file.n_heads,
        num_key_value_heads=file.n_kv_heads, head_dim=file.head_dim, hidden_act="silu",
        max_position_embeddings=file.context_length, rms_norm_eps=file.eps,
        rope_parameters={"rope_type": "default", "rope_theta": file.rope_base},
        tie_word_embeddings=file.tied, attn_implementation="eager")
    model = LlamaForCausalLM(config).to(dtype).eval()
    state = {"model.embed_tokens.weight": file.weight("token_embd.weight"),
             "model.norm.weight": file.weight("output_norm.weight")}
    state["lm_head.weight"] = (state["model.embed_tokens.weight"] if file.tied
                               else file.weight("output.weight"))
    names = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for layer in range(file.n_layers):
        for ours, theirs in names.items():
            w = file.weight(f"blk.{layer}.{ours}.weight")
            if ours == "attn_q":
                w = unpermute(w, file.n_heads)
            elif ours == "attn_k":
                w = unpermute(w, file.n_kv_heads)
            state[f"model.layers.{layer}.{theirs}.weight"] = w
    state = {k: torch.tensor(np.ascontiguousarray(v)).to(dtype) for k, v in state.items()}
    model.load_state_dict(state, strict=True)
    if dtype == torch.float64:
        keep_norm_in_double(model)
        exact_rope(model, file.rope_base, file.head_dim, dtype)
    return model


def keep_norm_in_double(model):
    """LlamaRMSNorm and the softmax of eager attention compute in float32 whatever the model's type is;
    a double reference must not."""
    import torch
    from transformers.models.llama import modeling_llama

    def norm(self, x):
        return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.variance_epsilon))

    for module in model.modules():
        if isinstance(module, modeling_llama.LlamaRMSNorm):
            module.forward = norm.__get__(module)

    def attention(module, q, k, v, attention_mask, scaling, dropout=0.0, **_):
        k = modeling_llama.repeat_kv(k, module.num_key_value_groups)
        v = modeling_llama.repeat_kv(v, module.num_key_value_groups)
        scores = q @ k.transpose(2, 3) * scaling
        if attention_mask is not None:
            scores = scores + attention_mask[:, :, :, :k.shape[-2]]
        p = torch.softmax(scores, dim=-1)
        return (p @ v).transpose(1, 2).contiguous(), p

    modeling_llama.eager_attention_forward = attention


def logits_of(model, ids):
    """Teacher-forced logits [n, n_vocab] in the model's type, as numpy."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def greedy(model, prompt, n_new):
    """Greedy continuation of n_new ids. End-of-text does not stop it."""
    import torch

    out, past, feed = [], None, torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(n_new):
            r = model(feed, past_key_values=past, use_cache=True)
            past = r.past_key_values
            out.append(int(r.logits[0, -1].argmax()))
            feed = torch.tensor([[out[-1]]])
    return out


def log_softmax(x):
    x = np.asarray(x, dtype=np.float64)
    m = x.max(-1, keepdims=True)
    return x - m - np.log(np.exp(x - m).sum(-1, keepdims=True))


def load_tokenizer(file):
    """The byte-level BPE of a GGUF file with tokenizer.ggml.pre = smollm: single digits, GPT-2's pattern."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if file.get("tokenizer.ggml.model") != "gpt2" or file.get("tokenizer.ggml.pre") != "smollm":
        raise SystemExit("only byte-level BPE with the smollm pre-tokenizer is known here")
    tokens = file.get("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in file.get("tokenizer.ggml.merges")]
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, kind in
                            zip(tokens, file.get("tokenizer.ggml.token_type")) if kind == 3])
    return tok


def render_chat(file, messages):
    import jinja2

    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    return env.from_string(file.get("tokenizer.chat_template")).render(
        messages=messages, add_generation_prompt=True)


def fnv1a64(data):
    """The 64-bit FNV-1a hash: ten lines in any language, enough to see that a file is the same."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return h


def relative_range(wrong, right):
    """Largest deviation over the range (max - min) of the right values."""
    return float(np.abs(np.asarray(wrong, np.float64) - right).max() / (right.max() - right.min()))


def perplexity(nll_sum, n):
    return math.exp(nll_sum / n)
