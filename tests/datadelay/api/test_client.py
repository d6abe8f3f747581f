"""The client against the real server, and against servers that fail as networks do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from datadelay.client import DelayClient
from datadelay.errors import (
    ConfigInvalid,
    DelayAccessDenied,
    DelayAnswerNotUnderstood,
    DelayCallFailed,
    DelayNotFound,
    DelayRateLimited,
    DelayServerUnavailable,
    SubmissionInvalid,
    SubmissionLate,
)
from datadelay.model import DelayState, PartitionReport, Submission
from tests.support.delay_server import RunningServer
from tests.support.times import NOON_MS

Make = Callable[..., Submission]
Answer = tuple[int, dict[str, str], bytes]


def test_reads_what_was_submitted(server: RunningServer, submission: Make) -> None:
    """Submit, read, list and history agree."""
    client = server.client()
    sent = submission(NOON_MS - 5_000, store_generation="store-7", caught_up=True)

    published = client.submit(sent)
    server.clock.now_ms += 2_000
    delay = client.read("feeder", "impressions", partitions=True)

    assert (delay.state, delay.consumed_until_ms, delay.delay_ms) == (DelayState.CAUGHT_UP, NOON_MS - 5_000, 7_000)
    assert (delay.age_ms, delay.since_ms, delay.reason) == (2_000, NOON_MS, None)
    assert (delay.generation, delay.store_generation) == ("first", "store-7")
    assert delay.partitions == sent.partitions
    assert delay.slowest == sent.partitions[0]
    assert published.consumed_until_ms == delay.consumed_until_ms
    assert [each.consumed_until_ms for each in client.list()] == [NOON_MS - 5_000]
    assert [point.consumed_until_ms for point in client.history("feeder", "impressions").points] == [NOON_MS - 5_000]


def test_carries_an_unknown_delay_with_its_reason(server: RunningServer, submission: Make) -> None:
    """The gate sees None, never a number."""
    client = server.client()
    client.submit(submission(None, position=None))

    delay = client.read("feeder", "impressions")

    assert (delay.state, delay.consumed_until_ms, delay.delay_ms) == (DelayState.UNKNOWN, None, None)
    assert delay.reason == "the broker does not answer"
    assert delay.slowest == PartitionReport(0, None, None, "the broker does not answer")


def test_rewinds_and_forgets(server: RunningServer, submission: Make) -> None:
    """What operators do on the command line."""
    client = server.client()
    client.submit(submission())

    rewound = client.rewind("feeder", "impressions", "ada")
    client.forget("feeder", "impressions")

    assert rewound.state is DelayState.UNKNOWN
    with pytest.raises(DelayNotFound, match="is its collector running"):
        client.read("feeder", "impressions")


def test_pages_through_a_history(server: RunningServer, submission: Make) -> None:
    """`next_before` leads to the older page."""
    client = server.client()
    for n in range(3):
        client.submit(submission(NOON_MS + n, position=10 + n, listed_ms=NOON_MS + n))

    first = client.history("feeder", "impressions", limit=2)
    second = client.history("feeder", "impressions", limit=2, before=first.next_before)

    assert [p.consumed_until_ms for p in first.points + second.points] == [NOON_MS + 2, NOON_MS + 1, NOON_MS]
    assert second.next_before is None


def test_raises_what_the_server_refused(server: RunningServer, submission: Make) -> None:
    """Each refusal has its own type, and the server's message."""
    client = server.client()
    client.submit(submission())

    with pytest.raises(SubmissionLate, match="nothing was changed"):
        client.submit(submission(listed_ms=NOON_MS - 1))
    with pytest.raises(SubmissionInvalid, match="set the collector's clock"):
        client.submit(submission(listed_ms=NOON_MS + 3_600_000))
    with pytest.raises(DelayAccessDenied, match="lacks the scope write"):
        server.client("reader").submit(submission())
    with pytest.raises(DelayAccessDenied, match="bearer token with scope read"):
        server.client(None).list()
    with pytest.raises(DelayCallFailed, match="/query/limit"):
        client.history("feeder", "impressions", limit=0)


