"""The API over HTTP, on a real server: what it answers, whom it refuses, and how."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from datadelay.model import PARTITIONS_MAX, PartitionReport, Submission
from datadelay.wire import SubmissionBody
from tests.support.api import NOON_MS, answer_before_body, assert_problem, call, samples
from tests.support.delay_server import RunningServer, running_server

Make = Callable[..., Submission]
ONE = "/v1/delays/feeder/impressions"


def body(submission: Submission) -> dict[str, Any]:
    document: dict[str, Any] = SubmissionBody.of(submission).model_dump(mode="json")
    return document


def test_answers_a_submission_with_what_is_published(server: RunningServer, submission: Make) -> None:
    """Times come as milliseconds and as ISO 8601."""
    answer = call(server, "PUT", ONE, json=body(submission(NOON_MS - 5_000)))

    assert answer.status_code == 200
    assert answer.json() == {
        "consumer": "feeder",
        "topic": "impressions",
        "now_ms": NOON_MS,
        "state": "ok",
        "reason": None,
        "consumed_until_ms": NOON_MS - 5_000,
        "consumed_until": "2026-11-20T11:59:55.000Z",
        "delay_ms": 5_000,
        "since_ms": NOON_MS,
        "since": "2026-11-20T12:00:00.000Z",
        "listed_ms": NOON_MS,
        "listed": "2026-11-20T12:00:00.000Z",
        "age_ms": 0,
        "success_ms": NOON_MS,
        "success": "2026-11-20T12:00:00.000Z",
        "stale_after_ms": 180_000,
        "generation": "first",
        "store_generation": None,
        "slowest": {"partition": 0, "position": 10, "progress_ms": NOON_MS - 5_000, "reason": None},
        "partitions": None,
    }
    assert call(server, "GET", ONE).json() == answer.json()


def test_names_every_partition_only_when_asked(server: RunningServer, submission: Make) -> None:
    """A gate reads often and does not need a thousand of them."""
    call(server, "PUT", ONE, json=body(submission()))

    partitions = call(server, "GET", ONE + "?partitions=true").json()["partitions"]

    assert [each["partition"] for each in partitions] == [0]


def test_lists_every_consumer_and_topic_by_name(server: RunningServer, submission: Make) -> None:
    """The order does not depend on who submitted first."""
    for consumer, topic in (("b", "t1"), ("a", "t2"), ("a", "t1")):
        call(server, "PUT", f"/v1/delays/{consumer}/{topic}", json=body(submission(consumer=consumer, topic=topic)))

    delays = call(server, "GET", "/v1/delays", "reader").json()["delays"]

    assert [(each["consumer"], each["topic"]) for each in delays] == [("a", "t1"), ("a", "t2"), ("b", "t1")]


def test_refuses_a_late_submission_and_changes_nothing(server: RunningServer, submission: Make) -> None:
    """409; counted in the metrics."""
    call(server, "PUT", ONE, json=body(submission(NOON_MS - 5_000)))
    before = call(server, "GET", ONE).json()

    late = call(server, "PUT", ONE, json=body(submission(NOON_MS - 1_000, listed_ms=NOON_MS - 1)))

    assert_problem(late, 409, "late")
    assert call(server, "GET", ONE).json() == before
    assert samples(server)["teacup_data_delay_refused_submissions_total", "late"] == 1


def test_a_rewind_makes_the_next_submission_believed(server: RunningServer, submission: Make) -> None:
    """From the endpoint to the value."""
    call(server, "PUT", ONE, json=body(submission(NOON_MS - 5_000)))
    server.clock.now_ms += 1_000

    rewound = call(server, "POST", ONE + "/rewind", json={"note": "ada replays"}).json()
    again = body(submission(NOON_MS - 900_000, position=1, listed_ms=NOON_MS + 2_000))
    believed = call(server, "PUT", ONE, json=again).json()

    assert (rewound["state"], rewound["consumed_until_ms"]) == ("unknown", None)
    assert "ada replays" in rewound["reason"]
    assert believed["consumed_until_ms"] == NOON_MS - 900_000


def test_history_comes_in_pages_from_the_newest_on(server: RunningServer, submission: Make) -> None:
    """Pages neither overlap nor leave anything out."""
    for number in range(7):
        server.clock.now_ms = NOON_MS + number * 60_000
        each = submission(NOON_MS + number, position=10 + number, listed_ms=server.clock.now_ms)
        call(server, "PUT", ONE, json=body(each))

    seen, before = [], ""
    while True:
        page = call(server, "GET", f"{ONE}/history?limit=3{before}").json()
        seen.append([point["consumed_until_ms"] - NOON_MS for point in page["points"]])
        if page["next_before"] is None:
            break
        before = f"&before={page['next_before']}"
    recent = call(server, "GET", f"{ONE}/history?since_ms={NOON_MS + 5 * 60_000}").json()["points"]

    assert seen == [[6, 5, 4], [3, 2, 1], [0]]
    assert [point["consumed_until_ms"] - NOON_MS for point in recent] == [6, 5]


def test_history_is_current_after_every_change(server: RunningServer, submission: Make) -> None:
    """Pages are cached, but only until something is published; the same page is requested each time."""
    for number in range(3):
        each = submission(NOON_MS + number, position=10 + number, listed_ms=NOON_MS + number)
        call(server, "PUT", ONE, json=body(each))
        points = [call(server, "GET", f"{ONE}/history?limit=1").json()["points"] for _ in range(2)]
        assert [point[0]["consumed_until_ms"] for point in points] == [NOON_MS + number] * 2
    call(server, "POST", ONE + "/rewind", json={})

    assert call(server, "GET", f"{ONE}/history?limit=1").json()["points"][0]["state"] == "unknown"
    call(server, "DELETE", ONE)
    assert_problem(call(server, "GET", f"{ONE}/history?limit=1"), 404, "no-delay")


def test_a_repeated_submission_leaves_no_second_point(server: RunningServer, submission: Make) -> None:
    """A sender that got no answer repeats it."""
    for _ in range(3):
        assert call(server, "PUT", ONE, json=body(submission())).status_code == 200

    assert len(call(server, "GET", f"{ONE}/history").json()["points"]) == 1


def test_forgets_a_retired_consumer(server: RunningServer, submission: Make) -> None:
    """Otherwise it would be stale for ever."""
    call(server, "PUT", ONE, json=body(submission()))

    gone = call(server, "DELETE", ONE)

    assert gone.status_code == 204
    assert_problem(call(server, "GET", ONE), 404, "no-delay")
    assert_problem(call(server, "DELETE", ONE), 404, "no-delay")
    assert_problem(call(server, "POST", ONE + "/rewind", json={}), 404, "no-delay")
    assert_problem(call(server, "GET", ONE + "/history"), 404, "no-delay")


@pytest.mark.parametrize(
    ("content", "status", "kind", "pointer"),
    [
        (b"{", 400, "malformed", None),
        (b"\xff\xfe", 400, "malformed", None),
        (b"[]", 422, "invalid", "/body"),
        (b"{}", 422, "invalid", "/body/listed_ms"),
        (b"[" * 50_000, 400, "malformed", None),
    ],
)
def test_refuses_malformed_bodies(
    server: RunningServer, content: bytes, status: int, kind: str, pointer: str | None
) -> None:
    """None of them leaves a trace in the log, and nothing is stored."""
    headers = {"Content-Type": "application/json"}

    document = assert_problem(call(server, "PUT", ONE, data=content, headers=headers), status, kind)

    if pointer is not None:
        assert pointer in [part["pointer"] for part in document["errors"]]
    assert_problem(call(server, "GET", ONE), 404, "no-delay")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"listed_ms": 1.5}, "/body/listed_ms"),
        ({"listed_ms": "1795176000000"}, "/body/listed_ms"),
        ({"listed_ms": True}, "/body/listed_ms"),
        ({"consumed_until_ms": -(2**62)}, "/body/consumed_until_ms"),
        ({"consumed_until_ms": 10**400}, "/body/consumed_until_ms"),
        ({"caught_up": "yes"}, "/body/caught_up"),
        ({"typo": 1}, "/body/typo"),
        ({"partitions": [{"partition": 0, "position": -1001, "progress_ms": 0}]}, "/body/partitions/0/position"),
    ],
)
def test_points_at_the_value_that_is_not_allowed(
    server: RunningServer, submission: Make, change: dict[str, Any], pointer: str
) -> None:
    """No coercion: a time as text or as a fraction is a defect of the sender."""
    answer = call(server, "PUT", ONE, json=body(submission()) | change)

    assert pointer in [part["pointer"] for part in assert_problem(answer, 422, "invalid")["errors"]]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("?partitions=8", "/query/partitions"),
        ("/history?limit=0", "/query/limit"),
        ("/history?limit=2001", "/query/limit"),
        ("/history?limit=ten", "/query/limit"),
        ("/history?before=0", "/query/before"),
        ("/history?since_ms=99999999999999999999", "/query/since_ms"),
    ],
)
def test_points_at_the_query_that_is_not_allowed(server: RunningServer, query: str, pointer: str) -> None:
    """Before anything is looked up."""
    document = assert_problem(call(server, "GET", ONE + query), 422, "invalid")

    assert [part["pointer"] for part in document["errors"]] == [pointer]


def test_refuses_what_is_not_a_number(server: RunningServer, submission: Make) -> None:
    """NaN is not JSON, and not a time either."""
    text = json.dumps(body(submission()) | {"consumed_until_ms": float("nan")})

    answer = call(server, "PUT", ONE, data=text, headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 422)
    assert_problem(call(server, "GET", ONE), 404, "no-delay")


def test_refuses_unknown_paths_and_methods_as_problems(server: RunningServer) -> None:
    """405 names the methods allowed by all routes of the path."""
    assert_problem(call(server, "GET", "/nowhere"), 404, "not-found")
    wrong = call(server, "PATCH", ONE)
    assert_problem(wrong, 405, "method")
    assert wrong.headers["Allow"] == "GET, PUT, DELETE"
    assert_problem(call(server, "GET", "/v1/delays/a%20b/t"), 422, "invalid")


def test_readers_may_not_write_and_strangers_may_nothing(server: RunningServer, submission: Make) -> None:
    """401 asks for a token, 403 for another one; a wrong scheme counts as a wrong token."""
    content = body(submission())
    for who in (None, "reader"):
        status, kind = (401, "unauthenticated") if who is None else (403, "forbidden")
        assert_problem(call(server, "PUT", ONE, who, json=content), status, kind)
        assert_problem(call(server, "POST", ONE + "/rewind", who, json={}), status, kind)
        assert_problem(call(server, "DELETE", ONE, who), status, kind)
    for path in ("/v1/delays", ONE, ONE + "/history", "/metrics"):
        refused = call(server, "GET", path, None)
        assert_problem(refused, 401, "unauthenticated")
        assert refused.headers["WWW-Authenticate"].startswith("Bearer ")
        for wrong in ("Bearer wrong", "Bearer", "Basic YTpi", f"Basic {server.secrets['writer']}", "Bearer é"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert_problem(call(server, "GET", path, None, headers=headers), 401, "unauthenticated")
    for path in ("/livez", "/readyz", "/", "/openapi.json"):
        assert call(server, "GET", path, None).status_code == 200


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server with tight limits, open to readers."""
    with running_server(tmp_path, max_body_bytes=10_000, requests_per_s=0.5, burst=20, anonymous=["read"]) as running:
        yield running


