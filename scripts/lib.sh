# Functions that the scripts share. Source it; it changes to the project's root directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

started=$SECONDS
say() { printf '==> [%4ds] %s\n' "$((SECONDS - started))" "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Runs a command as root: directly, or through sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "installing packages needs root: run this as root, or install sudo"
    fi
}

# logged LOG COMMAND...: runs it with its output in LOG, and says every 15 seconds how far that is.
logged() {
    local log=$1 pid tick=0
    shift
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        tick=$((tick + 1))
        if [ $((tick % 75)) = 0 ]; then say "... $(tail -n 1 "$log" | tr -cd '[:print:]' | cut -c 1-80)"; fi
    done
    wait "$pid"
}

have_package() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Installs those of the Debian packages that are missing; asks nothing.
need_packages() {
    local missing=() p
    command -v dpkg-query >/dev/null || die "this script installs Debian packages; elsewhere install by hand: $*"
    for p in "$@"; do
        have_package "$p" || missing+=("$p")
    done
    if [ ${#missing[@]} = 0 ]; then
        say "all $# packages are installed"
        return
    fi
    say "installing ${missing[*]}"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0) log
    [ "$(id -u)" = 0 ] || ! command -v sudo >/dev/null || sudo -v # asks for the password, if it has to, before the log
    log=$(mktemp)
    # A package list that is out of date gives 404s, so it is refreshed first; a failing third-party source is no
    # reason to stop as long as the packages can be had.
    logged "$log" as_root "${apt[@]}" update ||
        say "apt-get update reported errors; going on with the lists that are there"
    if ! logged "$log" as_root "${apt[@]}" install --no-install-recommends "${missing[@]}"; then
        tail -n 30 "$log" >&2
        die "apt-get could not install: ${missing[*]} (all of it: $log)"
    fi
    rm -f "$log"
}

build_packages="build-essential cmake ninja-build pkg-config libpcre2-dev libjansson-dev libxxhash-dev libmicrohttpd-dev"
fetch_packages="ca-certificates python3 python3-pip"

jobs_here() { nproc; }

# build_tree DIRECTORY TARGETS... -- CMAKE-ARGUMENTS...: configures and builds; a log is shown when it fails.
build_tree() {
    local dir=$1 targets=() log
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        targets+=("$1")
        shift
    done
    shift || true
    mkdir -p "$dir"
    log=$dir/build.log
    say "building $dir"
    configure_and_build() {
        cmake "$@" && cmake --build "$dir" -j "$(jobs_here)" ${targets[@]+--target "${targets[@]}"}
    }
    if ! logged "$log" configure_and_build "$@"; then
        tail -n 60 "$log" >&2
        die "the build in $dir failed (all of it: $log)"
    fi
}

# The root of what was fetched.
cache_dir() { printf '%s/sennit\n' "${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}"; }
