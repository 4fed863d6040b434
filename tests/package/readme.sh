#!/usr/bin/env bash
# The C example of the README is examples/hello.c, word for word, which package-install compiles and runs. And the
# tests that the README names exist.
set -euo pipefail
status=0
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md | diff - <(sed 1d examples/hello.c) ||
    { echo "README.md: its C example differs from examples/hello.c (without the first line)"; status=1; }
lines=$(awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md | grep -c .)
[ "$lines" -le 30 ] || { echo "README.md: the C example has $lines lines"; status=1; }
# Files that the documents link to.
for doc in README.md CONTRIBUTING.md docs/*.md; do
    while read -r target; do
        case "$target" in http*) continue ;; esac
        [ -e "$(dirname "$doc")/${target%%#*}" ] || { echo "$doc: links to $target, which does not exist"; status=1; }
    done < <(grep -oE '\]\([^)#]+[^)]*\)' "$doc" | sed -E 's/^\]\(//; s/\)$//')
done
exit $status
