#!/usr/bin/env bash
# Holds the rules that a compiler does not: layers, banned calls, intrinsics, file lengths, compiler flags, public
# symbols, public headers. Prints one line per breach, and leaves with 1 when there was one.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
export LC_ALL=C

usage='usage: scripts/check.sh [--root DIR] CHECK...
  --source            layers, banned calls, intrinsics, lengths
  --flags BUILD_DIR   the compiler flags of a configured build (docs/numerics.md says why)
  --symbols LIBRARY   the shared library exports sennit_* and nothing else
  --headers           every public header compiles alone, as C17 and as C++
  --docs              docs/contract.md names what cache.h declares and the families that there are; tests that it and
                      docs/testing.md name exist
  --format            applies clang-format to all C files
  --root DIR          the tree to look at (default: the one of this script)
Without arguments: --source --headers --docs.'

breaches=0
breach() { # FILE:LINE MESSAGE
    printf '%s: %s\n' "$1" "$2"
    breaches=$((breaches + 1))
}

# ---- layers --------------------------------------------------------------------------------------------------------
# base · tensor · kernel · {cache, format, text, sample} · {model, prefix} · spec · sched · api · cli · serve
rank() {
    case "$1" in
        base) echo 0 ;; tensor) echo 1 ;; kernel) echo 2 ;;
        cache | format | text | sample) echo 3 ;; model | prefix) echo 4 ;;
        spec) echo 5 ;; sched) echo 6 ;; api) echo 7 ;; cli) echo 8 ;; serve) echo 9 ;;
        kcheck) echo 10 ;; # a tool: sees base, tensor and kernel
        *) echo none ;;
    esac
}

may_include() { # FILE ROOM INCLUDED-ROOM
    [ "$2" = "$3" ] && return 0
    case "$2" in
        kcheck) case "$3" in base | tensor | kernel) return 0 ;; *) return 1 ;; esac ;;
        # Programs use the public headers; only the self-test looks inside. The server is a command of the program.
        cli) case "$1" in */selftest.c) case "$3" in base | kernel | kcheck) return 0 ;; esac ;; esac
            return 1 ;;
        serve) [ "$3" = cli ]; return ;;
    esac
    [ "$(rank "$3")" != 10 ] && [ "$(rank "$3")" -lt "$(rank "$2")" ]
}

