#!/usr/bin/env bash
# From a fresh machine to a model that answers: installs packages, builds, fetches a small model, and talks.
. "$(dirname "$0")/lib.sh"

usage='usage: scripts/quickstart.sh [--prompt TEXT]

Installs what is missing (apt, with sudo when not root), builds Sennit in build/release, fetches
SmolLM2-135M-Instruct once into ~/.cache/sennit, and answers TEXT. Without --prompt it opens a chat in the
terminal, or answers a question of its own where there is no terminal. Safe to run again.'
prompt= given=
while [ $# -gt 0 ]; do
    case "$1" in
        --prompt) [ $# -gt 1 ] || die "--prompt needs a text: --prompt \"Why is the sky blue?\""; prompt=$2 given=1; shift 2 ;;
        --prompt=*) prompt=${1#*=} given=1; shift ;;
        -h | --help) echo "$usage"; exit 0 ;;
        *) printf '%s\n' "$usage" >&2; die "unknown option '$1'" ;;
    esac
done

need_packages $build_packages $fetch_packages
build_tree build/release sennit -- --preset release -DSENNIT_TESTS=OFF
model=$(scripts/fetch-smollm2.sh)
sennit=build/release/src/sennit
say "ready: $sennit and $model"

if [ -z "$given" ] && [ -t 0 ] && [ -t 1 ]; then
    say "a chat with SmolLM2 (135 million parameters: quick, and not very wise); /help lists the commands"
    exec "$sennit" chat -m "$model" --system "You are a helpful assistant." --temp 0.7 --top-p 0.9
fi
if [ -z "$given" ]; then
    prompt="Why is the sky blue?"
    say "no terminal and no --prompt; asking: $prompt"
fi
exec "$sennit" generate -m "$model" --chat -p "$prompt" -n 200
