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
# llama.cpp comes as the sources inside the llama-cpp-python package and is built for this CPU under
# ${XDG_CACHE_HOME:-~/.cache}/sennit/peer (once; JOBS=n for n compiler jobs, default 1). Its own
# llama-batched-bench measures it. Needs python3 with venv, g++, cmake, taskset. Both engines run pinned to
# the same CPUs and take turns; see compare.py for what is measured and which pairs are dropped.
set -euo pipefail

version=0.3.36
sdist_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sennit
peer=$cache/peer
sources=$peer/llama_cpp_python-$version/vendor/llama.cpp
tree=build
instructions=(-DGGML_NATIVE=ON)
if [ "${1:-}" = --no-amx ]; then
    shift
    tree=build-noamx
    instructions=(-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
        -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON)
fi
bench=$peer/$tree/bin/llama-batched-bench

need() {
    command -v "$1" >/dev/null || { echo "compare-llamacpp: $1 is missing: install $2" >&2; exit 1; }
}

fetch() {
    [ -f "$sources/CMakeLists.txt" ] && return
    mkdir -p "$peer"
    if [ ! -f "$peer/llama_cpp_python-$version.tar.gz" ]; then
        [ -x "$cache/peer-venv/bin/pip" ] || python3 -m venv "$cache/peer-venv"
        "$cache/peer-venv/bin/pip" -q download --no-deps --no-binary llama-cpp-python -d "$peer" "llama-cpp-python==$version"
    fi
    echo "$sdist_sha256  $peer/llama_cpp_python-$version.tar.gz" | sha256sum --check --quiet || {
        echo "compare-llamacpp: $peer/llama_cpp_python-$version.tar.gz is not the file that was compared; remove it" >&2
        exit 1
    }
    tar -xzf "$peer/llama_cpp_python-$version.tar.gz" -C "$peer"
    repair "$sources/ggml/src/ggml-cpu/amx/mmq.cpp"
}

# gcc 12 declares that ldtilecfg reads 8 bytes of its 64, drops the stores of the tile shapes, and the peer dies
# of an illegal instruction on CPUs with AMX. The barrier changes nothing else.
repair() {
    grep -q 'asm.*"r"(&tc)' "$1" && return
    sed -i 's|^    _tile_loadconfig(&tc);|    __asm__ volatile("" : : "r"(\&tc) : "memory");\n&|' "$1"
    grep -q 'asm.*"r"(&tc)' "$1" || echo "compare-llamacpp: note: the AMX repair found no place in $1" >&2
}

# Release, for exactly this CPU, shared libraries, llama.cpp's other defaults (OpenMP, repacking, llamafile, AMX
# where the CPU has it): the build its users get.
build() {
    [ -f "$peer/$tree/CMakeCache.txt" ] ||
        cmake -S "$sources" -B "$peer/$tree" -DCMAKE_BUILD_TYPE=Release "${instructions[@]}" -DBUILD_SHARED_LIBS=ON \
            -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_UI=OFF >"$peer/configure.log" ||
        { cat "$peer/configure.log" >&2; exit 1; }
    cmake --build "$peer/$tree" -j "${JOBS:-1}" --target llama-batched-bench >"$peer/$tree.log" 2>&1 ||
        { tail -n 30 "$peer/$tree.log" >&2; exit 1; }
}

need python3 python3; need cmake cmake; need g++ g++; need cc gcc; need taskset util-linux
fetch
[ -x "$bench" ] || echo "compare-llamacpp: building llama.cpp, this takes a while (log: $peer/$tree.log)" >&2
build
cc -O2 -std=c17 -D_GNU_SOURCE -pthread -o "$peer/probe" "$here/probe.c"
if [ "${1:-}" = --build-only ]; then
    echo "$bench"
    exit
fi
case " $*" in
    *' --model'* | *' --help'* | *' -h'*) ;;
    *) set -- --model "$("$here/../scripts/fetch-smollm2.sh")" "$@" ;;
esac
exec python3 "$here/compare.py" --peer "$bench" --peer-version "llama-cpp-python $version" \
    --probe "$peer/probe" "$@"
