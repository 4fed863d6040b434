#!/usr/bin/env python3
"""Times sennit's server and llama.cpp's in turns on one model file and prints a table. Called by
compare-llama-server.sh.

One run starts a server, warms it up, and measures it with bench/serve_load: streaming clients, distinct prompts of
token ids, greedy answers of a fixed length. Both servers have as many slots as there are clients, the same threads,
and the same CPUs; with one thread the whole server is held on one CPU and the clients on the other one. One pair = a
placement probe, both servers in alternating order, a probe. A pair is dropped when the probes disagree about where the
CPUs lie, or when other processes (or the host) took more than --noise of the CPUs during one of its runs. Only one
server runs at a time. The table shows medians over the pairs that were kept."""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from compare import ROOT, json_lines, numbers, pinned, probe, run, same_place

TICKS = os.sysconf("SC_CLK_TCK")
START_S = 120
SIDES = ("sennit", "peer")


def sennit_command(args, threads, place):
    budget = ["--cache-bytes", args.cache_bytes] if args.cache_bytes else []
    return [args.sennit, "serve", "-m", args.model, "--port", "0", "--port-file", str(place / "port"), "--threads",
            str(threads), "--max-rows", str(args.clients), *budget, *args.sennit_options]


def peer_command(args, threads, _place):
    """Continuous batching and warm-up are its defaults, flash attention is its own choice; prompts are distinct, so
    what would keep them is off, which spares it the copies."""
    context = args.context * args.clients
    return [args.peer, "-m", args.model, "--host", "127.0.0.1", "--port", "0", "-t", str(threads), "-tb",
            str(threads), "-np", str(args.clients), "-c", str(context), "-fa", args.flash, "-b", "2048", "-ub", "512",
            "--no-ui", "--no-cache-prompt", "--cache-ram", "0", "--no-slots", "--offline", *args.peer_options]


def port_of(side, place):
    """None until the server has said where it listens."""
    if side == "sennit":
        with contextlib.suppress(OSError, ValueError):
            return int((place / "port").read_text())
        return None
    found = re.findall(r"listening on https?://[^:/]+:(\d+)", (place / "log").read_text(errors="replace"))
    return int(found[-1]) if found else None


def answers(port):
    with contextlib.suppress(OSError, urllib.error.URLError):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
            return reply.status == 200
    return False


