"""Which error a client raises for which answer."""

from __future__ import annotations

import pytest

from teacup.http.client.retries import ApiErrors


class Misconfigured(Exception):
    """An argument of the client."""


class Unreachable(Exception):
    """No answer."""


class NotUnderstood(Exception):
    """Another server."""


class WrongServer(Exception):
    """Another API."""


class RateLimited(Exception):
    """429."""


class Refused(Exception):
    """Any other refusal."""


class NotFound(Exception):
    """404 of this API."""


class Invalid(Exception):
    """422 of one call."""


ERRORS = ApiErrors(
    api="test API",
    misconfigured=Misconfigured,
    unreachable=Unreachable,
    not_understood=NotUnderstood,
    wrong_server=WrongServer,
    rate_limited=RateLimited,
    refused=Refused,
    not_found="/problems/none",
    by_status={404: NotFound},
)


def problem(status: int, kind: str = "/problems/none") -> bytes:
    return f'{{"type": "{kind}", "title": "", "status": {status}, "detail": "why"}}'.encode()


@pytest.mark.parametrize(
    ("status", "content", "expected"),
    [
        (404, b"<html>", WrongServer),
        (302, b"", WrongServer),
        (404, problem(404), NotFound),
        (429, b"<html>", RateLimited),
        (502, b"<html>", Unreachable),  # a proxy without the API behind it
    ],
)
def test_a_page_at_a_url_where_the_api_has_never_answered_is_a_wrong_url(
    status: int, content: bytes, expected: type[Exception]
) -> None:
    """Waiting would not help. The message says what answered."""
    error = ERRORS.refusal(status, content, "GET http://x/y", server="nginx/1.2", known=False)

    assert type(error) is expected
    assert expected is not WrongServer or "no test API (nginx/1.2)" in str(error)


@pytest.mark.parametrize(
    ("status", "content", "expected"),
    [
        (404, problem(404), NotFound),
        (404, problem(404, "/problems/not-found"), WrongServer),  # it has no such path
        (404, b"<html>", NotUnderstood),
        (409, problem(409), Refused),
        (422, problem(422), Invalid),
        (302, b"", NotUnderstood),
        (429, problem(429), RateLimited),
        (429, b"<html>", RateLimited),  # a proxy may answer instead
        (500, problem(500), Unreachable),
        (503, b"", Unreachable),
    ],
)
def test_each_answer_has_its_error(status: int, content: bytes, expected: type[Exception]) -> None:
    """The message names the request and the status."""
    error = ERRORS.refusal(status, content, "GET http://x/y", {422: Invalid})

    assert type(error) is expected
    assert str(error).startswith("GET http://x/y: ")
    assert str(status) in str(error)
