"""OpenLineage events of a run, posted to a real HTTP server by OpenLineage's own client."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.jobfile.job import LineageTo
from deploy.watch.lineage import Lineage
from deploy.watch.listener import JobDescription
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.deploy.jobs.conftest import window_job
from tests.support.jobhere import JobsHere, here
from tests.support.sparkjoin import Put, produce

__all__ = ["here", "window_job"]

Event = dict[str, Any]
ABOUT = JobDescription(
    name="clicks", kind="window-join", version="1", does="joins", sides={"l": "left"}, brokers="h:1, h:2"
)


@contextmanager
def lineage_server() -> Iterator[tuple[str, list[Event]]]:
    """Its URL, and the events that it has got."""
    events: list[Event] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", events
    finally:
        server.shutdown()
        server.server_close()


def counts(event: Event) -> dict[str, int]:
    """The rows of each topic, as far as the event has them."""
    facets = [(one["name"], one.get("inputFacets", {}).get("inputStatistics")) for one in event["inputs"]]
    facets += [(one["name"], one.get("outputFacets", {}).get("outputStatistics")) for one in event["outputs"]]
    return {name: facet["rowCount"] for name, facet in facets if facet}


@pytest.mark.parametrize(("kind", "written"), [("left", 20), ("full", 30)])
def test_a_join_reports_its_topics_and_what_it_read_and_wrote(
    window_job: Callable[..., dict[str, Any]], here: JobsHere, kafka: dict[str, str], kind: str, written: int
) -> None:
    """START, RUNNING, COMPLETE of one run; its topics with schema and counts."""
    content = window_job(1, producer_delay="0s", complete=True, join={"before": "2s", "type": kind})
    left, right, out = (content[name]["topic"] for name in ("left", "right", "output"))
    now = wall_ms() - 60_000
    produce(kafka, right, [Put(0, b"k%d" % i, now + i) for i in range(30)])
    produce(kafka, left, [Put(0, b"k%d" % i, now + i) for i in range(20)])

    with lineage_server() as (url, events):
        content["lineage"] = {"url": url, "namespace": "ads", "every": "1ms"}
        assert here.run(content).code == ExitCode.DONE

    states = [event["eventType"] for event in events]
    assert (states[0], states[-1]) == ("START", "COMPLETE")
    assert set(states[1:-1]) == {"RUNNING"}
    assert len({event["run"]["runId"] for event in events}) == 1
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in events} == {("ads", content["name"])}
    last = events[-1]
    assert counts(events[0]) == {left: 0, right: 0, out: 0}
    assert counts(last) == {left: 20, right: 30, out: written}
    assert {one["namespace"] for one in (*last["inputs"], *last["outputs"])} == {
        f"kafka://{kafka['bootstrap.servers']}"
    }
    fields = {one["name"]: [f["name"] for f in one["facets"]["schema"]["fields"]] for one in last["outputs"]}
    assert fields == {out: ["key", "left", "right", "outcome", "reason"]}


def test_a_run_that_fails_says_how() -> None:
    """With the meaning of its exit code; the first of several brokers names the cluster."""
    with lineage_server() as (url, events), closing(Lineage(LineageTo(url=url))) as lineage:
        lineage.opening(ABOUT)
        lineage.ended(ExitCode.DATA_LOSS)

    start, fail = events
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    assert fail["run"]["facets"]["errorMessage"]["message"].startswith("exit code 3: records that the job still needs")
    assert fail["inputs"][0]["namespace"] == "kafka://h:1"


def test_a_service_that_does_not_answer_is_named_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """It harms nobody."""

    class Broken:
        def emit(self, event: Any) -> None:
            raise ConnectionError("refused")

    with closing(Lineage(LineageTo(), Broken())) as lineage:
        lineage.opening(ABOUT)
        lineage.ended(ExitCode.DONE)

    assert [record.getMessage() for record in caplog.records] == ["lineage is not reported: ConnectionError: refused"]