@contextlib.contextmanager
def serving(args, side, threads):
    """Starts a server and gives (port, pid); ends it."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        command = pinned(args, threads) + {"sennit": sennit_command, "peer": peer_command}[side](args, threads, place)
        with open(place / "log", "wb") as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            limit = time.monotonic() + START_S
            while not ((port := port_of(side, place)) and answers(port)):
                if server.poll() is not None or time.monotonic() > limit:
                    text = (place / "log").read_text(errors="replace")
                    raise SystemExit(f"{' '.join(map(str, command))}\ndid not start:\n{text[-3000:]}")
                time.sleep(0.1)
            yield port, server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def cpu_times():
    """(seconds of work, seconds stolen by the host) of all CPUs together."""
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, pathlib.Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft) / TICKS, steal / TICKS


def load(args, threads, port, pid, index, **what):
    cpus = args.cpus.split(",")
    pin = ["--cpu", cpus[1]] if threads == 1 and len(cpus) > 1 else []
    numbers_of = [x for k, v in what.items() for x in (f"--{k}", str(v))]
    done = run([args.load, "--port", str(port), "--pid", str(pid), "--seed", str(index), *pin, *numbers_of])
    return json_lines(done.stdout)[0]


def one_run(args, side, threads, index):
    with serving(args, side, threads) as (port, pid):
        load(args, threads, port, pid, 1000 + index, clients=args.clients, requests=1, prompt=32, gen=16)
        work, stolen = cpu_times()
        result = load(args, threads, port, pid, 1 + index, clients=args.clients, requests=args.requests,
                      prompt=args.prompt, gen=args.gen)
        work_after, stolen_after = cpu_times()
    foreign = work_after - work - result["cpu_s"] - result["client_cpu_s"] + stolen_after - stolen
    result["noise"] = max(0.0, foreign / (result["total_s"] * len(args.cpus.split(","))))
    return result


def one_pair(args, threads, index):
    before = probe(args)
    order = args.sides if index % 2 == 0 else args.sides[::-1]
    pair = {side: one_run(args, side, threads, index) for side in order}
    after = probe(args)
    still = same_place([before, after]) if threads > 1 else before["mode"] == after["mode"]
    quiet = all(pair[side]["noise"] <= args.noise for side in args.sides)
    return pair | {"probes": [before, after], "why": "" if still and quiet else "noise" if still else "placement"}


def say(args, threads, index, pair):
    shown = ";  ".join(f"{side} {r['tokens_per_s']:.1f} tok/s, ttft p95 {r['ttft_p95']:.2f} s, itl p50 "
                       f"{r['itl_p50'] * 1e3:.1f} ms, noise {r['noise']:.1%}"
                       for side, r in pair.items() if side in SIDES)
    print(f"# {index + 1}/{args.pairs}  {threads} thr  {shown};  {pair['probes'][0]['mode']} "
          f"{pair['probes'][0]['rtt_ns']:.0f} -> {pair['probes'][1]['rtt_ns']:.0f} ns"
          f"{'  DROPPED: ' + pair['why'] if pair['why'] else ''}", file=sys.stderr, flush=True)


def median_of(pairs, side, name):
    return statistics.median(p[side][name] for p in pairs)


def summarise(args, threads, pairs):
    """Medians over the pairs that were kept; over all of them, and marked, when none was."""
    kept = [p for p in pairs if not p["why"]]
    used = kept or pairs
    cell = {"threads": threads, "pairs": pairs, "kept": len(kept)}
    names = ("tokens_per_s", "ttft_p50", "ttft_p95", "itl_p50", "itl_p95", "total_s", "cpu_s", "noise")
    for side in args.sides:
        cell[side] = {name: median_of(used, side, name) for name in names}
    if len(args.sides) == 2:
        for name in ("tokens_per_s", "ttft_p95", "cpu_s"):
            ratios = [p["sennit"][name] / p["peer"][name] for p in used]
            cell[f"{name}_ratio"] = [statistics.median(ratios), min(ratios), max(ratios)]
    if "sennit" in args.sides and all("overhead" in p["sennit"] for p in used):
        cell["overhead"] = median_of(used, "sennit", "overhead")
    return cell


def table(args, cells):
    out = ["| threads | server | tok/s | first token p50 | p95 | between tokens p50 | p95 | pairs kept |",
           "|---|---|---|---|---|---|---|---|"]
    for c in cells:
        for side in args.sides:
            v = c[side]
            out.append(f"| {c['threads']} | {'llama-server' if side == 'peer' else side} | {v['tokens_per_s']:.1f} | "
                       f"{v['ttft_p50']:.2f} s | {v['ttft_p95']:.2f} s | {v['itl_p50'] * 1e3:.1f} ms | "
                       f"{v['itl_p95'] * 1e3:.1f} ms | {c['kept']} of {len(c['pairs'])} |")
    return "\n".join(out)


def verdicts(cells):
    for c in cells:
        head = f"{c['threads']} thread{'s' if c['threads'] > 1 else ''}"
        note = "" if c["kept"] else "  (no pair was kept: over all of them)"
        for name, what in (("tokens_per_s", "tokens per second"), ("ttft_p95", "p95 time to first token"),
                           ("cpu_s", "CPU seconds for the same work")):
            if f"{name}_ratio" in c:
                middle, low, high = c[f"{name}_ratio"]
                print(f"{head}: {what}, sennit / llama-server = {middle:.2f}  ({low:.2f} to {high:.2f}){note}")
        if "overhead" in c:
            spent = c["pairs"][-1]["sennit"]["cpu"]
            parts = ", ".join(f"{k} {v:.2f} s" for k, v in sorted(spent.items(), key=lambda x: -x[1]))
            print(f"{head}: sennit's other threads / engine = {c['overhead']:.2%}  (last run: {parts}){note}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="the program llama-server")
    parser.add_argument("--peer-version", default="llama.cpp")
    parser.add_argument("--probe", required=True, help="the program built from probe.c")
    parser.add_argument("--load", required=True, help="the program built from serve_load.c")
    parser.add_argument("--model", required=True)
    parser.add_argument("--sennit", default=str(ROOT / "build/release/src/sennit"))
    parser.add_argument("--only", choices=SIDES, help="measure one of the two")
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--cpus", default="0,1", help="CPUs to pin to, in order of use")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=2, help="per client, one after the other")
    parser.add_argument("--prompt", type=int, default=256, help="tokens")
    parser.add_argument("--gen", type=int, default=256, help="tokens")
    parser.add_argument("--context", type=int, default=1024, help="llama-server: tokens per slot")
    parser.add_argument("--flash", default="auto", help="llama-server: -fa")
    parser.add_argument("--cache-bytes", help="sennit: --cache-bytes")
    parser.add_argument("--pairs", type=int, default=3, help="an odd number")
    parser.add_argument("--noise", type=float, default=0.05, help="share of the CPUs that others may take (0.05)")
    parser.add_argument("--peer-options", type=str.split, default=[], help="further options, in one word")
    parser.add_argument("--sennit-options", type=str.split, default=[], help="further options, in one word")
    parser.add_argument("--json", type=pathlib.Path, help="write every sample to this file")
    args = parser.parse_args()
    args.sides = [args.only] if args.only else list(SIDES)
    if args.pairs % 2 == 0:
        parser.error("--pairs: an odd number, so that a median is one of them")
    if "sennit" in args.sides and not os.access(args.sennit, os.X_OK):
        parser.error(f"{args.sennit} is not there: build sennit, or name it with --sennit, or give --only peer")
    return args


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a server that runs is ended
    started, load_average = time.time(), os.getloadavg()[0]
    results = {threads: [] for threads in args.threads}
    for index in range(args.pairs):
        for threads in args.threads:
            pair = one_pair(args, threads, index)
            results[threads].append(pair)
            say(args, threads, index, pair)
            if args.json:  # what is there so far, should a run not end
                args.json.write_text(json.dumps({"load_average": load_average, "pairs": results}, indent=1) + "\n")
    cells = [summarise(args, threads, pairs) for threads, pairs in results.items()]
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    modes = sorted({p["probes"][0]["mode"] for c in cells for p in c["pairs"]})
    print(f"{cpu.group(1) if cpu else 'unknown CPU'}, {os.cpu_count()} CPUs; {args.peer_version}; "
          f"{pathlib.Path(args.model).name}; {args.clients} clients, {args.requests} requests each, prompts of "
          f"{args.prompt}, answers of {args.gen}; placement {', '.join(modes)}; load {load_average:.1f} at the start; "
          f"{time.time() - started:.0f} s\n\n{table(args, cells)}\n")
    verdicts(cells)
    if args.json:
        args.json.write_text(json.dumps({"load_average": load_average, "cells": cells}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
