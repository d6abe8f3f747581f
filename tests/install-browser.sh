#!/bin/sh
# Installs headless Chromium and its driver (Debian packages) for the tests of the page, only where they are missing.
set -eu

if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-browser: no apt-get here: install Chromium and chromedriver so that both are in PATH" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-browser: run as root: sudo apt-get install chromium chromium-driver" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends chromium chromium-driver fonts-dejavu-core
