#!/usr/bin/env bash
# From a fresh machine to a model that answers: installs packages, builds, fetches a small model, and talks.
. "$(dirname "$0")/lib.sh"

usage='usage: scripts/quickstart.sh [--prompt TEXT | --serve [--port N]]

Installs what is missing (apt, with sudo when not root), builds Sennit in build/release, fetches
SmolLM2-135M-Instruct once into ~/.cache/sennit, and answers TEXT. Without --prompt it opens a chat in the
terminal, or answers a question of its own where there is no terminal. Safe to run again.

  --serve   start the server on 127.0.0.1 instead, in the foreground, and say how to ask it; Ctrl-C ends it
  --port N  the port of the server (8080)'
prompt= given= serve= port=
while [ $# -gt 0 ]; do
    case "$1" in
        --prompt) [ $# -gt 1 ] || die "--prompt needs a text: --prompt \"Why is the sky blue?\""; prompt=$2 given=1; shift 2 ;;
        --prompt=*) prompt=${1#*=} given=1; shift ;;
        --serve) serve=1; shift ;;
        --port) [ $# -gt 1 ] || die "--port needs a number: --port 8080"; port=$2; shift 2 ;;
        --port=*) port=${1#*=}; shift ;;
        -h | --help) echo "$usage"; exit 0 ;;
        *) printf '%s\n' "$usage" >&2; die "unknown option '$1'" ;;
    esac
done
[ -z "$serve" ] || [ -z "$given" ] || die "--prompt asks one question, --serve starts the server: give one of them"
[ -z "$port" ] || [ -n "$serve" ] || die "--port belongs to --serve"
port=${port:-8080}
[[ $port =~ ^[1-9][0-9]{0,4}$ ]] && [ "$port" -le 65535 ] || die "--port '$port' is not a port: 1 to 65535"

need_packages $build_packages $fetch_packages
build_tree build/release sennit -- --preset release -DSENNIT_TESTS=OFF
model=$(scripts/fetch-smollm2.sh)
sennit=build/release/src/sennit
say "ready: $sennit and $model"

if [ -n "$serve" ]; then
    say "starting the server; Ctrl-C ends it. Ask it from another terminal:"
    cat >&2 <<END

curl http://127.0.0.1:$port/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 100}'

END
    exec "$sennit" serve -m "$model" --port "$port"
fi
if [ -z "$given" ] && [ -t 0 ] && [ -t 1 ]; then
    say "a chat with SmolLM2 (135 million parameters: quick, and not very wise); /help lists the commands"
    exec "$sennit" chat -m "$model" --system "You are a helpful assistant." --temp 0.7 --top-p 0.9
fi
if [ -z "$given" ]; then
    prompt="Why is the sky blue?"
    say "no terminal and no --prompt; asking: $prompt"
fi
exec "$sennit" generate -m "$model" --chat -p "$prompt" -n 200
