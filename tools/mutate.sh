#!/usr/bin/env bash
# Is the conformance suite able to fail? Breaks the library in one small way at a time and runs the suite on it.
set -euo pipefail
cd "$(dirname "$0")/.."

usage='usage: tools/mutate.sh [-j N] [--ops N] [--seed S] [--suite-only] [PATTERN ...]

Each mutant of tools/mutants.list is put into a copy of the source, the conformance program is built, and it runs the
family that the mutant names for 2,000 operations, 60 seconds at most. The mutant is caught when the run fails. Without
a mutant every family must pass first. PATTERN: only mutants whose name or aim contains one of them.
What that run lets pass is tried on the named cache tests. Prints a line per mutant and the share that the suite
caught; exit status 1 below 95 %.
  -j N      trees to work in at once (default: one per CPU)
  --ops N   operations (2000)
  --seed S  of the run (1)
  --suite-only  leave the named tests out'
named_too=1 jobs=$(nproc) ops=2000 seed=1 patterns=()
while [ $# -gt 0 ]; do
    case "$1" in
        -j) jobs=$2; shift 2 ;;
        --ops) ops=$2; shift 2 ;;
        --seed) seed=$2; shift 2 ;;
        --suite-only) named_too=; shift ;;
        -h | --help) echo "$usage"; exit 0 ;;
        -*) printf '%s\n' "$usage" >&2; exit 2 ;;
        *) patterns+=("$1"); shift ;;
    esac
done

work=build/mutate
rm -rf "$work/out"
mkdir -p "$work/out"

# Splits the list: one directory per mutant with `aim`, `family`, `file`, `old`, `new`.
split_list() {
    awk -v out="$work/out" '
        function finish() {
            if (name != "") {
                printf "%s", old > (dir "/old"); close(dir "/old")
                printf "%s", new > (dir "/new"); close(dir "/new")
            }
            name = ""; old = new = ""
        }
        /^#/ { next }
        /^= / {
            finish()
            if (NF != 5) { print "tools/mutants.list:" NR ": = name aim family file" > "/dev/stderr"; exit 1 }
            name = $2; dir = sprintf("%s/%04d-%s", out, ++n, name)
            system("mkdir -p " dir)
            print $3 > (dir "/aim"); print $4 > (dir "/family"); print $5 > (dir "/file")
            close(dir "/aim"); close(dir "/family"); close(dir "/file")
            next
        }
        /^- / { old = old (old == "" ? "" : "\n") substr($0, 3); next }
        /^[+]/ { new = new (new == "" ? "" : "\n") substr($0, 3); next }
        /^$/ { next }
        { print "tools/mutants.list:" NR ": neither =, -, + nor #" > "/dev/stderr"; exit 1 }
        END { finish() }' tools/mutants.list
}

