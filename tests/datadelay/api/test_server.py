"""The API over HTTP, on a real server: what it publishes, lists, forgets and counts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from datadelay.model import PARTITIONS_MAX, PartitionReport, Submission
from datadelay.wire import SubmissionBody
from tests.support.api import NOON_MS, assert_problem, call, samples
from tests.support.delay_server import RunningServer, body_of, running_server

Make = Callable[..., Submission]
ONE = "/v1/delays/feeder/impressions"


def test_answers_a_submission_with_what_is_published(server: RunningServer, submission: Make) -> None:
    """Times come as milliseconds and as ISO 8601."""
    answer = call(server, "PUT", ONE, json=body_of(submission(NOON_MS - 5_000)))

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
        "slowest": {"partition": 0, "position": 10, "watermark_ms": NOON_MS - 5_000, "reason": None},
        "partitions": None,
    }
    assert call(server, "GET", ONE).json() == answer.json()


def test_names_every_partition_only_when_asked(server: RunningServer, submission: Make) -> None:
    """A gate reads often and does not need a thousand of them."""
    call(server, "PUT", ONE, json=body_of(submission()))

    partitions = call(server, "GET", ONE + "?partitions=true").json()["partitions"]

    assert [each["partition"] for each in partitions] == [0]


def test_lists_every_consumer_and_topic_by_name(server: RunningServer, submission: Make) -> None:
    """The order does not depend on who submitted first."""
    for consumer, topic in (("b", "t1"), ("a", "t2"), ("a", "t1")):
        call(server, "PUT", f"/v1/delays/{consumer}/{topic}", json=body_of(submission(consumer=consumer, topic=topic)))

    delays = call(server, "GET", "/v1/delays", "reader").json()["delays"]

    assert [(each["consumer"], each["topic"]) for each in delays] == [("a", "t1"), ("a", "t2"), ("b", "t1")]


def test_refuses_a_late_submission_and_changes_nothing(server: RunningServer, submission: Make) -> None:
    """409; counted in the metrics."""
    call(server, "PUT", ONE, json=body_of(submission(NOON_MS - 5_000)))
    before = call(server, "GET", ONE).json()

    late = call(server, "PUT", ONE, json=body_of(submission(NOON_MS - 1_000, listed_ms=NOON_MS - 1)))

    assert_problem(late, 409, "late")
    assert call(server, "GET", ONE).json() == before
    assert samples(server)["teacup_data_delay_refused_submissions_total", "late"] == 1


def test_a_rewind_makes_the_next_submission_believed(server: RunningServer, submission: Make) -> None:
    """From the endpoint to the value."""
    call(server, "PUT", ONE, json=body_of(submission(NOON_MS - 5_000)))
    server.clock.now_ms += 1_000

    rewound = call(server, "POST", ONE + "/rewind", json={"note": "ada replays"}).json()
    again = body_of(submission(NOON_MS - 900_000, position=1, listed_ms=NOON_MS + 2_000))
    believed = call(server, "PUT", ONE, json=again).json()

    assert (rewound["state"], rewound["consumed_until_ms"]) == ("unknown", None)
    assert "ada replays" in rewound["reason"]
    assert believed["consumed_until_ms"] == NOON_MS - 900_000


def test_history_comes_in_pages_from_the_newest_on(server: RunningServer, submission: Make) -> None:
    """Pages neither overlap nor leave anything out."""
    for number in range(7):
        server.clock.now_ms = NOON_MS + number * 60_000
        each = submission(NOON_MS + number, position=10 + number, listed_ms=server.clock.now_ms)
        call(server, "PUT", ONE, json=body_of(each))

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
        call(server, "PUT", ONE, json=body_of(each))
        points = [call(server, "GET", f"{ONE}/history?limit=1").json()["points"] for _ in range(2)]
        assert [point[0]["consumed_until_ms"] for point in points] == [NOON_MS + number] * 2
    call(server, "POST", ONE + "/rewind", json={})

    assert call(server, "GET", f"{ONE}/history?limit=1").json()["points"][0]["state"] == "unknown"
    call(server, "DELETE", ONE)
    assert_problem(call(server, "GET", f"{ONE}/history?limit=1"), 404, "no-delay")


def test_a_repeated_submission_leaves_no_second_point(server: RunningServer, submission: Make) -> None:
    """A sender that got no answer repeats it."""
    for _ in range(3):
        assert call(server, "PUT", ONE, json=body_of(submission())).status_code == 200

    assert len(call(server, "GET", f"{ONE}/history").json()["points"]) == 1


def test_forgets_a_retired_consumer(server: RunningServer, submission: Make) -> None:
    """Otherwise it would be stale for ever."""
    call(server, "PUT", ONE, json=body_of(submission()))

    gone = call(server, "DELETE", ONE)

    assert gone.status_code == 204
    assert_problem(call(server, "GET", ONE), 404, "no-delay")
    assert_problem(call(server, "DELETE", ONE), 404, "no-delay")
    assert_problem(call(server, "POST", ONE + "/rewind", json={}), 404, "no-delay")
    assert_problem(call(server, "GET", ONE + "/history"), 404, "no-delay")


def test_metrics_have_no_sample_for_an_unknown_delay(server: RunningServer, submission: Make) -> None:
    """Neither 0 nor NaN; the state shows it."""
    call(server, "PUT", ONE, json=body_of(submission(NOON_MS - 5_000)))
    known = samples(server)
    server.clock.now_ms += 60_000
    lost = submission(None, position=None, listed_ms=server.clock.now_ms)
    call(server, "PUT", ONE, json=body_of(lost))
    unknown = samples(server)

    labels = ("feeder", "impressions")
    assert known["teacup_data_delay_seconds", *labels] == 5
    assert ("teacup_data_delay_seconds", *labels) not in unknown
    assert unknown["teacup_data_delay_last_success_age_seconds", *labels] == 60
    assert unknown["teacup_data_delay_last_submission_age_seconds", *labels] == 0
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
            content = body_of(submission(consumer=consumer))
            call(server, "PUT", f"/v1/delays/{consumer}/impressions", json=content)
        server.clock.now_ms += 180_001

        states = {each["consumer"]: each["state"] for each in call(server, "GET", "/v1/delays").json()["delays"]}

    assert states == {"hourly": "ok", "minutely": "stale"}


def test_many_writers_of_one_topic_leave_the_newest(server: RunningServer, submission: Make) -> None:
    """Overlapping submissions are decided one after another."""
    contents = [body_of(submission(NOON_MS + n, position=10 + n, listed_ms=NOON_MS + n)) for n in range(40)]
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

    answer = call(server, "PUT", ONE, json=body_of(submission(NOON_MS - 4_999, partitions=reports)))

    assert answer.status_code == 200
    assert answer.json()["slowest"]["partition"] == 4_999


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
