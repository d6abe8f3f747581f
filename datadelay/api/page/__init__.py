"""The page for people: static files that fetch the API like any other reader, and load nothing else."""

from __future__ import annotations

from fastapi import APIRouter, Response

from teacup.http.page import HEADERS, page_files

_FILES = ("index.html", "page.css", "page.js", "chart.js")


def router() -> APIRouter:
    """Returns the page's routes. They contain no data, so they need no token."""
    routes = APIRouter(include_in_schema=False)
    for path, content, media_type in page_files(__name__, *_FILES):
        routes.add_api_route(path, _file(content, media_type), methods=["GET"], response_class=Response)
    return routes


def _file(content: bytes, media_type: str):  # type: ignore[no-untyped-def]
    async def answer() -> Response:
        return Response(content, media_type=media_type, headers=HEADERS)

    return answer
