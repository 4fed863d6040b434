#!/usr/bin/env bash
# The official client against a real server: openai_client.py, by the Python that $SENNIT_OPENAI_PYTHON names.
#
#   openai_client.sh SENNIT TINY-MODEL-PROGRAM [--real]
#
# --real: with SmolLM2 where it is to be had.
if [ -z "${SENNIT_OPENAI_PYTHON:-}" ]; then
    echo "SKIPPED, NOT TESTED: the official client. Name a Python that has the package openai:"
    echo "  python3 -m venv VENV && VENV/bin/pip install openai && export SENNIT_OPENAI_PYTHON=VENV/bin/python"
    exit 77
fi
model=(--tiny "$2")
if [ "${3:-}" = --real ]; then
    real=${SENNIT_SMOLLM2:-${XDG_CACHE_HOME:-$HOME/.cache}/sennit/SmolLM2-135M-Instruct.Q4_1.gguf}
    if [ -r "$real" ]; then
        model=("$real")
    else
        echo "NOTE: the tiny model instead of SmolLM2: scripts/fetch-smollm2.sh fetches it, or set SENNIT_SMOLLM2"
    fi
fi
exec "$SENNIT_OPENAI_PYTHON" "$(dirname "$0")/openai_client.py" "$1" "${model[@]}"
