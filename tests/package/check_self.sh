#!/usr/bin/env bash
# scripts/check.sh finds what it is there to find: every rule is broken once in a small tree of its own.
set -euo pipefail
check=$PWD/scripts/check.sh
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp"/src/{base,tensor,kernel/x86,cache,text,model,sched,api,cli,kcheck,odd} "$tmp"/{include/sennit,tests,examples,fuzz,bench}
cd "$tmp"
status=0

# A clean tree, with words that only look like breaches.
cat >src/model/good.c <<'C'
#include "base/base.h"
#include "cache/pages.h"
#include "sennit/model.h"
/* printf("in a comment"); malloc(3)
   exit(1); it's "open */
/* ································································································  118 characters */
static const char *text = "malloc(1) // strcpy(a, b)";
int good(struct x *x) { return x->free(x) + my_exit(1) + sn_free(0) + snprintf(0, 0, text) + '"'; }
C
echo '#include "model/good.h"' >src/model/also.c
echo 'int f(void) { printf("x"); exit(1); }' >src/cli/main.c
"$check" --root "$tmp" --source >out || { cat out; echo "a clean tree was refused"; status=1; }

expect() { # FILE TEXT MESSAGE
    printf '%s\n' "$2" >"$1"
    if "$check" --root "$tmp" --source >out; then
        echo "not found: $2 in $1"
        status=1
    elif ! grep -q "^$1:.*$3" out; then
        echo "wrong message for '$2' in $1:"
        cat out
        status=1
    fi
    rm "$1"
}
expect src/base/a.c '#include "model/model.h"' 'room base may not include'
expect src/cache/a.c '#include "text/bpe.h"' 'room cache may not include'
expect src/model/a.c '#  include "sched/engine.h"' 'room model may not include'
expect src/cli/a.c '#include "model/model.h"' 'room cli may not include'
expect src/kcheck/a.c '#include "cache/pages.h"' 'room kcheck may not include'
expect src/api/a.c '#include "kcheck/kcheck.h"' 'room api may not include'
expect src/api/b.c '#include "../sched/engine.h"' 'goes up a folder'
expect src/odd/a.c '#include "base/base.h"' 'has no place in the layers'
expect src/text/a.c 'void f(void) { strcpy(a, b); }' 'strcpy(): banned everywhere'
expect src/cli/b.c 'int f(void) { return atoi (x); }' 'atoi(): banned everywhere'
expect src/text/b.c 'void *f(void) { return malloc(1); }' 'malloc(): all memory'
expect src/sched/a.c 'void f(void) { fprintf(stderr, "x"); }' 'fprintf(): the library never prints'
expect src/model/b.c 'void f(void) { if (x) exit(1); }' 'exit(): the library never'
expect src/model/c.c 'float f(float x) { return expf(x); }' 'expf(): libm differs'
expect src/kernel/d.c 'double f(double x) { return 1+sin( x ); }' 'sin(): libm differs'
expect src/kernel/e.c '#include <immintrin.h>' 'instruction-set headers'
expect src/cache/wide.c "int f(void); /* $(printf 'x%.0s' $(seq 102)) */" 'longer than 118 columns'
expect src/cache/long.c "$(yes '/**/' | head -n 901)" 'longer than 900 lines'

# Flags.
entry() { printf '[\n{\n  "directory": "/b",\n  "command": "cc %s -o x.o -c %s",\n  "file": "%s"\n}\n]\n' "$1" "$2" "$2" >compile_commands.json; }
flags() { # good|bad FLAGS FILE
    entry "$2" "$3"
    if "$check" --root "$tmp" --flags "$tmp" >out; then r=good; else r=bad; fi
    [ "$r" = "$1" ] || { echo "flags '$2' for $3: $r, expected $1"; cat out; status=1; }
}
flags good '-O3 -ffp-contract=off' /s/src/api/a.c
flags good '-O3 -ffp-contract=off -mavx2 -mfma' /s/src/kernel/x86/avx2/a.c
flags bad '-O3' /s/src/api/a.c
flags bad '-O3 -ffp-contract=off -ffast-math' /s/src/api/a.c
flags bad '-Ofast -ffp-contract=off' /s/src/api/a.c
flags bad '-O3 -ffp-contract=off -march=native' /s/src/api/a.c
flags bad '-O3 -ffp-contract=off -mavx2' /s/src/api/a.c

# Headers and symbols.
echo 'size_t sennit_x(void);' >include/sennit/bad.h
if "$check" --root "$tmp" --headers >out; then echo "a header that does not compile alone passed"; status=1; fi
rm include/sennit/bad.h
printf 'int sennit_ok(void) { return 1; }\nint leaked(void) { return 2; }\n' >lib.c
echo 'SENNIT_API int sennit_ok(void);' >include/sennit/ok.h
cc -shared -fPIC -o lib.so lib.c
if "$check" --root "$tmp" --symbols lib.so >out || ! grep -q "exports 'leaked'" out; then
    echo "a leaked symbol passed"
    status=1
fi

# Documents.
mkdir -p docs tests/cache
cat >include/sennit/cache.h <<'C'
SENNIT_API int sennit_cache_trim(int n);
SENNIT_API const char *
sennit_donor_name(void);
C
echo 'SN_FAMILY(plain)' >src/cache/families.list
echo 'static void a_named_test(void **state) {}' >tests/cache/a_test.c
good_documents() {
    cat >docs/contract.md <<'M'
## Members
| seed | function | what |
|---|---|---|
| `cutRows` | `trim(n)`, `sennit_donor_name` | `unknown` words here |
## Families
| plain | a |
| plain | b |
## Rules
| a | `sentence_word` | `a_named_test`, `a_test.c`, `some-name` |
M
    printf '## Scenarios\n| what | test |\n|---|---|\n| x | `a_named_test` |\n' >docs/testing.md
}
documents() { # MESSAGE SED-EXPRESSION [FILE]: after the edit the check must say so; without a message it must pass
    good_documents
    [ -z "$2" ] || sed -i -E "$2" "docs/${3:-contract.md}"
    if "$check" --root "$tmp" --docs >out; then
        [ -z "$1" ] || { echo "not found in a document: $1"; status=1; }
    elif [ -z "$1" ] || ! grep -q -- "$1" out; then
        echo "wrong message, expected '$1':"
        cat out
        status=1
    fi
}
documents '' ''
documents 'does not name sennit_cache_trim' 's/`trim.n.`, //'
documents 'does not name sennit_donor_name' 's/, `sennit_donor_name`//'
documents 'names gone(), which include/sennit/cache.h does not declare' 's/`trim.n.`/&, `gone(n)`/'
documents "family 'plain' has 1 rows" '/plain . a/d'
documents 'names the test an_absent_test' 's/`a_named_test`/`an_absent_test`/'
documents 'names b_test.c' 's/a_test.c/b_test.c/'
documents 'names the test an_absent_test' 's/`a_named_test`/`an_absent_test`/' testing.md
documents 'has no table under "Scenarios"' '/^## /d' testing.md
exit $status
