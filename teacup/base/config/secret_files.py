"""Secrets in files: `${file:/run/secrets/password}`, as containers and systemd give them.

A value of a configuration is replaced when the file is read. A property of a Kafka client stays as written, and is
replaced each time a client is made (`read_now`): so a rotated secret is used from the next client on, and no plan, log
or message contains it.

A newline at the end of a secret's file is not part of the secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

FORM = re.compile(r"\$\{file:(?!-)([^}]+)\}")  # `${file:-x}` is a variable with a default
_MOST_BYTES = 1 << 20


def content_of(path: Path) -> str:
    """Returns the secret in a file. Raises `ValueError`, which says what is wrong, without the content."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"the file {path} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise ValueError(f"the file {path} has {len(content):,} bytes, which is too much for a secret")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} holds no text in UTF-8") from None


def read_now(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns properties with the present contents of the files that they name. Raises `ValueError` naming property and
    file.
    """
    secrets = {}
    for name, value in properties.items():
        try:
            secrets[name] = FORM.sub(lambda form: content_of(Path(form[1])), value) if isinstance(value, str) else value
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return secrets
