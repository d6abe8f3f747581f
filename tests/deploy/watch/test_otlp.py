"""The numbers of a job as an OpenTelemetry receiver gets them: over real HTTP, in its own format."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from deploy.broker.lifeline import free_port
from deploy.watch import measures
from deploy.watch.board import BoardListeners
from deploy.watch.life.moment import JobState, Phase, TopicLag
from deploy.watch.listener import Listeners
from deploy.watch.otlp import WITHIN_S, Otlp
from teacup.base.errors import ExitCode
from tests.deploy.watch.reports import ABOUT, Batch


class Receiver(HTTPServer):
    """Keeps what it receives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.paths: list[str] = []
        self.requests: list[ExportMetricsServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Post(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.paths.append(self.path)
        self.server.requests.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(ExportMetricsServiceResponse().SerializeToString())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def points(request: ExportMetricsServiceRequest) -> dict[str, dict[tuple[str, ...], Any]]:
    """By metric and labels: the value, or of a histogram how many there were."""
    found: dict[str, dict[tuple[str, ...], Any]] = {}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        of_kind = getattr(metric, metric.WhichOneof("data"))
        for point in of_kind.data_points:
            labels = tuple(label.value.string_value for label in point.attributes)
            value = point.count if metric.HasField("histogram") else point.as_double or point.as_int
            found.setdefault(metric.name, {})[labels] = value
    return found


def test_a_receiver_gets_the_numbers_of_the_job(receiver: Receiver) -> None:
    """All of them at the end, whatever was sent before; the job is the service."""
    shown = BoardListeners("clicks")
    listeners = Listeners(shown, Otlp(receiver.url, shown.metrics))
    listeners.opening(ABOUT)
    listeners.moment(JobState(at_ms=0, phase=Phase.RUNNING, lag=TopicLag(0, {"left-topic": 7})))
    for _ in range(2):
        listeners.batch(Batch(numbers=[measures.READ(4, side="left"), measures.WINDOW_BYTES(9)]))
    listeners.ended(ExitCode.DONE)

    (request,) = receiver.requests
    found = points(request)
    resource = {one.key: one.value.string_value for one in request.resource_metrics[0].resource.attributes}
    assert receiver.paths == ["/v1/metrics"]
    assert resource["service.name"] == "clicks"
    assert found["teacup_records_read"] == {("left",): 8}
    assert found["teacup_window_bytes"] == {(): 9}
    assert found["teacup_last_exit_code"] == {(): 0}
    assert "teacup_lag_records" not in found, "nobody looks at the topics any more"
    assert found["teacup_batch_duration_seconds"] == {(): 2}


def test_a_receiver_that_is_not_there_does_not_keep_the_job(caplog: pytest.LogCaptureFixture) -> None:
    """It ends within seconds, with a line about it."""
    shown = BoardListeners("clicks")
    listeners = Listeners(shown, Otlp(f"http://127.0.0.1:{free_port()}", shown.metrics))
    listeners.opening(ABOUT)
    listeners.batch(Batch())
    listeners.ended(ExitCode.DONE)

    assert WITHIN_S <= 5
    assert caplog.records
