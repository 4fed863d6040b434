#!/usr/bin/env bash
# Installs, builds and runs every test through ctest. CI runs this and nothing else.
. "$(dirname "$0")/lib.sh"

usage='usage: scripts/test.sh [--quick | --long]

Installs what is missing (apt, with sudo when not root), fetches the small model once and the newest openai package
for Python once a day, and builds five trees with warnings as errors. Then it runs ctest in each: the address and
undefined-behaviour sanitizers on the tiny models, the thread sanitizer on what uses threads, the golden digests as
built by clang and as built for debugging, and all tests of the release build.
The last thing printed is the summary of the release build, unless an earlier tree failed. At most 15 minutes on two
cores.
  --quick  only the release build
  --long   also the tests with the label "long", in the release build'
long= quick=
for arg in "$@"; do
    case "$arg" in
        --long) long=1 ;;
        --quick) quick=1 ;;
        -h | --help) echo "$usage"; exit 0 ;;
        *) printf '%s\n' "$usage" >&2; die "unknown option '$arg'" ;;
    esac
done

need_packages $build_packages $fetch_packages libcmocka-dev clang qemu-user binutils python3-venv curl openssl
SENNIT_SMOLLM2=$(scripts/fetch-smollm2.sh) || SENNIT_SMOLLM2=
[ -n "$SENNIT_SMOLLM2" ] || say "WITHOUT THE MODEL: the tests that need it will be skipped"
if [ -z "${SENNIT_OPENAI_PYTHON:-}" ]; then
    SENNIT_OPENAI_PYTHON=$(scripts/fetch-openai.sh) || SENNIT_OPENAI_PYTHON=
fi
[ -n "$SENNIT_OPENAI_PYTHON" ] || say "WITHOUT THE PACKAGE openai: the tests of the server with it will be SKIPPED"
export SENNIT_SMOLLM2 SENNIT_OPENAI_PYTHON

failed=()
# run_tests NAME DIRECTORY CTEST-ARGUMENTS...
run_tests() {
    local name=$1 dir=$2
    shift 2
    say "testing $name"
    ctest --test-dir "$dir" --output-on-failure --no-tests=error -j "$(jobs_here)" "$@" || failed+=("$name")
}

build_tree build/release -- --preset release -DSENNIT_WERROR=ON -DSENNIT_TESTS=ON
scripts/check.sh --source --flags build/release || failed+=("check.sh")
if [ -z "$quick" ]; then
    build_tree build/asan -- --preset asan -DSENNIT_WERROR=ON
    run_tests "address and undefined-behaviour sanitizers" build/asan -LE long
    build_tree build/tsan threads-tests -- --preset tsan -DSENNIT_WERROR=ON
    run_tests "thread sanitizer" build/tsan -L threads -LE long
    build_tree build/clang sennit conformance test-kcheck test-engine-exact-tiny test-engine-exact-smollm2 -- \
        -S . -B build/clang -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang \
        -DSENNIT_WERROR=ON
    run_tests "golden digests as built by clang" build/clang -R '^(engine-exact-.*-golden|kcheck)$'
    build_tree build/debug test-engine-exact-tiny -- --preset debug -DSENNIT_WERROR=ON
    run_tests "golden digests as built for debugging" build/debug -R '^engine-exact-tiny-golden$'
fi
if [ -n "$long" ]; then
    run_tests "release, all tests" build/release
else
    run_tests "release" build/release -LE long
fi
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
