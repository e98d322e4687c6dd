#!/usr/bin/env bash
# Writes the lock files of the images: each package at the version of deploy/constraints.txt, with the digests of its files.
#
#   deploy/lock.sh
#
# UV         the command that resolves, of the package uv
# TORCH_CPU  where torch's CPU build is found: a folder with its wheel, or a page that links to it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv="${UV:-uv}"
: "${TORCH_CPU:?a folder with the wheel of the CPU build of torch, or a page that links to it}"
torch="$(sed -n 's/^torch="${TORCH_SPEC:-\(.*\)}"$/\1/p' deploy/install.sh)"

# lock IMAGE REQUIREMENT…: what installs the image, and nothing that is ours.
lock() {
  local image="$1"
  shift
  # The platform is the base image's; wheels alone, since whatever is built on the way is pinned by nothing.
  printf '%s\n' ./protos setuptools "$@" |
    "$uv" pip compile --quiet --generate-hashes --constraint deploy/constraints.txt --only-binary :all: \
      --python-version 3.11.14 --python-platform x86_64-manylinux_2_36 --no-header --no-annotate \
      --no-emit-package headrace --no-emit-package headrace-server \
      --output-file "deploy/docker/locks/$image.txt" -
}
lock gateway '.[gateway]'
lock scheduler '.[scheduler]'
lock worker-cuda '.[worker]' "$torch"
UV_FIND_LINKS="$TORCH_CPU" lock worker-cpu '.[worker]' "$torch+cpu"
