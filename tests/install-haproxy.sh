#!/bin/sh
# Installs HAProxy (Debian package) for the tests of the APIs behind it, only where it is missing. They start their own.
set -eu

if command -v haproxy >/dev/null 2>&1; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-haproxy: no apt-get here: install HAProxy 2.6 or newer so that haproxy is in PATH" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-haproxy: run as root: sudo apt-get install haproxy" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends haproxy
