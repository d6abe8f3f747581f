"""The real server process with a SQLite file on a disk that fills up, and has room again."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from datadelay.client import DelayClient
from datadelay.errors import DelayServerUnavailable
from datadelay.model import PartitionReport, Submission
from teacup.base.now import wall_ms
from tests.support.api import is_ready
from tests.support.delay_process import TOKEN, server_process
from tests.support.smalldisk import fill_up, make_room, on_small_disk
from tests.support.waiting import wait_until


def submission(number: int, begin_ms: int) -> Submission:
    """The position that a collector found."""
    time_ms = begin_ms + number
    partitions = (PartitionReport(0, number, time_ms),)
    return Submission(
        consumer="feeder",
        topic="topic",
        listed_ms=time_ms,
        consumed_until_ms=time_ms,
        partitions=partitions,
        generation="first",
    )


def test_on_a_full_disk_submissions_are_refused_with_its_name_and_all_goes_on_once_there_is_room(
    tmp_path: Path,
) -> None:
    """What was acknowledged is still published, and read meanwhile."""
    disk, begin_ms = tmp_path / "disk", wall_ms() - 3_600_000
    before = on_small_disk(disk, "4m")
    with (
        server_process(f"sqlite:///{disk}/delay.db", tmp_path, before=before) as (process, url),
        DelayClient(url, TOKEN, retries=0) as collector,
    ):
        collector.submit(submission(1, begin_ms))
        fill_up(process.pid, disk)
        acknowledged = [1]

        def submit_on() -> None:
            for number in range(2, 5_000):
                collector.submit(submission(number, begin_ms))
                acknowledged.append(number)

        with pytest.raises(DelayServerUnavailable, match="503") as raised:
            submit_on()
        wait_until(lambda: not is_ready(url))

        logged = (tmp_path / "server.log").read_text()
        for said in (str(raised.value), requests.get(f"{url}/readyz", timeout=30).text, logged):
            assert f"database {disk}/delay.db" in said
            assert "bytes free): make room there" in said
        assert collector.read("feeder", "topic").consumed_until_ms == begin_ms + acknowledged[-1]

        make_room(process.pid, disk)
        wait_until(lambda: is_ready(url))
        collector.submit(submission(9_000, begin_ms))
        assert collector.read("feeder", "topic").consumed_until_ms == begin_ms + 9_000
