#!/usr/bin/env bash
# A cache family outside the library, as its author does it: Sennit is installed into a place of its own, the example is
# built against that and tried by the installed conformance program, and its wrong variants are caught by their twin.
# usage: own_family.sh BUILD_DIR TINY_MODEL CC OPERATIONS [SANITIZERS]
set -euo pipefail
build=$1 tiny=$2 cc=$3 ops=$4 sanitizers=${5:-}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/prefix
launcher=() flags=() program=ON
if [ -n "$sanitizers" ]; then # the object is checked too; programs that link a sanitized library are not tried
    launcher=(env -u LD_PRELOAD "$PWD/scripts/no-aslr.sh") program=OFF
    flags=("-DCMAKE_C_FLAGS=-fsanitize=$sanitizers -fno-sanitize-recover=all")
fi
quietly() { "$@" >"$tmp/log" 2>&1 || { echo "failed: $*"; cat "$tmp/log"; exit 1; }; }

quietly cmake --install "$build" --prefix "$prefix"
quietly cmake -S examples/own-family -B "$tmp/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
    -DOWN_FAMILY_PROGRAM=$program "${flags[@]}"
quietly cmake --build "$tmp/build"
object=$tmp/build/libown-family.so
[ -z "$(nm -D --undefined-only "$object" | grep sennit)" ] || { echo "the object needs the library"; exit 1; }
try() { "${launcher[@]}" "$prefix/bin/sennit-conformance" "$@"; }
refused() { # WORDS ARGUMENTS...
    local words=$1
    shift
    ! try "$@" >"$tmp/log" 2>&1 && grep -q -- "$words" "$tmp/log" || { echo "not refused: $*"; cat "$tmp/log"; exit 1; }
}

try --load "$object" --family f8 --ops "$ops" --seed 1
try --load "$object" --family f8-e5m2 --ops "$((ops / 2))" --seed 2
try --load "$object" --family f8 --ops "$((ops / 2))" --seed 3 --hostile
for variant in 1 2 3 4 5; do
    quietly try --load "$object" --family f8 --ops 3000 --seed 1 --wrong $variant
    grep -h -E '^(wrong|caught)' "$tmp/log"
    grep -q '^caught' "$tmp/log"
done
refused 'no such variant 6' --load "$object" --family f8 --wrong 6
refused 'choose one with --family' --load "$object" --ops 1
refused "there is no family 'f9'; there are: f8, f8-e5m2" --load "$object" --family f9
refused 'cannot load' --load "$tmp/none.so"
refused 'does not export sennit_conformance_families' --load "$(find "$prefix" -name 'libsennit.so' | head -n 1)"

# The library's own families, by the same program.
try --list | grep -qx affine
try --family affine --ops 120 --seed 1 >"$tmp/log"

[ $program = ON ] || exit 0
LD_LIBRARY_PATH=$(dirname "$(find "$prefix" -name libsennit.so | head -n 1)")
export LD_LIBRARY_PATH
"$tiny" --out "$tmp/tiny.gguf"
bytes() { "$tmp/build/generate" "$tmp/tiny.gguf" 'Once upon a time' "$1" | grep -a -o "\[$1, [0-9]* bytes" | grep -o '[0-9]* bytes'; }
half=$(bytes f8) whole=$(bytes plain)
echo "cache of f8: $half per token, of plain: $whole"
[ "${half% bytes}" -lt "$((${whole% bytes} * 6 / 10))" ]
bytes f8-e5m2 >/dev/null
