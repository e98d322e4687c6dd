#!/usr/bin/env bash
# Puts what transformers reads GPTQ and AWQ checkpoints with into a folder of its own, if it is not there yet.
#
#   deploy/gptq_packages.sh FOLDER
#
# PYTHON  the interpreter of an environment with everything installed (default .venv/bin/python)
#
# By their metadata these packages want another torch than the worker is tested with, so they come without what they
# depend on, and never into its environment.
set -euo pipefail

folder="$1"
python="${PYTHON:-.venv/bin/python}"
if [ -e "$folder/complete" ]; then
  exit 0
fi
"$python" -m pip install --quiet --no-cache-dir --no-deps --no-build-isolation --target "$folder" --upgrade \
  gptqmodel==7.7.0 optimum==2.3.0 tokenicer==0.0.14 device-smi==0.5.7 logbar==0.4.15 pypcre==0.6.4 defuser==0.0.28 \
  threadpoolctl==3.8.0 torchao==0.18.0
touch "$folder/complete"
