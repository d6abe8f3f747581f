#!/bin/sh
# Installs PostgreSQL (Debian package) for the tests of the Data Delay API, only where it is missing. No cluster is created.
set -eu

if command -v postgres >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-postgresql: no apt-get here: install PostgreSQL so that postgres and initdb are in PATH" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-postgresql: run as root: sudo apt-get install postgresql" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
mkdir -p /etc/postgresql-common
[ -f /etc/postgresql-common/createcluster.conf ] \
    || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
apt-get update -q
apt-get install -qy --no-install-recommends postgresql
