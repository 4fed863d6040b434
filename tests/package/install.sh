#!/usr/bin/env bash
# Installs the build into a place of its own, moves it, and builds and runs the examples against it: found through
# pkg-config and through CMake, shared and static.
set -euo pipefail
build=$1 tiny=$2 cc=$3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cmake --install "$build" --prefix "$tmp/first" >"$tmp/log" || { cat "$tmp/log"; exit 1; }
mv "$tmp/first" "$tmp/moved" # nothing inside may know where it was installed
prefix=$tmp/moved
lib=$(dirname "$(find "$prefix" -name sennit.pc)")
export PKG_CONFIG_PATH=$lib
lib=$(dirname "$lib")
[ "$(cd "$prefix/include" && find . -name '*.h' | wc -l)" = "$(find include -name '*.h' | wc -l)" ]
"$prefix/bin/sennit" --version

"$tiny" --out "$tmp/tiny.gguf"
run() { # NAME PROGRAM ARGUMENTS...
    local name=$1
    shift
    LD_LIBRARY_PATH=$lib "$@" >"$tmp/$name.out" || { echo "$name failed:"; cat "$tmp/$name.out"; exit 1; }
    grep -o 'digest [0-9a-f]*' "$tmp/$name.out" | head -n 1
}

for kind in shared static; do
    flags=$(pkg-config --cflags sennit)
    if [ $kind = static ]; then
        libs="$lib/libsennit.a $(pkg-config --static --libs sennit | sed 's/-lsennit//')"
    else
        libs=$(pkg-config --libs sennit)
    fi
    for name in hello batch threads many; do
        # shellcheck disable=SC2086
        "$cc" -std=c17 -Wall -Wextra -Werror $flags "examples/$name.c" -o "$tmp/$name-$kind" -pthread $libs
    done
    if [ $kind = static ] && grep -q libsennit <<<"$(ldd "$tmp/hello-static")"; then
        echo "the static example uses the shared library"
        exit 1
    fi
    cmake -S examples -B "$tmp/cmake-$kind" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
        -DSENNIT_EXAMPLES_STATIC=$([ $kind = static ] && echo ON || echo OFF) >"$tmp/log" 2>&1 &&
        cmake --build "$tmp/cmake-$kind" >>"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
done

first=
for program in hello-shared hello-static cmake-shared/hello cmake-static/hello; do
    digest=$(run "$(echo "$program" | tr / -)" "$tmp/$program" "$tmp/tiny.gguf" "Once upon a time")
    echo "$program: $digest"
    [ -n "$digest" ] && [ "${first:=$digest}" = "$digest" ] || { echo "another digest than $first"; exit 1; }
done
run batch "$tmp/batch-shared" "$tmp/tiny.gguf" "Once upon a time" "Hello" "A third row"
run many "$tmp/many-shared" "$tmp/tiny.gguf" "Once upon a time" "Hello" "A third row"
for name in batch many; do # the same rows, whoever steps the engine
    grep -o 'digest [0-9a-f]*' "$tmp/$name.out" | sort >"$tmp/$name.digests"
done
[ "$(wc -l <"$tmp/many.digests")" = 3 ]
diff "$tmp/batch.digests" "$tmp/many.digests"
run threads "$tmp/threads-static" "$tmp/tiny.gguf" "Once upon a time" 5
grep -q 'one digest' "$tmp/threads.out"
