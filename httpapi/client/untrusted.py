"""A server's certificate that is not trusted: why, and what to do about it."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_NAME = (62, 64)  # of a host, of an address
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
"""OpenSSL's codes: X509_V_ERR_ in its x509_vfy.h."""


def is_for_another_name(error: ssl.SSLCertVerificationError) -> bool:
    """Tells whether only the name is wrong."""
    return error.verify_code in _OTHER_NAME


def remedy(error: ssl.SSLCertVerificationError, names: Sequence[str] = ()) -> str:
    """Says what to do. `names`: those that the certificate is for, if only the name is wrong, and they are known."""
    code = error.verify_code
    if code == _EXPIRED:
        return "renew it on the server, and restart that; or correct the clock here"
    if code == _NOT_YET_VALID:
        return "correct the clock here, or that of the machine where it was issued"
    if code in _OTHER_NAME:
        here = f"it is for {', '.join(names)}: " if names else ""
        return f"{here}write such a name in the URL, or issue one for this name (DNS:NAME) or address (IP:ADDRESS)"
    if code in _UNKNOWN_ISSUER:
        return "name the file of the certificates that it is signed by: ca_bundle (in Python: verify)"
    return "the server needs another certificate"


def names_of(url: str, bundle: str, timeout_s: float) -> list[str]:
    """Asks for the names that a server's certificate is for, by a connection of its own; none if it cannot be made.

    bundle   the certificates that it is signed by: a file or a folder
    """
    at = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})
    try:
        with (
            socket.create_connection((at.hostname or "", at.port or 443), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=at.hostname) as secure,
        ):
            certificate = secure.getpeercert() or {}
    except OSError:  # the names only complete a message
        return []
    return [str(pair[1]) for pair in certificate.get("subjectAltName", ())]
