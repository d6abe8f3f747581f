"""The real HAProxy in front of a server, with the configuration of `deploy/manifests`."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deploy.broker.lifeline import free_port

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "manifests" / "haproxy.cfg"
_PORTS = {"storage": (8720, 18720), "delay": (8710, 18710)}
_STARTS_WITHIN_S = 20


@contextmanager
def in_front_of(
    api: str,
    port: int,
    folder: Path,
    log: Path,
    certificate: Path | None = None,
    changes: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Starts it for the `api` that listens on `port`; yields its own port, and its process.

    certificate   with its key; None: it speaks no TLS, as attackers here do not
    changes       of the configuration
    """
    binary = shutil.which("haproxy")
    assert binary is not None, "haproxy is missing: make haproxy"
    text = CONFIGURATION.read_text(encoding="utf-8")
    own_port = free_port()
    for name, (public, private) in _PORTS.items():
        tls = f" ssl crt /etc/teacup/{name}.pem"
        text = replaced(text, f"bind :{public}{tls}", f"bind 127.0.0.1:{own_port if name == api else free_port()}{tls}")
        text = replaced(text, tls, "" if certificate is None else f" ssl crt {certificate}")
        text = replaced(text, f"127.0.0.1:{private} ", f"127.0.0.1:{port} ")
    for old, new in (changes or {}).items():
        text = replaced(text, old, new)
    file = folder / "haproxy.cfg"
    file.write_text(text, encoding="utf-8")
    with log.open("ab") as lines:
        process = subprocess.Popen([binary, "-db", "-f", str(file)], stdout=lines, stderr=lines)
    try:
        wait_for_listener(own_port, process, log)
        yield own_port, process
    finally:
        process.kill()
        process.wait(60)


def replaced(text: str, old: str, new: str) -> str:
    """Returns the text with another value; it must have had the one that is replaced."""
    assert old in text, old
    return text.replace(old, new)


def wait_for_listener(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until a process listens there."""
    ends_s = time.monotonic() + _STARTS_WITHIN_S
    while True:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < ends_s, "nothing listens"
            time.sleep(0.05)
        else:
            return
