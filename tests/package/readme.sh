#!/usr/bin/env bash
# The C example of the README is examples/hello.c, word for word, which package-install compiles and runs. And the
# tests that the README names exist. usage: readme.sh BUILD_DIR
set -euo pipefail
build=$1
status=0
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md | diff - <(sed 1d examples/hello.c) ||
    { echo "README.md: its C example differs from examples/hello.c (without the first line)"; status=1; }
lines=$(awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md | grep -c .)
[ "$lines" -le 30 ] || { echo "README.md: the C example has $lines lines"; status=1; }
# Tests that the promises name.
tests=$(ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p')
named=$(grep -E '^\|.*\| `[a-z0-9-]+`' README.md | sed -E 's/.*\| (`[^|]*) \|$/\1/' | grep -oE '`[a-z0-9-]+`' | tr -d '`' | sort -u)
[ "$(printf '%s\n' "$named" | wc -l)" -ge 10 ] || { echo "README.md: the promises name no tests any more"; status=1; }
for name in $named; do
    grep -qx -- "$name" <<<"$tests" || { echo "README.md: there is no test '$name'"; status=1; }
done
# Files that the documents link to.
for doc in README.md CONTRIBUTING.md docs/*.md; do
    while read -r target; do
        case "$target" in http*) continue ;; esac
        [ -e "$(dirname "$doc")/${target%%#*}" ] || { echo "$doc: links to $target, which does not exist"; status=1; }
    done < <(grep -oE '\]\([^)#]+[^)]*\)' "$doc" | sed -E 's/^\]\(//; s/\)$//')
done
# Paths that they name in backticks.
for doc in README.md CONTRIBUTING.md CHANGELOG.md docs/*.md; do
    while read -r path; do
        case "$path" in *'<'* | *'*'* | *…*) continue ;; esac # patterns
        [ -e "$path" ] || [ -e "$(dirname "$doc")/$path" ] && continue
        case "$path" in # a source file may go without its folder
            */* | *.md) ;;
            *) [ -z "$(find src include tests -name "$path")" ] || continue ;;
        esac
        echo "$doc: names $path, which does not exist"
        status=1
    done < <(grep -oE '`[^` ]+`' "$doc" | tr -d '`' |
        grep -E '^((src|docs|scripts|tests|include|examples|bench|fuzz|tools|cmake)/.*|[A-Za-z_]+\.(md|c|h|sh|list))$' | sort -u)
done
# Tests that any document names.
for doc in README.md CONTRIBUTING.md docs/*.md; do
    while read -r name; do
        grep -qx -- "$name" <<<"$tests" || { echo "$doc: there is no test '$name'"; status=1; }
    done < <(grep -oE '(test|tests) `[a-z0-9-]+`' "$doc" | grep -oE '`[^`]+`' | tr -d '`' | sort -u)
done
exit $status