check_layers() {
    local file room line target to
    while IFS=: read -r file line target; do
        room=${file#src/}
        room=${room%%/*}
        target=${target#*\"}
        target=${target%%\"*}
        [ "$(rank "$room")" != none ] || { breach "$file:$line" "the folder src/$room has no place in the layers"; continue; }
        case "$target" in
            ../* | */../*) breach "$file:$line" "\"$target\" goes up a folder; name it from src/" ;;
            sennit/*) ;;
            */*)
                to=${target%%/*}
                if [ "$(rank "$to")" = none ]; then
                    breach "$file:$line" "\"$target\" is in no known room"
                elif ! may_include "$file" "$room" "$to"; then
                    breach "$file:$line" "room $room may not include \"$target\""
                fi ;;
        esac
    done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' --include='*.c' --include='*.h' --include='*.inc' src || true)
}

# ---- calls ---------------------------------------------------------------------------------------------------------
# The file without strings, character constants and comments, line by line.
bare() {
    sed -E 's/"([^"\\]|\\.)*"/""/g; s/'\''(\\[^'\'']*|[^'\''\\])'\''/0/g; s#/\*([^*]|\*[^/])*\*/# #g; s#//.*##' "$1" |
        awk '{
            line = $0; out = ""
            while (line != "") {
                if (inside) {
                    at = index(line, "*/")
                    if (!at) { line = "" } else { line = substr(line, at + 2); inside = 0 }
                } else {
                    at = index(line, "/*")
                    if (!at) { out = out line; line = "" }
                    else { out = out substr(line, 1, at - 1); line = substr(line, at + 2); inside = 1 }
                }
            }
            print out
        }'
}

banned() { # FILE TEXT NAMES WHY: calls of names (a|b|c) in the text of FILE
    local line hit
    while IFS=: read -r line hit; do
        hit=$(printf '%s' "$hit" | grep -oE "(^|[^A-Za-z0-9_.>])($3)[[:space:]]*\(" | head -n 1 | tr -cd 'A-Za-z0-9_')
        breach "$1:$line" "$hit(): $4"
    done < <(printf '%s\n' "$2" | grep -nE "(^|[^A-Za-z0-9_.>])($3)[[:space:]]*\(" || true)
}

everywhere='strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atoll|atof|rand|srand|strtok|alloca|system|popen|tmpnam|mktemp'
heap='malloc|calloc|realloc|free|aligned_alloc|posix_memalign|memalign|strdup|strndup|asprintf|vasprintf'
process='exit|_exit|_Exit|abort|getenv|setenv|putenv|printf|fprintf|vprintf|vfprintf|puts|putchar|fputs|fputc|perror|signal|setlocale'
libm='exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sincos|asin|acos|atan|atan2|sinh|cosh|tanh|erf|erfc|cbrt|hypot|tgamma|lgamma'
libm="$libm|$(printf '%s' "$libm" | sed 's/|/f|/g')f"

check_calls() {
    local file room text
    while read -r file; do
        room=${file#src/}
        room=${room%%/*}
        text=$(bare "$file")
        banned "$file" "$text" "$everywhere" "banned everywhere: its bounds or its meaning are not under control"
        case "$room" in cli | serve | kcheck) continue ;; esac
        [ "$file" = src/base/heap.c ] ||
            banned "$file" "$text" "$heap" "all memory of the library goes through sn_alloc and sn_free"
        banned "$file" "$text" "$process" "the library never prints, exits or reads the environment"
        case "$file" in
            src/text/template/*) ;; # the arithmetic of templates is Python's, and touches no logit
            *) banned "$file" "$text" "$libm" "libm differs between machines; use kernel/math.h" ;;
        esac
    done < <(find src -name '*.c' -o -name '*.h' -o -name '*.inc' | grep -v '_tables\.h$' | sort)
}

check_intrinsics() {
    local hit
    while IFS= read -r hit; do
        case "$hit" in src/kernel/x86/* | src/kernel/arm/* | src/base/cpu.c:*) continue ;; esac
        breach "${hit%:*}" "instruction-set headers belong into src/kernel/x86, src/kernel/arm or src/base/cpu.c"
    done < <(grep -rnoE '#[[:space:]]*include[[:space:]]*<([a-z]*intrin|arm_neon|arm_sve|cpuid)\.h>' src include |
        cut -d: -f1,2,3 || true)
}

check_lengths() {
    local n file
    while read -r n file; do
        case "$file" in total | *_tables.h) continue ;; esac # generated tables are data
        [ "$n" -le 900 ] || breach "$file:$n" "longer than 900 lines: split it by what it does"
    done < <(find src include tests examples fuzz bench -name '*.c' -o -name '*.h' -o -name '*.inc' | sort | xargs -r wc -l)
}

check_columns() {
    local hit
    while IFS= read -r hit; do
        breach "$hit" "longer than 118 columns"
    done < <(LC_ALL=C.UTF-8 grep -rnoE '^.{119,}' --include='*.c' --include='*.h' --include='*.inc' \
        src include tests examples fuzz bench | grep -v '_tables\.h:' | cut -d: -f1,2 || true)
}

check_source() {
    check_columns
    check_layers
    check_calls
    check_intrinsics
    check_lengths
}

# ---- flags -----------------------------------------------------------------------------------------------------------
check_flags() { # BUILD_DIR
    local json=$1/compile_commands.json n=0 command file
    [ -f "$json" ] || { breach "$json" "not there: configure the build first"; return; }
    while IFS= read -r command; do
        file=$(printf '%s' "$command" | grep -oE '[^ "]+\.(c|cc)"?$' | tr -d '"')
        n=$((n + 1))
        case "$command" in *-ffp-contract=off*) ;; *) breach "$file" "compiled without -ffp-contract=off" ;; esac
        # The last word counts for the compiler, so any enabling word at all is a breach.
        case "$command" in
            *\ -ffast-math* | *-Ofast* | *-funsafe-math* | *-fassociative-math* | *-ffinite-math* | *-freciprocal-math* | *-mrecip* | *-ffp-contract=fast* | *-ffp-contract=on*)
                breach "$file" "compiled with a flag that lets the compiler change results" ;;
        esac
        case "$command" in *-march=* | *-mtune=native* | *-mcpu=*) breach "$file" "compiled for one CPU: one binary serves all" ;; esac
        case "$file" in
            */src/kernel/x86/* | */src/kernel/arm/* | */src/kernel/scalar/*) ;;
            *) case "$command" in *\ -mavx* | *\ -mfma* | *\ -mf16c* | *\ -msse4*)
                breach "$file" "instruction-set flags outside src/kernel/x86 and src/kernel/scalar" ;; esac ;;
        esac
    done < <(grep -E '^[[:space:]]*"command":' "$json" | sed -E 's/",?[[:space:]]*$//')
    [ "$n" -gt 0 ] || breach "$json" "holds no commands"
}

# ---- symbols and headers ------------------------------------------------------------------------------------------
check_symbols() { # LIBRARY
    local name n=0 symbols
    symbols=$(nm -D --defined-only "$1")
    while read -r name; do
        n=$((n + 1))
        case "$name" in sennit_*) ;; *) breach "$1" "exports '$name'; only sennit_* is public" ;; esac
    done < <(printf '%s\n' "$symbols" | awk '{ sub(/@.*/, "", $NF); print $NF }')
    [ "$n" -gt 0 ] || breach "$1" "exports nothing"
    # Every function that the headers promise is there.
    while read -r name; do
        grep -qE " $name(@|$)" <<<"$symbols" || breach "$1" "does not export $name, which a public header declares"
    done < <(for header in include/sennit/*.h; do declared "$header"; done)
}

check_headers() {
    local h cc=${CC:-cc} cxx=${CXX:-c++} out
    for h in include/sennit/*.h; do
        out=$(printf '#include "sennit/%s"\n' "$(basename "$h")" |
            "$cc" -std=c17 -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Werror -Iinclude -fsyntax-only -x c - 2>&1) ||
            breach "$h" "does not compile alone as C17: $(printf '%s' "$out" | head -n 3 | tr '\n' ' ')"
        command -v "$cxx" >/dev/null || continue
        out=$(printf '#include "sennit/%s"\n' "$(basename "$h")" |
            "$cxx" -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ - 2>&1) ||
            breach "$h" "does not compile alone as C++: $(printf '%s' "$out" | head -n 3 | tr '\n' ' ')"
    done
}

# ---- documents -----------------------------------------------------------------------------------------------------
declared() { # HEADER: the functions that it declares
    tr '\n' ' ' <"$1" | grep -oE 'SENNIT_API[^;({]*[ *]sennit_[a-z0-9_]+\(' | grep -oE 'sennit_[a-z0-9_]+\($' |
        tr -d '(' | sort -u
}

section() { # FILE HEADING: the table rows between "## HEADING..." and the next "## "
    awk -v h="## $2" '/^## / { inside = index($0, h) == 1 } inside && /^\|/' "$1"
}

quoted() { grep -oE '`[^`]+`' | tr -d '`' || true; } # standard input: what stands in backticks

# The contract's document against its header, and the families against their tables, both ways.
check_contract() {
    local doc=docs/contract.md names name short rows n
    names=$(declared include/sennit/cache.h)
    for name in $names; do
        short=${name#sennit_cache_}
        grep -qE "\`($name|$short)[\`(]" "$doc" ||
            breach "$doc" "does not name $name, which include/sennit/cache.h declares: add it to a table of \"Members\""
    done
    while read -r name; do
        case "$name" in *.* | [A-Z]*) continue ;; esac
        name=${name%%(*}
        grep -qxE "(sennit_cache_)?$name" <<<"$names" ||
            breach "$doc" "a table of \"Members\" names $name(), which include/sennit/cache.h does not declare"
    done < <(section "$doc" Members | awk -F'|' '{ print (NF > 4 ? $3 : $2) }' | quoted) # seed's name first, or not
    rows=$(section "$doc" Families)
    while read -r name; do
        n=$(grep -c "^| $name |" <<<"$rows" || true)
        [ "$n" = 2 ] || breach "$doc" "family '$name' has $n rows in the tables of \"Families\", not one in each of the two"
    done < <(sed -nE 's/^SN_FAMILY\(([a-z0-9_]+)\).*/\1/p; s/^SN_FAMILY_AS\([a-z0-9_]+, "([a-z0-9-]+)"\).*/\1/p' \
        src/cache/families.list)
}

# Tests and their files, as the last column of a table names them.
check_named_tests() {
    local doc name
    for doc in docs/contract.md:Rules docs/testing.md:Scenarios; do
        [ -n "$(section "${doc%%:*}" "${doc#*:}")" ] || breach "${doc%%:*}" "has no table under \"${doc#*:}\""
        while read -r name; do
            case "$name" in
                *' '* | *-* | -*) continue ;;
                *.c | *.sh) find tests -name "${name##*/}" | grep -q . || breach "${doc%%:*}" "names $name, which is not in tests" ;;
                *_*) grep -rqE "\b$name\(" tests --include='*.c' --include='*.sh' ||
                    breach "${doc%%:*}" "names the test $name, which is not in tests" ;;
            esac
        done < <(section "${doc%%:*}" "${doc#*:}" | awk -F'|' '{ print $(NF - 1) }' | quoted)
    done
}

check_docs() {
    check_contract
    check_named_tests
}

apply_format() {
    command -v clang-format >/dev/null || { echo "clang-format is not installed (apt-get install clang-format)"; exit 1; }
    git ls-files '*.c' '*.h' | xargs -r clang-format -i
}

# ---- main --------------------------------------------------------------------------------------------------------------
cd "$here"
[ $# -gt 0 ] || set -- --source --headers --docs
while [ $# -gt 0 ]; do
    case "$1" in
        --root) cd "$2"; shift 2 ;;
        --source) check_source; shift ;;
        --flags) check_flags "$2"; shift 2 ;;
        --symbols) check_symbols "$2"; shift 2 ;;
        --headers) check_headers; shift ;;
        --docs) check_docs; shift ;;
        --format) apply_format; shift ;;
        -h | --help) echo "$usage"; exit 0 ;;
        *) printf '%s\n' "$usage" >&2; exit 2 ;;
    esac
done
if [ "$breaches" -gt 0 ]; then
    echo "check.sh: $breaches breaches"
    exit 1
fi
echo "check.sh: no breaches"
