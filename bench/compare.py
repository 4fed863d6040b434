#!/usr/bin/env python3
"""Times sennit and llama.cpp in turns on one model file and prints a table. Called by compare-llamacpp.sh.

Measures: decode with 1 row, aggregate decode with 8 and 16 rows (after a short prompt each), and prefill of 512
tokens, each with 1 and 2 threads, both engines pinned to the same CPUs. llama.cpp runs with flash attention on and
off, and the better median counts. One pair = a placement probe, both engines in alternating order, a probe; a
pair is dropped when the probes disagree about where the CPUs lie. Every run repeats its measure three times inside
the process and counts by the median; the table shows medians over the pairs that were kept."""
import argparse
import ctypes
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

REPEATS = 3
RTT_RATIO = 1.4   # round trips further apart than this are two placements even when both have one name
ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\nfailed with {done.returncode}:\n{done.stderr[-2000:]}")
    return done


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def probe(args):
    cpus = args.cpus.split(",")[:2]
    return json_lines(run([args.probe, *cpus]).stdout)[0] if len(cpus) == 2 else {"rtt_ns": 0.0, "mode": "one"}


def same_place(probes):
    low, high = min(p["rtt_ns"] for p in probes), max(p["rtt_ns"] for p in probes)
    return len({p["mode"] for p in probes}) == 1 and high <= RTT_RATIO * low


def pinned(args, threads):
    return ["taskset", "-c", ",".join(args.cpus.split(",")[:threads])]


def measures(args):
    """(name, rows, prompt, gen, what is read)"""
    decode = [(f"decode, {r} row{'s' if r > 1 else ''}", r, args.prompt, args.gen, "decode")
              for r in args.rows]
    return decode + [(f"prefill of {args.prefill}", 1, args.prefill, 4, "prefill")]


def run_sennit(args, threads, measure):
    _, rows, prompt, gen, what = measure
    done = run(pinned(args, threads) + [
        args.sennit, "bench", "-m", args.model, "--rows", ",".join([str(rows)] * REPEATS), "--prompt", str(prompt),
        "--gen", str(gen), "--threads", str(threads), "--json"])
    results = [r for x in json_lines(done.stdout) for r in x["results"]]
    results = [r for r in results if r["rows"] == rows]
    if not results:
        raise SystemExit(f"no line for {rows} rows in:\n{done.stdout[-2000:]}")
    return {"sennit": statistics.median(r[f"{what}_tok_s"] for r in results),
            "sennit_step_ms": statistics.median(r["step_ms_median"] for r in results)}