def test_refuses_bodies_beyond_the_limit_declared_or_not(small_server: RunningServer) -> None:
    """413 before the body is read; for a chunked body as soon as it is too long."""
    declared = call(small_server, "PUT", ONE, data=b" " * 10_001, headers={"Content-Type": "application/json"})
    chunks = (b" " * 1_000 for _ in range(11))
    chunked = call(small_server, "PUT", ONE, data=chunks, headers={"Content-Type": "application/json"})

    assert_problem(declared, 413, "too-large")
    assert_problem(chunked, 413, "too-large")


@pytest.mark.parametrize("value", ["1", "[]", '{"a":1}'])
def test_refuses_bodies_of_many_values_unparsed(server: RunningServer, value: str) -> None:
    """They would take the event loop hundreds of milliseconds; the largest topic is far below."""
    body = f'{{"partitions":[{",".join([value] * 90_000)}]}}'

    answer = call(server, "PUT", ONE, data=body, headers={"Content-Type": "application/json"})

    assert "commas and brackets" in assert_problem(answer, 413, "too-large")["detail"]


def test_takes_the_largest_topic(server: RunningServer) -> None:
    """With a reason for each partition."""
    reports = tuple(PartitionReport(p, 2**40, None, "no offset, no time") for p in range(PARTITIONS_MAX))
    largest = Submission(
        consumer="feeder",
        topic="impressions",
        listed_ms=NOON_MS,
        consumed_until_ms=None,
        reason="nothing is known",
        partitions=reports,
        generation="g",
    )
    text = SubmissionBody.of(largest).model_dump_json()

    answer = call(server, "PUT", ONE, data=text, headers={"Content-Type": "application/json"})

    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("method", "path", "who", "length", "status"),
    [
        ("PUT", ONE, None, 5_000, 401),
        ("PUT", ONE, "reader", 5_000, 403),
        ("PUT", ONE, "writer", 10_001, 413),
        ("POST", f"{ONE}/rewind", None, 50, 401),
        ("POST", f"{ONE}/rewind", "writer", 5_000, 413),
    ],
)
def test_refuses_before_the_body_is_read(
    small_server: RunningServer, method: str, path: str, who: str | None, length: int, status: int
) -> None:
    """By token, scope, and the route's own limit; strangers cannot make the server parse anything."""
    answer = answer_before_body(small_server, method, path, who, length)

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"application/problem+json" in answer


