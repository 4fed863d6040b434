#!/usr/bin/env python3
"""Makes tests/golden/tiny_llama.json and tiny_llama_<name>.bin: reference logits of tiny random models.

    tools/golden_tiny.py --tiny-model BUILD/tests/support/tiny-model [--out tests/golden] [--check]

The models are written by the program tiny-model and are the same bytes everywhere, so only the answers
are stored. The reference is Hugging Face's implementation in double precision, checked here against a
plain numpy forward. --check compares with what is stored instead of writing. Layouts:
tests/golden/README.md; versions: gguf_llama.py."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from gguf_llama import Gguf, fnv1a64, load_transformers, logits_of, relative_range
from numpy_llama import WRONG, NumpyLlama, applies

TOLERANCE = 2e-5   # of the range of the logits: what a float32 engine must reach
N_TOKENS = 40
N_WRONG_POS = 2    # wrong answers are stored for so many last positions

GQA = {"layers": 2, "d-model": 64, "heads": 4, "kv-heads": 2, "head-dim": 16, "d-ff": 96, "vocab": 300,
       "rope-base": 10000, "eps": 1e-5, "tied": False}
MODELS = {
    "gqa": GQA | {"seed": 11, "type": "F32"},
    "mha_tied": {"seed": 12, "type": "F32", "layers": 3, "d-model": 64, "heads": 4, "kv-heads": 4,
                 "head-dim": 16, "d-ff": 128, "vocab": 320, "rope-base": 100000, "eps": 1e-6, "tied": True},
    "wide_head": {"seed": 13, "type": "F32", "layers": 2, "d-model": 96, "heads": 4, "kv-heads": 2,
                  "head-dim": 32, "d-ff": 160, "vocab": 291, "rope-base": 500000, "eps": 1e-5, "tied": False},
    "mqa": {"seed": 14, "type": "F32", "layers": 3, "d-model": 96, "heads": 3, "kv-heads": 1,
            "head-dim": 32, "d-ff": 64, "vocab": 300, "rope-base": 1000, "eps": 1e-5, "tied": True},
}
QUANTIZED = {f"gqa_{t.lower()}": GQA | {"seed": 11, "type": t} for t in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1")}


def options(spec):
    out = []
    for key, value in spec.items():
        if key != "tied":
            out += [f"--{key}", str(value)]
    return out + ([] if spec["tied"] else ["--untied"])


def token_ids(seed, n_vocab):
    """Ids 0 .. n_vocab-1, all kinds, with a repeat at the end so that attention has something to find."""
    ids = [int(i) for i in np.random.Generator(np.random.PCG64(seed)).integers(0, n_vocab, N_TOKENS)]
    return ids[:N_TOKENS - 6] + ids[2:8]


def reference(file, ids):
    import torch

    right = logits_of(load_transformers(file, torch.float64), ids)
    own = NumpyLlama(file).logits(ids)
    if relative_range(own, right) > 1e-10:
        raise SystemExit(f"the two references differ by {relative_range(own, right):.2e} of the range")
    return right


def wrong_answers(file, ids, right):
    """Lists of entries for the manifest, and the logits of the last positions."""
    entries, blobs = [], []
    for name, what in WRONG.items():
        if not applies(name, file):
            continue
        logits = NumpyLlama(file, variant=name).logits(ids)[-N_WRONG_POS:]
        deviation = relative_range(logits, right[-N_WRONG_POS:])
        if deviation <= 10 * TOLERANCE:
            raise SystemExit(f"{name}: deviates by {deviation:.2e} of the range only")
        entries.append({"name": name, "what": what, "deviation": float(f"{deviation:.3g}")})
        blobs.append(logits)
    return entries, blobs


def make(name, spec, tiny_model, directory, with_wrong):
    path = pathlib.Path(directory) / f"{name}.gguf"
    subprocess.run([tiny_model, "--out", path, *options(spec)], check=True)
    file, ids = Gguf(path), token_ids(spec["seed"], spec["vocab"])
    right = reference(file, ids)
    entry = {"name": name, "file": f"tiny_llama_{name}.bin", "spec": spec,
             "options": options(spec), "model_bytes": path.stat().st_size,
             "model_fnv1a64": f"{fnv1a64(path.read_bytes()):016x}",
             "n_vocab": spec["vocab"], "n_tokens": len(ids), "tokens": ids, "wrong": [],
             "n_wrong_positions": N_WRONG_POS}
    quantized = spec["type"].startswith("Q")
    entry["explained"] = {   # largest deviation over range that these roundings alone make, all positions
        "kv_f16": relative_range(NumpyLlama(file, kv_f16=True).logits(ids), right),
        "q8_activations": relative_range(NumpyLlama(file, q8=True).logits(ids), right) if quantized else 0.0,
        "both": relative_range(NumpyLlama(file, q8=quantized, kv_f16=True).logits(ids), right)}
    entry["explained"] = {k: float(f"{v:.3g}") for k, v in entry["explained"].items()}
    blobs = [right]
    if quantized:
        blobs.append(NumpyLlama(file, q8=True).logits(ids))
    entry["has_q8_logits"] = quantized
    if with_wrong:
        entry["wrong"], wrong = wrong_answers(file, ids, right)
        blobs += wrong
    return entry, np.concatenate(blobs).astype("<f4")


def same(path, data):
    if not path.exists():
        return False
    stored = np.fromfile(path, "<f4")
    return stored.size == data.size and relative_range(stored, data.ravel()) < 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny-model", required=True, help="the program tiny-model out of a build")
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "tests/golden")
    parser.add_argument("--check", action="store_true", help="compare with the stored files, write nothing")
    args = parser.parse_args()
    entries, bad = [], 0
    with tempfile.TemporaryDirectory() as directory:
        for name, spec in (MODELS | QUANTIZED).items():
            entry, data = make(name, spec, args.tiny_model, directory, name in MODELS)
            entries.append(entry)
            least = min((w["deviation"] for w in entry["wrong"]), default=None)
            print(f"{name:10} range {np.ptp(data[:N_TOKENS]):6.2f}  explained {entry['explained']}"
                  f"  least wrong {least}", flush=True)
            if args.check:
                bad += not same(args.out / entry["file"], data)
            else:
                data.tofile(args.out / entry["file"])
    manifest = args.out / "tiny_llama.json"
    text = to_json(entries)
    if args.check:
        keys = ("name", "spec", "tokens", "model_fnv1a64")
        stored = json.loads(manifest.read_text())["models"]
        bad += [[e[k] for k in keys] for e in entries] != [[e[k] for k in keys] for e in stored]
        print("differs" if bad else "same as stored")
        return int(bad != 0)
    manifest.write_text(text)
    return 0


def to_json(entries):
    """One line per field: readable, and a changed field is one changed line."""
    models = ",\n".join("  {" + ",\n   ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in e.items()) + "}"
                        for e in entries)
    return f'{{"tolerance": {TOLERANCE},\n "models": [\n{models}\n]}}\n'


if __name__ == "__main__":
    sys.exit(main())
