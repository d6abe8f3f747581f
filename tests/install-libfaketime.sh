#!/bin/sh
# Installs libfaketime (Debian package) for the slow tests in which a process's clock steps, only where it is missing.
set -eu

for library in /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/faketime/libfaketimeMT.so.1; do
    if [ -e "$library" ]; then
        exit 0
    fi
done
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-libfaketime: no apt-get here: install libfaketime" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-libfaketime: run as root: sudo apt-get install libfaketime" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends libfaketime