wanted() { # directory
    [ ${#patterns[@]} -eq 0 ] && return 0
    local what
    what="$(basename "$1") $(cat "$1/aim")"
    for p in "${patterns[@]}"; do
        [[ $what == *$p* ]] && return 0
    done
    return 1
}

# tree K: a copy of the source with a build directory of its own; unchanged files keep their times.
prepare_tree() {
    local tree=$work/tree$1
    rm -rf "$tree"
    mkdir -p "$tree"
    git ls-files -co --exclude-standard | tar -c --files-from - | tar -x -C "$tree"
    local launcher=()
    command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
    cmake -S "$tree" -B "$tree/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSENNIT_TESTS=ON -DSENNIT_WERROR=OFF \
        "${launcher[@]}" >"$tree/cmake.log" 2>&1 || { cat "$tree/cmake.log"; exit 1; }
    build "$1" || { cat "$tree/build.log"; exit 1; }
}

build() { ninja -C "$work/tree$1/build" conformance >"$work/tree$1/build.log" 2>&1; }

# suite K FAMILY LOG
suite() {
    local status=0
    timeout 60 "$(find "$work/tree$1/build" -name conformance -type f -perm -u+x | head -1)" \
        --family "$2" --ops "$ops" --seed "$seed" >"$3" 2>&1 || status=$?
    [ $status -ne 124 ] || echo "it does not end within 60 s" >>"$3"
    return $status
}

# named K LOG: the tests of tests/cache but the suite; prints the first that fails.
named() {
    local build=$work/tree$1/build test
    for test in $(ninja -C "$build" -t targets all | grep -o '^test-cache-[a-z-]*' | sort -u); do
        ninja -C "$build" "$test" >"$2" 2>&1 || return 1
        timeout 300 "$(find "$build" -name "$test" -type f)" >"$2" 2>&1 || { echo "$test"; return 0; }
    done
}

# The text of `old` must be there exactly once.
put_in() { # directory file
    OLD=$(cat "$1/old") NEW=$(cat "$1/new") perl -0777 -pi -e '
        my $n = () = /\Q$ENV{OLD}\E/g;
        if ($n != 1) { print STDERR "its text is there $n times\n"; exit 1 }
        s/\Q$ENV{OLD}\E/$ENV{NEW}/' "$2"
}

try_mutant() { # tree directory
    local k=$1 dir=$2 file by= result started=$SECONDS
    file=$(cat "$dir/file")
    if [ ! -f "$file" ]; then
        result="BAD (no $file)"
    elif ! put_in "$dir" "$work/tree$k/$file" 2>"$dir/log"; then
        result="BAD ($(head -1 "$dir/log"))"
    elif ! build "$k"; then
        result="BAD (does not build)"
        cp "$work/tree$k/build.log" "$dir/log"
    elif suite "$k" "$(cat "$dir/family")" "$dir/log"; then
        [ -z "$named_too" ] || by=$(named "$k" "$dir/log")
        result=${by:+named}
        result=${result:-SURVIVED}
    else
        result=caught
    fi
    [ ! -f "$file" ] || { cp "$file" "$work/tree$k/$file" && touch "$work/tree$k/$file"; }
    printf '%s\n' "$result" >"$dir/result"
    printf '%-9s %-38s %-24s %-20s %3d s  %s\n' "$result" "$(basename "$dir" | cut -c6-)" "$(cat "$dir/aim")" \
        "$(cat "$dir/family")" $((SECONDS - started)) \
        "$by$([ "$result" = caught ] && grep -v '^seed\|^wrong\|FAILED at' "$dir/log" | tail -1 | sed "s|.*/tests/|tests/|" | cut -c1-90)"
}

split_list
todo=()
for dir in "$work"/out/*/; do
    wanted "${dir%/}" && todo+=("${dir%/}")
done
[ ${#todo[@]} -gt 0 ] || { echo "no mutant's name or aim contains: ${patterns[*]}" >&2; exit 2; }
[ "$jobs" -le ${#todo[@]} ] || jobs=${#todo[@]}
for ((k = 0; k < jobs; k++)); do prepare_tree "$k"; done
for family in $(for d in "${todo[@]}"; do cat "$d/family"; done | sort -u); do
    suite 0 "$family" "$work/control.log" || { echo "family $family fails without a mutant:"; cat "$work/control.log"; exit 1; }
done
for ((k = 0; k < jobs; k++)); do
    (for ((i = k; i < ${#todo[@]}; i += jobs)); do try_mutant "$k" "${todo[$i]}"; done) &
done
wait

count() { grep -lx "$1" "$work"/out/*/result 2>/dev/null | wc -l || true; }
caught=$(count caught) named=$(count named) survived=$(count SURVIVED) bad=$(grep -l '^BAD' "$work"/out/*/result 2>/dev/null | wc -l || true)
all=$((caught + named + survived))
echo "$all mutants: the suite caught $caught ($((1000 * caught / (all + (all == 0))))/1000) with $ops operations and seed" \
    "$seed, named tests $named more; $survived survived; $bad could not be tried"
[ "$bad" -eq 0 ] && [ $((100 * caught)) -ge $((95 * all)) ]
