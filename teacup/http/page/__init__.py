"""What the pages for people share: how they are served, how they look, how they write numbers and draw.

base.css    colours by light and dark, text, controls, cards, badges, tables, charts
shapes.js   durations, counts, shares and clock times as text; scales; elements of an SVG

A page is a folder with static files, which load nothing from elsewhere: it works in a network without a way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType

HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
)
"""The headers of every file of a page."""

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_SHARED = ("base.css", "shapes.js")


def page_files(package: str, *names: str) -> Iterator[tuple[str, bytes, str]]:
    """Yields (path, content, media type) of a page's files and the shared ones; `index.html` is at `/`."""
    for folder, name in [*((package, name) for name in names), *((__name__, name) for name in _SHARED)]:
        path = "/" if name == "index.html" else f"/{name}"
        yield path, (files(folder) / name).read_bytes(), _TYPES[name.rpartition(".")[2]]