def run_peer(args, threads, measure, flash):
    _, rows, prompt, gen, what = measure
    per_row = max(256, (prompt + gen + 255) // 256 * 256)
    done = run(pinned(args, threads) + [
        args.peer, "-m", args.model, "-c", str(per_row * rows), "-b", "2048", "-ub", "512", "-npp", str(prompt),
        "-ntg", str(gen), "-npl", ",".join([str(rows)] * REPEATS), "-t", str(threads), "-tb", str(threads),
        "-fa", flash, "--output-format", "jsonl"])
    key = "speed_tg" if what == "decode" else "speed_pp"
    found = [x[key] for x in json_lines(done.stdout + done.stderr) if x.get("pl") == rows and key in x]
    if len(found) != REPEATS:
        raise SystemExit(f"{len(found)} of {REPEATS} results in:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return statistics.median(found)


def one_pair(args, threads, measure, index):
    engines = [lambda: {"peer_fa_on": run_peer(args, threads, measure, "on")},
               lambda: {"peer_fa_off": run_peer(args, threads, measure, "off")}]
    if args.sennit:
        engines.insert(0 if index % 2 else 2, lambda: run_sennit(args, threads, measure))
    before = probe(args)
    result = {}
    for go in engines:
        result |= go()
    after = probe(args)
    # With one thread the distance between two CPUs does not matter, only whether they share a core.
    kept = same_place([before, after]) if threads > 1 else before["mode"] == after["mode"]
    return result | {"probes": [before, after], "kept": kept}


def run_all(args):
    """Rounds over all measures, so that a slow minute of the machine falls on all of them."""
    cells = [{"threads": t, "measure": m[0], "spec": m, "pairs": []}
             for t in args.threads for m in measures(args)]
    for index in range(args.pairs):
        for cell in cells:
            pair = one_pair(args, cell["threads"], cell["spec"], index)
            cell["pairs"].append(pair)
            shown = "  ".join(f"{k} {v:.1f}" for k, v in pair.items() if isinstance(v, float))
            print(f"# {index + 1}/{args.pairs}  {cell['threads']} thr  {cell['measure']}: {shown}  "
                  f"{pair['probes'][0]['mode']} {pair['probes'][0]['rtt_ns']:.0f} -> "
                  f"{pair['probes'][1]['rtt_ns']:.0f} ns{'' if pair['kept'] else '  DROPPED'}",
                  file=sys.stderr, flush=True)
    for cell in cells:
        del cell["spec"]
        summarise(cell)
    return cells


def summarise(cell):
    kept = [p for p in cell["pairs"] if p["kept"]]
    cell["kept"] = len(kept)
    for name in ("sennit", "sennit_step_ms", "peer_fa_on", "peer_fa_off"):
        if kept and name in kept[0]:
            cell[name] = statistics.median(p[name] for p in kept)
    if not kept:
        return
    best = max(("peer_fa_on", "peer_fa_off"), key=lambda k: cell[k])
    cell["best"] = best
    if "sennit" in cell:
        cell["ratio"] = statistics.median(p["sennit"] / p[best] for p in kept)
        cell["ratio_range"] = [f(p["sennit"] / p[best] for p in kept) for f in (min, max)]


def table(cells):
    out = ["| threads | measure | sennit tok/s | llama.cpp tok/s | flash attention | ratio (range) | pairs kept |",
           "|---|---|---|---|---|---|---|"]
    for c in cells:
        ours = f"{c['sennit']:.1f}" if "sennit" in c else "-"
        ratio = f"{c['ratio']:.2f} ({c['ratio_range'][0]:.2f}–{c['ratio_range'][1]:.2f})" if "ratio" in c else "-"
        theirs, flash = (f"{c[c['best']]:.1f}", c["best"][8:]) if "best" in c else ("-", "-")
        out.append(f"| {c['threads']} | {c['measure']} | {ours} | {theirs} | {flash} | {ratio} | "
                   f"{c['kept']} of {len(c['pairs'])} |")
    return "\n".join(out)


def step_ratios(cells):
    """Sennit: what a step of many decoding rows takes, as a multiple of a step of one, per thread count."""
    out = []
    for threads in dict.fromkeys(c["threads"] for c in cells):
        steps = {c["measure"]: c["sennit_step_ms"] for c in cells
                 if c["threads"] == threads and "sennit_step_ms" in c and c["measure"].startswith("decode")}
        one = steps.pop("decode, 1 row", None)
        for name, ms in steps.items() if one else ():
            rows = name.split(", ")[1].split()[0]
            out.append({"threads": threads, "rows": int(rows), "step_ms": ms, "step_ms_of_one": one, "ratio": ms / one})
    return out


def peer_features(args):
    """The CPU features that the peer was built for and uses, in its own words."""
    library = ctypes.CDLL(str(pathlib.Path(args.peer).parent / "libllama.so"))
    library.llama_print_system_info.restype = ctypes.c_char_p
    return library.llama_print_system_info().decode().strip(" |")


def system(args):
    """What both ran on, and which CPU features the peer says it uses."""
    done = run(pinned(args, 1) + [args.peer, "-m", args.model, "-c", "256", "-npp", "8", "-ntg", "2", "-npl", "1",
                                  "-t", "1", "-v"])
    info = [peer_features(args)] + re.findall(r"\S+ model buffer size.*", done.stdout + done.stderr)
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {"cpu": cpu.group(1) if cpu else "unknown", "n_cpus": os.cpu_count(), "peer": args.peer_version,
            "peer_features": [line.strip() for line in info], "load_average": os.getloadavg()[0],
            "model": pathlib.Path(args.model).name, "model_bytes": pathlib.Path(args.model).stat().st_size}


def numbers(text):
    return [int(x) for x in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="the program llama-batched-bench")
    parser.add_argument("--peer-version", default="llama.cpp")
    parser.add_argument("--probe", required=True, help="the program built from probe.c")
    parser.add_argument("--model", required=True)
    parser.add_argument("--sennit", default=str(ROOT / "build/release/src/sennit"))
    parser.add_argument("--peer-only", action="store_true", help="measure llama.cpp alone")
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--cpus", default="0,1", help="CPUs to pin to, in order of use")
    parser.add_argument("--rows", type=numbers, default=[1, 8, 16])
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path, help="write every sample to this file")
    args = parser.parse_args()
    if args.peer_only:
        args.sennit = None
    elif not os.access(args.sennit, os.X_OK):
        parser.error(f"{args.sennit} is not there: build sennit, or name it with --sennit, or give --peer-only")
    return args


def main():
    args = arguments()
    about = system(args)
    cells = run_all(args)
    print(f"{about['cpu']}, {about['n_cpus']} CPUs; {about['peer']}; {about['model']}; prompt {args.prompt}, "
          f"{args.gen} generated; load {about['load_average']:.1f} at the start\n")
    for line in about["peer_features"]:
        print(f"    {line}")
    modes = sorted({p["probes"][0]["mode"] for c in cells for p in c["pairs"] if p["kept"]})
    print(f"\nPlacement in the pairs kept: {', '.join(modes) or 'none'}\n\n{table(cells)}")
    ratios = step_ratios(cells)
    for r in ratios:
        print(f"{'' if r is not ratios[0] else chr(10)}{r['threads']} threads: a step of {r['rows']} rows / a step of one = "
              f"{r['ratio']:.2f}  ({r['step_ms']:.2f} ms / {r['step_ms_of_one']:.2f} ms)")
    if args.json:
        args.json.write_text(json.dumps({"system": about, "cells": cells, "step_ratios": ratios}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