def test_survives_a_body_that_never_comes(small_server: RunningServer) -> None:
    """Connections that are cut in the middle of a body affect nothing else."""
    address = ("127.0.0.1", int(small_server.url.rsplit(":", 1)[1]))
    for _ in range(5):
        with socket.create_connection(address, timeout=5) as connection:
            token = small_server.secrets["writer"]
            head = f"PUT {ONE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 500\r\n\r\n{{"
            connection.sendall(head.encode())

    assert call(small_server, "GET", "/v1/delays").json()["delays"] == []


def test_limits_the_rate_of_each_caller_apart(small_server: RunningServer) -> None:
    """429 says when to retry; other callers and the probes are not affected."""
    answers = [call(small_server, "GET", "/v1/delays", None) for _ in range(25)]

    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert_problem(refused[0], 429, "too-many")
    assert int(refused[0].headers["Retry-After"]) >= 1
    assert call(small_server, "GET", "/v1/delays", "reader").status_code == 200
    assert call(small_server, "GET", "/livez", None).status_code == 200


def test_metrics_have_no_sample_for_an_unknown_delay(server: RunningServer, submission: Make) -> None:
    """Neither 0 nor NaN; the state shows it."""
    call(server, "PUT", ONE, json=body(submission(NOON_MS - 5_000)))
    known = samples(server)
    server.clock.now_ms += 60_000
    lost = submission(None, position=None, listed_ms=server.clock.now_ms)
    call(server, "PUT", ONE, json=body(lost))
    unknown = samples(server)

    one = ("feeder", "impressions")
    assert known["teacup_data_delay_seconds", *one] == 5
    assert ("teacup_data_delay_seconds", *one) not in unknown
    assert unknown["teacup_data_delay_last_success_age_seconds", *one] == 60
    assert unknown["teacup_data_delay_last_submission_age_seconds", *one] == 0
    for found, state in ((known, "ok"), (unknown, "unknown")):
        one_hot = {key[2]: value for key, value in found.items() if key[0] == "teacup_data_delay_state"}
        assert one_hot == {each: float(each == state) for each in ("ok", "caught_up", "unknown", "stale")}


