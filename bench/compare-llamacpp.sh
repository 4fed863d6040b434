#!/usr/bin/env bash
# Compares sennit with llama.cpp on one model file on this machine.
#
#   bench/compare-llamacpp.sh [--no-amx] [--model FILE.gguf] [--sennit PATH] [options of compare.py]
#   bench/compare-llamacpp.sh [--no-amx] --build-only
#
# Without --model, SmolLM2 as scripts/fetch-smollm2.sh gets it.
#
# --no-amx builds the peer without AMX tiles, in a tree of its own: on a CPU that has them, this is the peer that
# AVX-512 CPUs without them get (Zen 4, Ice Lake).
#
# peer.sh says where llama.cpp comes from and how it is built. Its own llama-batched-bench measures it. Needs python3
# with venv, g++, cmake, taskset. Both engines run pinned to the same CPUs and take turns; see compare.py for what is
# measured and which pairs are dropped.
set -euo pipefail
. "$(dirname "$0")/peer.sh"

build=amx
if [ "${1:-}" = --no-amx ]; then
    shift
    build=noamx
fi
peer_need python3 python3; peer_need cmake cmake; peer_need g++ g++; peer_need cc gcc; peer_need taskset util-linux
peer_fetch
bench=$(peer_build $build llama-batched-bench)
if [ "${1:-}" = --build-only ]; then
    echo "$bench"
    exit
fi
case " $*" in
    *' --model'* | *' --help'* | *' -h'*) ;;
    *) set -- --model "$("$bench_dir/../scripts/fetch-smollm2.sh")" "$@" ;;
esac
exec python3 "$bench_dir/compare.py" --peer "$bench" --peer-version "llama-cpp-python $peer_version" \
    --probe "$(peer_probe)" "$@"