def test_ignores_a_netrc_file(
    server: RunningServer, submission: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """requests would replace the token with the file's credentials."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ada password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    assert server.client().list() == ()


@contextmanager
def scripted(*answers: Answer | None) -> Iterator[tuple[str, list[str]]]:
    """Runs a server that gives these answers in turn, the last one for ever; at None it closes the connection."""
    left, seen = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            seen.append(f"{self.command} {self.headers.get('Authorization')}")
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = left.pop(0) if len(left) > 1 else left[0]
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, headers, content = answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}", seen
    finally:
        httpd.shutdown()
        thread.join(10)
        httpd.server_close()


EMPTY: Answer = (200, {}, b'{"now_ms": 1, "now": "", "delays": [], "said by a newer server": 1}')
BUSY: Answer = (
    429,
    {"Retry-After": "0"},
    b'{"type": "/problems/too-many", "title": "", "status": 429, "detail": "wait"}',
)


@pytest.mark.parametrize("failure", [None, (503, {}, b""), BUSY], ids=["cut", "503", "429"])
def test_repeats_reads_until_they_succeed(failure: Answer | None) -> None:
    """Within its limit of attempts."""
    with scripted(failure, failure, EMPTY) as (url, seen), DelayClient(url, "t", retries=2) as client:
        assert client.list() == ()
        assert seen == ["GET Bearer t"] * 3


@pytest.mark.parametrize(
    ("failure", "error"),
    [(None, DelayServerUnavailable), ((502, {}, b"<html>"), DelayServerUnavailable), (BUSY, DelayRateLimited)],
)
def test_gives_up_after_its_retries(failure: Answer | None, error: type[DelayCallFailed], submission: Make) -> None:
    """Reads and submissions alike: the first attempt and the retries."""
    with scripted(failure) as (url, seen), DelayClient(url, retries=1) as client:
        with pytest.raises(error):
            client.list()
        with pytest.raises(error):
            client.submit(submission())
        assert seen == ["GET None", "GET None", "PUT None", "PUT None"]


def test_never_repeats_a_rewind_or_a_forget() -> None:
    """The first may have succeeded: a second one would undo a submission in between."""
    with scripted(None) as (url, seen), DelayClient(url, retries=3) as client:
        for act in (client.rewind, client.forget):
            with pytest.raises(DelayServerUnavailable):
                act("feeder", "impressions")
        assert seen == ["POST None", "DELETE None"]


@pytest.mark.parametrize("failure", [(503, {}, b""), BUSY], ids=["503", "429"])
def test_repeats_a_rewind_that_was_not_done(failure: Answer) -> None:
    """The answer says so."""
    with scripted(failure, (404, {}, b"not here")) as (url, seen), DelayClient(url) as client:
        with pytest.raises(DelayAnswerNotUnderstood):
            client.rewind("feeder", "impressions")
        assert seen == ["POST None", "POST None"]


@pytest.mark.parametrize(
    ("answer", "attempts"),
    [
        ((200, {}, b"<html>a login page</html>"), 2),  # half an answer looks like this too
        ((200, {}, b'{"delays": 5}'), 2),
        ((404, {}, b"not here"), 1),
        ((404, {}, b'{"type": "/problems/not-found", "title": "", "status": 404, "detail": "Not Found"}'), 1),
        ((302, {"Location": "http://127.0.0.1:1/elsewhere"}, b""), 1),
    ],
)
def test_does_not_take_another_answer_for_a_delay(answer: Answer, attempts: int) -> None:
    """A wrong URL or a proxy does not mean "nothing was submitted"; a redirect would send the token elsewhere."""
    with scripted(answer) as (url, seen), DelayClient(url, "t", retries=1) as client:
        with pytest.raises(DelayAnswerNotUnderstood, match="GET http"):
            client.list()
        assert len(seen) == attempts


def test_gives_up_on_a_server_that_accepts_and_says_nothing() -> None:
    """The read time-out applies; nobody hangs for ever."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with DelayClient(url, retries=1, read_timeout_s=0.05) as client, pytest.raises(DelayServerUnavailable):
            client.list()


@pytest.mark.parametrize(
    "url", ["delay.example:8710", "ftp://x", "http://", "http://x/?a=b", "http://me:you@x", "http://[x"]
)
def test_refuses_what_is_not_a_url(url: str) -> None:
    """Before the first call."""
    with pytest.raises(ConfigInvalid, match="give http") as raised:
        DelayClient(url)
    assert "you" not in str(raised.value)


def test_refuses_the_url_of_a_call() -> None:
    """Each call adds its path; one before it may be a proxy's."""
    for url in ("http://x/v1", "http://x:8710/proxy/v1/delays"):
        with pytest.raises(ConfigInvalid, match="leave /v1 and what follows out"):
            DelayClient(url)
    DelayClient("https://v1/proxy").close()


def test_what_failed_is_said_in_words_of_the_system() -> None:
    """Not in those of libraries."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with DelayClient(url, retries=0) as client, pytest.raises(DelayServerUnavailable) as raised:
        client.list()
    assert str(raised.value) == f"GET {url}/v1/delays: no answer, or half of one: Connection refused"

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            DelayClient(url, retries=0, read_timeout_s=0.05) as client,
            pytest.raises(DelayServerUnavailable) as raised,
        ):
            client.list()
    assert str(raised.value).endswith("nothing arrived for 0.05 s")


@pytest.mark.parametrize("end", ["\n", " ", "é", "\0"])
def test_refuses_a_token_that_no_header_can_hold(end: str) -> None:
    """A line break at the end of a file, for example. The token is not shown."""
    with pytest.raises(ConfigInvalid, match="no header can hold") as raised:
        DelayClient("http://127.0.0.1:1", "my-own-token-here" + end)
    assert "my-own" not in str(raised.value)
