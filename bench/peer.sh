# The peer, llama.cpp, as the bench scripts build it. Source it; it defines functions and does nothing else.
#
# llama.cpp comes as the sources inside the llama-cpp-python package and is built for this CPU under
# ${XDG_CACHE_HOME:-~/.cache}/sennit/peer (once; JOBS=n for n compiler jobs, default 1). Needs python3 with venv, g++
# and cmake.

peer_version=0.3.36
peer_sdist_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
bench_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peer_cache=${XDG_CACHE_HOME:-$HOME/.cache}/sennit
peer=$peer_cache/peer
peer_sources=$peer/llama_cpp_python-$peer_version/vendor/llama.cpp

peer_say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }

peer_need() {
    command -v "$1" >/dev/null || { peer_say "$1 is missing: install $2"; exit 1; }
}

peer_fetch() {
    [ -f "$peer_sources/CMakeLists.txt" ] && return
    local sdist=$peer/llama_cpp_python-$peer_version.tar.gz
    mkdir -p "$peer"
    if [ ! -f "$sdist" ]; then
        [ -x "$peer_cache/peer-venv/bin/pip" ] || python3 -m venv "$peer_cache/peer-venv"
        "$peer_cache/peer-venv/bin/pip" -q download --no-deps --no-binary llama-cpp-python -d "$peer" \
            "llama-cpp-python==$peer_version"
    fi
    echo "$peer_sdist_sha256  $sdist" | sha256sum --check --quiet || {
        peer_say "$sdist is not the file that was compared; remove it"
        exit 1
    }
    tar -xzf "$sdist" -C "$peer"
    peer_repair "$peer_sources/ggml/src/ggml-cpu/amx/mmq.cpp"
}

# gcc 12 declares that ldtilecfg reads 8 bytes of its 64, drops the stores of the tile shapes, and the peer dies
# of an illegal instruction on CPUs with AMX. The barrier changes nothing else.
peer_repair() {
    grep -q 'asm.*"r"(&tc)' "$1" && return
    sed -i 's|^    _tile_loadconfig(&tc);|    __asm__ volatile("" : : "r"(\&tc) : "memory");\n&|' "$1"
    grep -q 'asm.*"r"(&tc)' "$1" || peer_say "note: the AMX repair found no place in $1"
}

# peer_build amx|noamx TARGET: builds one of its programs and prints where that is. Release, for exactly this CPU,
# shared libraries, llama.cpp's other defaults (OpenMP, repacking, llamafile, AMX where the CPU has it): the build its
# users get. noamx is a tree of its own with AVX-512 and VNNI and without AMX tiles. The web page that its server can
# carry is left out: it would have to be downloaded.
peer_build() {
    local tree=build instructions=(-DGGML_NATIVE=ON)
    if [ "$1" = noamx ]; then
        tree=build-noamx
        instructions=(-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
            -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON)
    fi
    [ -x "$peer/$tree/bin/$2" ] || peer_say "building llama.cpp, this takes a while (log: $peer/$tree.log)"
    # Trees that were configured before the server was wanted are configured again: what is built stays.
    grep -qs '^LLAMA_BUILD_SERVER:BOOL=ON' "$peer/$tree/CMakeCache.txt" ||
        cmake -S "$peer_sources" -B "$peer/$tree" -DCMAKE_BUILD_TYPE=Release "${instructions[@]}" \
            -DBUILD_SHARED_LIBS=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
            -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF \
            -DLLAMA_USE_PREBUILT_UI=OFF >"$peer/configure.log" 2>&1 ||
        { cat "$peer/configure.log" >&2; exit 1; }
    cmake --build "$peer/$tree" -j "${JOBS:-1}" --target "$2" >"$peer/$tree.log" 2>&1 ||
        { tail -n 30 "$peer/$tree.log" >&2; exit 1; }
    echo "$peer/$tree/bin/$2"
}

# Builds the placement probe and prints where it is.
peer_probe() {
    cc -O2 -std=c17 -D_GNU_SOURCE -pthread -o "$peer/probe" "$bench_dir/probe.c"
    echo "$peer/probe"
}
