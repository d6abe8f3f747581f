#!/bin/sh
# Installs a Redis server (Debian package) for the tests of that back end, only where it is missing. They start their own.
set -eu

if command -v redis-server >/dev/null 2>&1; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-redis: no apt-get here: install Redis 7.0 or newer so that redis-server is in PATH" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-redis: run as root: sudo apt-get install redis-server" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends redis-server
