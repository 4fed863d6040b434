#!/bin/sh
# Every template of the shared folder over every conversation of tools/template_conversations.py, against what the
# reference implementation renders now.
# usage: template_conversations.sh TEST_PROGRAM SOURCE_DIR
# SENNIT_PYTHON: a Python with jinja2 (default python3). SENNIT_SHARED: the folder with data/templates.
set -eu
program=$1
source_dir=$2
python=${SENNIT_PYTHON:-python3}
templates=${SENNIT_SHARED:-$source_dir/../shared}/data/templates

skip() {
    echo "SKIPPED: $1"
    exit 77
}
[ -d "$templates" ] || skip "$templates is not there; set SENNIT_SHARED to the folder with data/templates"
"$python" -c 'import jinja2' 2>/dev/null ||
    skip "$python has no jinja2: python3 -m venv VENV && VENV/bin/pip install jinja2 && export SENNIT_PYTHON=VENV/bin/python"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tool=$source_dir/tools/template_conversations.py
PYTHONDONTWRITEBYTECODE=1 "$python" "$tool" --templates "$templates" >"$work/all.json"
"$program" conversations "$work/all.json"
