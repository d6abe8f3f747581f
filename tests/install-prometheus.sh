#!/bin/sh
# Installs Prometheus with promtool (Debian package) for the tests of metrics, only where it is missing. They start their own.
set -eu

if command -v promtool >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-prometheus: no apt-get here: install Prometheus 2.42 or newer so that prometheus and promtool are in PATH" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-prometheus: run as root: sudo apt-get install prometheus" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends prometheus
