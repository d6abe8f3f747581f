"""The pages of running jobs: static files that fetch `/v1/job` every two seconds, and load nothing else.

index.html   what there is to see
job.css      its look, beside `teacup/http/page/base.css`
job.js       fetches, and fills in
flow.js      the flow with live numbers
charts.js    lines over time, who held the join, bars, the wait curve
jobs.html    the jobs of a process that has several, beside jobs.js, from `/v1/jobs`
"""

from __future__ import annotations

from deploy.watch.hour.history import LastHour
from deploy.watch.server import Answer, Asked, Route, Routes
from teacup.http.page import HEADERS, page_files

_FILES = ("index.html", "job.css", "job.js", "flow.js", "charts.js")
_LIST = ("jobs.html", "job.css", "jobs.js")


def page_routes(hour: LastHour) -> Routes:
    """Returns the routes of the page, and of what it shows."""

    def job(asked: Asked) -> Answer:
        return Answer(hour.json(), "application/json")

    files = {path: _file(content, media_type) for path, content, media_type in page_files(__name__, *_FILES)}
    return {**files, "/v1/job": job}


def list_routes() -> Routes:
    """Returns the routes of the list of jobs, but for what it shows."""
    files = {path: _file(content, media_type) for path, content, media_type in page_files(__name__, *_LIST)}
    return {"/" if path == "/jobs.html" else path: route for path, route in files.items()}


def _file(content: bytes, media_type: str) -> Route:
    answer = Answer(content, f"{media_type}; charset=utf-8", headers=HEADERS)
    return lambda asked: answer
