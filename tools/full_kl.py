#!/usr/bin/env python3
"""Full Kullback-Leibler divergence of an engine's answers from Hugging Face's, over the whole vocabulary.

    tools/full_kl.py --model FILE.gguf --dumps DIR [--reference tests/golden/smollm2_reference.json]
    tools/full_kl.py --model FILE.gguf --tokens IDS.json --logits DUMP.f32

A dump is float32, little-endian, [n_tokens][n_vocab]: row i holds the logits after token i. With --dumps, DIR
holds NAME.f32 for prompts of the reference file, over tokens + continuation (the last row may be missing), and
text.f32 for its text; what is absent is left out. IDS.json is a list of ids. Prints, per dump and together,
the mean, 99th percentile and largest KL(reference || engine) in nats, how often the most likely token is the
same, and both perplexities. Versions: gguf_llama.py."""
import argparse
import json
import pathlib
import sys

import numpy as np

from gguf_llama import Gguf, load_transformers, log_softmax, logits_of, perplexity

ROOT = pathlib.Path(__file__).resolve().parent.parent


def compare(model, ids, dump, n_vocab):
    """Per position: KL, same argmax, negative log-likelihood of the next token by reference and engine."""
    logits = np.fromfile(dump, "<f4").reshape(-1, n_vocab)
    if not len(ids) - 1 <= len(logits) <= len(ids):
        raise SystemExit(f"{dump}: {len(logits)} rows for {len(ids)} tokens")
    ours = log_softmax(logits)
    ref = log_softmax(logits_of(model, ids)[:len(logits)])
    kl = (np.exp(ref) * (ref - ours)).sum(-1)
    same = ref.argmax(-1) == ours.argmax(-1)
    scored = np.arange(len(ids) - 1)
    return kl, same, -ref[scored, ids[1:]], -ours[scored, ids[1:]]


def report(name, parts):
    kl, same, nll_ref, nll = (np.concatenate(p) for p in zip(*parts))
    print(f"{name:18} {len(kl):6} tokens  KL mean {kl.mean():.3e}  p99 {np.percentile(kl, 99):.3e}  "
          f"max {kl.max():.3e}  same top {same.mean() * 100:6.2f} %  perplexity "
          f"{perplexity(nll_ref.sum(), len(nll)):.4f} -> {perplexity(nll.sum(), len(nll)):.4f}", flush=True)


def jobs_of(args):
    if args.tokens:
        return [("tokens", json.loads(args.tokens.read_text()), args.logits)]
    reference = json.loads(args.reference.read_text())
    jobs = [(p["name"], p["tokens"] + p["continuation"], args.dumps / f"{p['name']}.f32")
            for p in reference["prompts"]]
    jobs.append(("text", reference["text"]["tokens"], args.dumps / "text.f32"))
    return [j for j in jobs if j[2].exists()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--reference", type=pathlib.Path, default=ROOT / "tests/golden/smollm2_reference.json")
    parser.add_argument("--dumps", type=pathlib.Path)
    parser.add_argument("--tokens", type=pathlib.Path)
    parser.add_argument("--logits", type=pathlib.Path)
    args = parser.parse_args()
    if (args.dumps is None) == (args.tokens is None) or (args.tokens is None) != (args.logits is None):
        parser.error("give --dumps, or --tokens and --logits")
    import torch

    jobs = jobs_of(args)
    if not jobs:
        raise SystemExit("no dump found")
    file = Gguf(args.model)
    model = load_transformers(file, torch.float64)
    parts = []
    for name, ids, dump in jobs:
        parts.append(compare(model, ids, dump, file.n_vocab))
        report(name, parts[-1:])
    if len(parts) > 1:
        report("together", parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