def test_metrics_count_requests_by_route_and_not_by_what_callers_make_up(server: RunningServer) -> None:
    """Otherwise anybody could fill Prometheus."""
    call(server, "GET", "/v1/delays/a/b")
    call(server, "GET", "/made-up")
    call(server, "PROPFIND", "/made-up")

    counted = {key[1:] for key in samples(server) if key[0] == "teacup_data_delay_requests_total"}

    assert ("GET", "/v1/delays/{consumer}/{topic}", "404") in counted
    assert ("GET", "other", "404") in counted
    assert ("other", "other", "404") in counted, counted


def test_goes_stale_by_the_interval_of_its_consumer(tmp_path: Path, submission: Make) -> None:
    """An hourly consumer is not stale after three minutes."""
    with running_server(tmp_path, interval="1m", intervals={"hourly": "1h"}) as server:
        for consumer in ("hourly", "minutely"):
            content = body(submission(consumer=consumer))
            call(server, "PUT", f"/v1/delays/{consumer}/impressions", json=content)
        server.clock.now_ms += 180_001

        states = {each["consumer"]: each["state"] for each in call(server, "GET", "/v1/delays").json()["delays"]}

    assert states == {"hourly": "ok", "minutely": "stale"}


def test_many_writers_of_one_topic_leave_the_newest(server: RunningServer, submission: Make) -> None:
    """Overlapping submissions are decided one after another."""
    contents = [body(submission(NOON_MS + n, position=10 + n, listed_ms=NOON_MS + n)) for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda each: call(server, "PUT", ONE, json=each).status_code, contents))

    assert set(statuses) <= {200, 409}
    assert call(server, "GET", ONE).json()["consumed_until_ms"] == NOON_MS + 39
    points = call(server, "GET", ONE + "/history").json()["points"]
    assert len(points) == statuses.count(200)
    assert [p["consumed_until_ms"] for p in points] == sorted((p["consumed_until_ms"] for p in points), reverse=True)


def test_takes_a_topic_of_many_partitions(server: RunningServer, submission: Make) -> None:
    """Thousands fit into the default limit."""
    reports = tuple(PartitionReport(n, 10**12 + n, NOON_MS - n) for n in range(5_000))

    answer = call(server, "PUT", ONE, json=body(submission(NOON_MS - 4_999, partitions=reports)))

    assert answer.status_code == 200
    assert answer.json()["slowest"]["partition"] == 4_999
