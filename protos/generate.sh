#!/usr/bin/env bash
# Regenerates the Python stubs from the protos.
#
#   protos/generate.sh [OUT]     OUT defaults to protos/python
#
# PYTHON names the interpreter that holds the extra `headrace[generate]` (default: python). Its tools
# must have exactly the versions pinned there, so that every machine writes the same bytes.
set -euo pipefail
# A relative path counts from where the script was called.
case "${PYTHON:-}" in */*) PYTHON="$(realpath -s "$PYTHON")" && export PYTHON ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")"
out="${1:-python}"
python="$(command -v "${PYTHON:-python}")"
# Not resolved further: a virtual environment's python is a link out of it.
bin="$(dirname "$python")"

"$python" - <<'PY'
import importlib.metadata as metadata
import pathlib
import sys
import tomllib

pins = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["optional-dependencies"]["generate"]
wrong = []
for pin in pins:
    name, version = pin.split("==")
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found = "none"
    if found != version:
        wrong.append(f"{name} {version} is needed, {found} is installed")
if wrong:
    sys.exit("protos/generate.sh: " + "; ".join(wrong) + ": pip install '" + "' '".join(pins) + "'")
PY

mkdir -p "$out"
# Sorted, so that the command is the same everywhere.
mapfile -t files < <(find headrace -name '*.proto' | LC_ALL=C sort)
"$python" -m grpc_tools.protoc --proto_path=. \
  --plugin=protoc-gen-mypy="$bin/protoc-gen-mypy" \
  --plugin=protoc-gen-mypy_grpc="$bin/protoc-gen-mypy_grpc" \
  --python_out="$out" --grpc_python_out="$out" --mypy_out="$out" --mypy_grpc_out="$out" \
  "${files[@]}"
