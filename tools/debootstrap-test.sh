#!/usr/bin/env bash
# Proves the two commands of the README in a minimal Debian 12: makes a root with debootstrap (variant minbase), clones
# the committed project into it, and runs scripts/quickstart.sh twice and scripts/test.sh inside.
#
#   tools/debootstrap-test.sh [--user] [--quick] [--keep] [--no-test]
#     --user     as a user with sudo instead of root
#     --quick    scripts/test.sh --quick
#     --no-test  only the quick start
#     --keep     leave the root directory behind
#
# Needs root, debootstrap and git. The package sources, pip's configuration, proxies and certificates of this machine
# are used inside, so that it works behind mirrors.
set -euo pipefail
src=$(cd "$(dirname "$0")/.." && pwd)
user= keep= test_args=() run_tests=1
for arg in "$@"; do
    case "$arg" in
        --user) user=1 ;;
        --quick) test_args+=(--quick) ;;
        --keep) keep=1 ;;
        --no-test) run_tests= ;;
        *) sed -n '2,13p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
    esac
done
[ "$(id -u)" = 0 ] || { echo "debootstrap and chroot need root"; exit 1; }
command -v debootstrap >/dev/null || { echo "apt-get install debootstrap"; exit 1; }

say() { printf '### %s\n' "$*"; }
root=$(mktemp -d "${TMPDIR:-/tmp}/sennit-root.XXXXXX")
chmod 755 "$root" # apt reads it as a user of its own
clean() {
    local m
    for m in dev/pts dev/shm dev proc; do
        if mountpoint -q "$root/$m"; then umount -l "$root/$m"; fi
    done
    if [ -n "$keep" ]; then
        say "left behind: $root"
    else
        rm -rf --one-file-system "$root"
    fi
}
trap clean EXIT

# The Debian archives that this machine uses: "URI suite component".
sources=$(apt-get indextargets --format '$(ORIGIN)|$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sed -n 's/^Debian|//p' | sort -u | grep bookworm)
mirror=$(printf '%s\n' "$sources" | awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
[ -n "$mirror" ] || { echo "no Debian 12 archive among this machine's package sources (run apt-get update)"; exit 1; }

say "debootstrap, variant minbase, into $root"
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 20 "$root.log"; exit 1; }
rm -f "$root.log"
printf '%s\n' "$sources" | sed 's/^/deb /' >"$root/etc/apt/sources.list"
apt-config dump | grep -E '^Acquire::https?::' >"$root/etc/apt/apt.conf.d/99machine" || true
cp /etc/resolv.conf /etc/hosts "$root/etc/"
say "inside there are $(chroot "$root" dpkg-query -f '.\n' -W | wc -l) packages"

# Certificates and pip's configuration of this machine.
env=(PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/machine-ca.crt"
    env+=(PIP_CERT=/etc/machine-ca.crt)
fi
for f in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
    if [ -f "$f" ]; then sed '/^cert *=/d' "$f" >>"$root/etc/pip.conf"; fi
done
while IFS= read -r v; do
    env+=("$v")
done < <(env | grep -E '^(PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|DEFAULT_TIMEOUT)|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY)=' || true)

mount --bind /proc "$root/proc" 2>/dev/null || say "cannot mount /proc here; going on without it"
mount --bind /dev "$root/dev" 2>/dev/null && mount -t tmpfs tmpfs "$root/dev/shm" 2>/dev/null || say "/dev is the bare one"

home=/root
inside() { chroot "$root" env -i "${env[@]}" HOME="$home" "$@"; }
if [ -n "$user" ]; then
    say "a user with sudo"
    inside sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -y -q install --no-install-recommends sudo' >/dev/null
    inside useradd -m -s /bin/bash tester
    echo 'tester ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/tester"
    home=/home/tester
    inside() { chroot --userspec=tester:tester "$root" env -i "${env[@]}" HOME="$home" USER=tester "$@"; }
fi
git clone -q --no-local "$src" "$root$home/sennit"
if [ -n "$user" ]; then chroot "$root" chown -R tester:tester "$home/sennit"; fi

timed() {
    local from=$SECONDS
    "$@"
    say "took $((SECONDS - from)) s"
}
say "scripts/quickstart.sh"
timed inside bash -c "cd $home/sennit && scripts/quickstart.sh --prompt 'What is gravity?' </dev/null"
say "scripts/quickstart.sh, again"
timed inside bash -c "cd $home/sennit && scripts/quickstart.sh </dev/null"
if [ -n "$run_tests" ]; then
    say "scripts/test.sh ${test_args[*]-}"
    timed inside bash -c "cd $home/sennit && scripts/test.sh ${test_args[*]-} </dev/null"
fi
say "all of it worked"
