"""The page for people: static files that fetch the API like any other reader, and load nothing else."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/chart.js": ("chart.js", "text/javascript"),
}


def router() -> APIRouter:
    """Returns the page's routes. They contain no data, so they need no token."""
    routes = APIRouter(include_in_schema=False)
    for path, (name, media_type) in _FILES.items():
        routes.add_api_route(path, _file(name, media_type), methods=["GET"], response_class=Response)
    return routes


def _file(name: str, media_type: str):  # type: ignore[no-untyped-def]
    content = (files(__package__ or "") / name).read_bytes()

    async def answer() -> Response:
        return Response(content, media_type=media_type, headers=_HEADERS)

    return answer
