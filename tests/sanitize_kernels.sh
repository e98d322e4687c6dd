#!/usr/bin/env bash
# Runs the kernels' tests on a build that watches every address and every undefined operation.
#
#   tests/sanitize_kernels.sh
#
# PYTHON  the interpreter of an environment with everything installed (default .venv/bin/python)
# CXX     the compiler (default g++)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python="$(realpath -s "${PYTHON:-.venv/bin/python}")"
export CXX="${CXX:-g++}"
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
# The build lies beside its sources, where it comes before the environment's; so the test that nothing does is left out.
cp -r worker common tests pyproject.toml setup.py README.md LICENSE "$copy"
cd "$copy"
# Not inlined: with checks all over, what the kernels unroll takes the compiler minutes a file.
CXXFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -g1 -O1 -fno-inline" \
  "$python" setup.py --quiet build_ext --inplace
ls worker/kernels/_native* >/dev/null
# The interpreter itself is not watched: the libraries come before it, and what it never frees is its own affair.
LD_PRELOAD="$("$CXX" -print-file-name=libasan.so) $("$CXX" -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 PYTHONPATH="$copy" \
  "$python" -m pytest -q -s -p no:cacheprovider tests/unit/worker/kernels tests/unit/worker/lean/test_lean.py \
  tests/unit/worker/sampling/test_kernel_draw.py tests/unit/worker/sampling/test_scores.py \
  --deselect tests/unit/worker/kernels/test_sources.py::test_nothing_that_is_built_lies_among_the_sources
