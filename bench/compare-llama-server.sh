#!/usr/bin/env bash
# Compares `sennit serve` with llama.cpp's llama-server on one model file on this machine.
#
#   bench/compare-llama-server.sh [--no-amx] [--model FILE.gguf] [--sennit PATH] [options of compare_serve.py]
#   bench/compare-llama-server.sh [--no-amx] --build-only
#
# Without --model, SmolLM2 as scripts/fetch-smollm2.sh gets it. --no-amx as in compare-llamacpp.sh. peer.sh says where
# llama.cpp comes from and how it is built; compare_serve.py what is measured, and which pairs are dropped. --help
# lists its options. Needs python3 with venv, g++, cmake, taskset, pkg-config and jansson.
set -euo pipefail
. "$(dirname "$0")/peer.sh"

build=amx
if [ "${1:-}" = --no-amx ]; then
    shift
    build=noamx
fi
peer_need python3 python3; peer_need cmake cmake; peer_need g++ g++; peer_need cc gcc; peer_need taskset util-linux
peer_need pkg-config pkg-config
peer_fetch
server=$(peer_build $build llama-server)
load=$peer/serve_load
# shellcheck disable=SC2046
cc -O2 -std=c17 -D_GNU_SOURCE -o "$load" "$bench_dir/serve_load.c" $(pkg-config --cflags --libs jansson)
if [ "${1:-}" = --build-only ]; then
    printf '%s\n' "$server" "$load"
    exit
fi
case " $*" in
    *' --model'* | *' --help'* | *' -h'*) ;;
    *) set -- --model "$("$bench_dir/../scripts/fetch-smollm2.sh")" "$@" ;;
esac
exec python3 "$bench_dir/compare_serve.py" --peer "$server" --peer-version "llama-cpp-python $peer_version" \
    --probe "$(peer_probe)" --load "$load" "$@"
