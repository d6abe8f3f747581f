"""The pages of running jobs: static files that fetch `/v1/job` every two seconds and load nothing else.

index.html   the page of one job
job.css      its styles, in addition to `teacup/http/page/base.css`
job.js       fetches the data and fills the page
flow.js      the flow with live numbers
charts.js    lines over time, what held the join, bars, the wait curve
jobs.html    with jobs.js: the jobs of a process with many, from `/v1/jobs`
"""

from __future__ import annotations

from deploy.watch.hour.history import LastHour
from deploy.watch.server import Request, Response, Route, Routes
from teacup.http.page import HEADERS, page_files

_FILES = ("index.html", "job.css", "job.js", "flow.js", "charts.js")
_LIST = ("jobs.html", "job.css", "jobs.js")


def page_routes(hour: LastHour) -> Routes:
    """Returns the routes of a job's page and of its data."""

    def job(asked: Request) -> Response:
        return Response(hour.json(), "application/json")

    files = {path: _file(content, media_type) for path, content, media_type in page_files(__name__, *_FILES)}
    return {**files, "/v1/job": job}


def list_routes() -> Routes:
    """Returns the routes of the list of jobs, without its data."""
    files = {path: _file(content, media_type) for path, content, media_type in page_files(__name__, *_LIST)}
    return {"/" if path == "/jobs.html" else path: route for path, route in files.items()}


def _file(content: bytes, media_type: str) -> Route:
    answer = Response(content, f"{media_type}; charset=utf-8", headers=HEADERS)
    return lambda asked: answer
