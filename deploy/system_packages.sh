#!/usr/bin/env bash
# Installs the Debian packages that the tests marked `system` need, if they are not there yet.
set -euo pipefail

packages=(chromium chromium-driver fonts-dejavu-core nginx-light prometheus redis-server)
missing=()
for package in "${packages[@]}"; do
  dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
    missing+=("$package")
done
if [ "${#missing[@]}" = 0 ]; then
  exit 0
fi
sudo=()
if [ "$(id -u)" != 0 ]; then sudo=(sudo); fi
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update --quiet --quiet
"${sudo[@]}" apt-get install --quiet --quiet --yes --no-install-recommends "${missing[@]}"
