#!/usr/bin/env bash
# Makes a virtual environment with the newest `openai` package, once, brings it up to date when it is older than a
# day, and prints the path of its Python.
. "$(dirname "$0")/lib.sh"

case "${1:-}" in
    "") ;;
    --help) echo "usage: scripts/fetch-openai.sh    makes a Python with the openai package and prints its path"; exit 0 ;;
    *) die "unknown option '$1'; there are none but --help" ;;
esac

dir=$(cache_dir)/openai
python=$dir/bin/python
stamp=$dir/up-to-date
log=$(cache_dir)/openai.log
version() { "$python" -c 'import openai; print(openai.__version__)' 2>/dev/null; }
is_fresh() { version >/dev/null && [ -n "$(find "$stamp" -mmin -1440 2>/dev/null)" ]; }
install() {
    version >/dev/null || { rm -rf "$dir" && python3 -m venv "$dir"; } || return # a damaged one is made anew
    "$python" -m pip install --quiet --upgrade --only-binary=:all: openai && version >/dev/null
}

mkdir -p "$(cache_dir)"
exec 9>"$dir.lock"
flock 9 # two test runs at once would install over one another
if ! is_fresh; then
    say "fetching the newest openai package with pip"
    export PIP_DISABLE_PIP_VERSION_CHECK=1
    if logged "$log" install 9>&-; then
        touch "$stamp"
    else
        tail -n 5 "$log" >&2
        version >/dev/null || die "pip could not install openai (all of it: $log); is there a network?"
        say "pip could not bring it up to date; going on with the one that is there"
    fi
fi
say "openai $(version): $python"
echo "$python"
