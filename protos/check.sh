#!/usr/bin/env bash
# Proves that the protos are well formed, compatible with the last release, and that the committed
# stubs are what generate.sh writes. Changes nothing but node_modules. Exit code 0 when all holds.
#
#   protos/check.sh              needs node with npm, and the python of generate.sh
set -euo pipefail
# A relative path counts from where the script was called.
case "${PYTHON:-}" in */*) PYTHON="$(realpath -s "$PYTHON")" && export PYTHON ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")"

buf=node_modules/.bin/buf
wanted="$(sed -n 's/.*"@bufbuild\/buf": "\(.*\)".*/\1/p' package.json)"
if [ ! -x "$buf" ] || [ "$("$buf" --version 2>/dev/null)" != "$wanted" ]; then
  # The binary ships in the package: its install script only makes links that npm makes too.
  npm ci --ignore-scripts --no-audit --no-fund >&2
fi
# buf's cache stays inside the ignored folder, not in the home directory.
export BUF_CACHE_DIR="$PWD/node_modules/.cache/buf"

fail=0
step() {
  echo "protos: $1" >&2
  shift
  "$@" || fail=1
}

generated_is_current() {
  local fresh known status=0
  fresh="$(mktemp -d)"
  known="$(mktemp -d)"
  ./generate.sh "$fresh" || status=1
  # Only generated files are compared: the package holds hand-written modules beside them.
  (cd python && find headrace -name '*_pb2*.py' -o -name '*_pb2*.pyi') | while read -r file; do
    mkdir -p "$known/$(dirname "$file")" && cp "python/$file" "$known/$file"
  done
  if [ "$status" = 0 ] && ! diff -ru "$known" "$fresh"; then
    echo "protos: the committed stubs are not what protos/generate.sh writes; run it and commit" >&2
    status=1
  fi
  rm -rf "$fresh" "$known"
  return "$status"
}

step "lint" "$buf" lint
step "format" "$buf" format --diff --exit-code
step "no breaking change since the baseline" "$buf" breaking --against baseline.binpb
step "generated code is current" generated_is_current
exit "$fail"
