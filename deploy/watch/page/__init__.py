"""The page of a running job: static files that fetch `/v1/job` every two seconds, and load nothing else.

index.html   what there is to see
job.css      its look, beside `teacup/http/page/base.css`
job.js       fetches, and fills in
flow.js      the flow with live numbers
charts.js    lines over time, who held the join, bars, the wait curve
"""

from __future__ import annotations

from deploy.watch.history import LastHour
from deploy.watch.server import Answer, Asked, Route, Routes
from teacup.http.page import HEADERS, page_files

_FILES = ("index.html", "job.css", "job.js", "flow.js", "charts.js")


def page_routes(hour: LastHour) -> Routes:
    """Returns the routes of the page, and of what it shows."""

    def job(asked: Asked) -> Answer:
        return Answer(hour.json(), "application/json")

    files = {path: _file(content, media_type) for path, content, media_type in page_files(__name__, *_FILES)}
    return {**files, "/v1/job": job}


def _file(content: bytes, media_type: str) -> Route:
    answer = Answer(content, f"{media_type}; charset=utf-8", headers=HEADERS)
    return lambda asked: answer
