"""The certificates that a server's must be signed by: a file that is looked into as soon as its key is read."""

from __future__ import annotations

import ssl
from typing import Annotated

from pydantic import AfterValidator

from configfile.values import Text


def ca_bundle(path: str) -> str:
    """Returns the path if it is a file of certificates in PEM. Raises ValueError."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except OSError as error:
        raise ValueError(f"it cannot be read as certificates in PEM: {error.strerror or error}") from error
    return path


CaBundle = Annotated[Text, AfterValidator(ca_bundle)]
