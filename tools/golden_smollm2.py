#!/usr/bin/env python3
"""Makes tests/golden/smollm2_reference.json and smollm2_top64.bin: what Hugging Face's implementation says
about the weights of a SmolLM2-135M-Instruct GGUF file, in double precision.

    tools/golden_smollm2.py --model SmolLM2-135M-Instruct.Q4_1.gguf [--out tests/golden] [--compare-f32]

For 20 prompts: the greedy continuation of 64 tokens and, teacher-forced along it, the 64 most likely tokens
of every step. For one text: the negative log-likelihood of each token. Takes about four minutes on two
cores and 3 GB. Layouts: tests/golden/README.md; versions: gguf_llama.py."""
import argparse
import json
import pathlib
import sys

import numpy as np

from gguf_llama import (Gguf, fnv1a64, greedy, load_tokenizer, load_transformers, log_softmax, logits_of,
                        perplexity, render_chat)

N_STEPS, N_TOP = 64, 64
ROOT = pathlib.Path(__file__).resolve().parent.parent


def chat(*turns):
    roles = ("user", "assistant") * len(turns)
    return [{"role": r, "content": t} for r, t in zip(roles, turns)]


# name -> a conversation for the chat template, or plain text
PROMPTS = {
    "chat_capital": chat("What is the capital of France?"),
    "chat_explain": chat("Explain in simple words why the sky is blue."),
    "chat_turns": chat("Hi! My name is Ines and I keep bees.", "Hello Ines! Bees are wonderful. How can I help?",
                       "What was my name, and what do I keep?"),
    "chat_system": [{"role": "system", "content": "You answer like a ship's captain, in one sentence."},
                    {"role": "user", "content": "Should we leave the harbour tonight?"}],
    "chat_recipe": chat("Give me a short recipe for pancakes with a list of ingredients."),
    "chat_arithmetic": chat("A train leaves at 14:35 and the trip takes 2 hours and 50 minutes. When does it arrive?"),
    "chat_translate": chat("Translate to French: \"The little boat is crossing the river.\""),
    "chat_summary": chat("Summarize in one sentence: The old mill had stood by the stream for two hundred years. "
                         "When the flood came, the wheel broke loose, and the village bought a new one together."),
    "chat_code": chat("Write a Python function that returns the n-th Fibonacci number."),
    "chat_unicode": chat("What do these words mean: café, naïve, Straße, 猫, привет? 🙂"),
    "code_python": "def is_prime(n):\n    \"\"\"Return True if n is a prime number.\"\"\"\n    if n < 2:\n",
    "code_c": "#include <stdio.h>\n\nint main(void)\n{\n    for (int i = 0; i < 10; i++) {\n",
    "code_sql": "-- The ten customers with the largest total of orders\nSELECT c.name, SUM(o.amount) AS total\nFROM",
    "code_json": "{\"name\": \"rope\", \"strands\": 3, \"length_m\": 12.5, \"colours\": [\"red\",",
    "prose_story": "The lighthouse keeper had not spoken to anyone for eleven days when the radio",
    "prose_science": "Water expands when it freezes because the molecules",
    "prose_history": "In the early nineteenth century, the canals of England carried",
    "list_planets": "The planets of the solar system, in order from the Sun:\n1. Mercury\n2. Venus\n3.",
    "list_counting": "one, two, three, four, five, six, seven,",
    "one_token": "The",
}


def prompt_ids(file, tok, prompt):
    text = prompt if isinstance(prompt, str) else render_chat(file, prompt)
    return text, tok.encode(text, add_special_tokens=False).ids


def top(logprobs):
    """[steps, vocab] -> ids and values of the N_TOP largest, by value, then by lower id."""
    order = np.argsort(-logprobs, axis=-1, kind="stable")[:, :N_TOP]
    return order, np.take_along_axis(logprobs, order, -1)


def run_prompt(model, file, tok, name, prompt):
    text, ids = prompt_ids(file, tok, prompt)
    continuation = greedy(model, ids, N_STEPS)
    logits = logits_of(model, ids + continuation)[len(ids) - 1:-1]
    order, values = top(log_softmax(logits))
    if order[:, 0].tolist() != continuation:
        raise SystemExit(f"{name}: the cached and the whole forward choose different tokens")
    print(f"{name}: {tok.decode(continuation)!r}", flush=True)
    gap = values[:, 0] - values[:, 1]
    return {"name": name, "text": text, "tokens": ids, "continuation": continuation,
            "smallest_gap": float(f"{gap.min():.3g}"),
            "rest_max": float(f"{(1 - np.exp(values).sum(-1)).max():.3g}")}, order, values


def run_text(model, tok, path):
    ids = tok.encode(path.read_text(), add_special_tokens=False).ids
    logprobs = log_softmax(logits_of(model, ids))
    nll = -logprobs[np.arange(len(ids) - 1), ids[1:]]
    print(f"perplexity of {len(nll)} tokens: {perplexity(nll.sum(), len(nll)):.4f}", flush=True)
    return {"file": path.name, "tokens": ids, "n_scored": len(nll), "nll_sum": float(nll.sum()),
            "perplexity": perplexity(nll.sum(), len(nll)), "nll": [round(float(x), 5) for x in nll]}


def compare_f32(file, model, entry):
    """For information: how far single precision is from double."""
    import torch

    ids = entry["tokens"] + entry["continuation"]
    exact = logits_of(model, ids)
    single = logits_of(load_transformers(file, torch.float32), ids)
    print(f"float32 against double: largest difference {np.abs(single - exact).max():.2e} "
          f"of a range of {np.ptp(exact):.1f}")


def write(out, model_path, prompts, text):
    """ids u16 [prompt, step, N_TOP], then log-probabilities f32 in the same shape."""
    ids = np.stack([p[1] for p in prompts]).astype("<u2")
    values = np.stack([p[2] for p in prompts]).astype("<f4")
    with open(out / "smollm2_top64.bin", "wb") as f:
        ids.tofile(f)
        values.tofile(f)
    head = {"model_bytes": model_path.stat().st_size, "model_head_fnv1a64":
            f"{fnv1a64(model_path.open('rb').read(65536)):016x}",
            "n_steps": N_STEPS, "n_top": N_TOP, "top_file": "smollm2_top64.bin"}
    lines = ",\n".join("  " + json.dumps(p[0], ensure_ascii=False) for p in prompts)
    (out / "smollm2_reference.json").write_text(
        json.dumps(head)[:-1] + f',\n "prompts": [\n{lines}\n ],\n "text": {json.dumps(text)}}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden")
    parser.add_argument("--compare-f32", action="store_true")
    args = parser.parse_args()
    import torch

    file = Gguf(args.model)
    tok, model = load_tokenizer(file), load_transformers(file, torch.float64)
    text = run_text(model, tok, args.out / "perplexity.txt")
    prompts = [run_prompt(model, file, tok, name, prompt) for name, prompt in PROMPTS.items()]
    write(args.out, args.model, prompts, text)
    if args.compare_f32:
        compare_f32(file, model, prompts[0][0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
