"""kill -9 of the real server process while collectors submit: no acknowledged submission is lost."""

from __future__ import annotations

import signal
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from datadelay.client import DelayClient
from datadelay.errors import DelayServerUnavailable
from datadelay.model import PartitionReport, Submission
from teacup.base.now import wall_ms
from tests.support.delay_process import TOKEN, server_process
from tests.support.waiting import wait_until

WRITERS = 4


@dataclass
class Writer:
    """A collector that submits as fast as it can, and records what was acknowledged."""

    topic: str
    begin_ms: int
    sent: int = 0
    acknowledged: list[int] = field(default_factory=list)

    def run(self, url: str, server: subprocess.Popen[bytes]) -> None:
        """Submits until the server is gone; one missing answer, on a machine that stalled, does not end it."""
        with DelayClient(url, TOKEN, retries=0) as client:
            while True:
                self.sent += 1
                try:
                    client.submit(self.submission(self.sent))
                except DelayServerUnavailable:
                    if server.poll() is None:
                        continue
                    return
                self.acknowledged.append(self.sent)

    def submission(self, number: int) -> Submission:
        time_ms = self.begin_ms + number
        return Submission(
            consumer="feeder",
            topic=self.topic,
            listed_ms=time_ms,
            consumed_until_ms=time_ms,
            partitions=(PartitionReport(0, number, time_ms),),
            generation="first",
        )


def test_nothing_acknowledged_is_lost_by_kill_9(database: str, tmp_path: Path) -> None:
    """Twice on the same database; the unanswered submission may be in or not, and can be repeated."""
    begin_ms = wall_ms() - 3_600_000
    writers = [Writer(f"topic-{n}", begin_ms) for n in range(WRITERS)]

    for round_number in range(2):
        with server_process(database, tmp_path) as (process, url):
            assert_kept(url, writers)
            threads = [threading.Thread(target=writer.run, args=(url, process)) for writer in writers]
            for thread in threads:
                thread.start()
            goals = [len(writer.acknowledged) + 20 + 7 * round_number for writer in writers]
            wait_until(lambda goals=goals: all(len(w.acknowledged) >= g for w, g in zip(writers, goals, strict=True)))
            process.send_signal(signal.SIGKILL)
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()

    with server_process(database, tmp_path) as (_, url):
        assert_kept(url, writers)


def assert_kept(url: str, writers: list[Writer]) -> None:
    """Asserts that all is there that was acknowledged, and at most one submission more of each writer."""
    with DelayClient(url, TOKEN) as client:
        for writer in (writer for writer in writers if writer.acknowledged):
            delay = client.read("feeder", writer.topic)
            history = client.history("feeder", writer.topic, limit=2_000)
            kept = {(point.consumed_until_ms or 0) - writer.begin_ms for point in history.points}
            assert history.next_before is None
            assert set(writer.acknowledged) <= kept <= set(range(1, writer.sent + 1))
            assert delay.consumed_until_ms == writer.begin_ms + max(kept)
            assert max(kept) - max(writer.acknowledged) in (0, 1)
            again = client.submit(writer.submission(max(kept)))
            assert again.consumed_until_ms == delay.consumed_until_ms


def test_a_stop_finishes_what_is_under_way_and_leaves_the_file_to_the_next_server(
    database: str, tmp_path: Path
) -> None:
    """SIGTERM, as a pod gets it."""
    writer = Writer("topic", wall_ms() - 3_600_000)
    with server_process(database, tmp_path) as (process, url):
        with DelayClient(url, TOKEN) as client:
            client.submit(writer.submission(1))
        process.send_signal(signal.SIGTERM)
        process.wait(60)

    with server_process(database, tmp_path) as (_, url), DelayClient(url, TOKEN) as client:
        assert [delay.topic for delay in client.list()] == ["topic"]
