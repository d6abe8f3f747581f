"""On several machines each keeps the windows of its buckets: they move when one is lost, and not otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.support.jobprocess import JobProcess, records
from tests.support.sparkjoin import Put, produce
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until

PARTITIONS, BUCKETS, MACHINES = 12, 12, 3


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("also", ["all columns", "select", "shuffled"])
def test_windows_stay_where_they_are(
    kafka: dict[str, str], window_job: Callable[..., dict[str, Any]], tmp_path: Path, also: str
) -> None:
    """Also where rows go through Spark, or records through its shuffle. Of 40 batches none restores a window.

    After a machine is lost, its share is restored, once.
    """
    with Standalone(tmp_path, machines=MACHINES, cores=1) as cluster:
        of_spark = {"master": cluster.url, "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
        content = window_job(PARTITIONS, trigger={"every": "0s"}, spark=of_spark)
        content["join"] |= {"buckets": BUCKETS, "before": "1h"}
        del content["window_folder"]
        if also == "shuffled":
            content["join"]["path"] = also
        if also == "select":
            content["output"]["select"] = {"key": "key", "value": "left_value"}
        job, made = JobProcess(tmp_path, content), 0

        def batches(count: int) -> Counter[str]:
            nonlocal made
            before = len(job.lines)
            while len(job.lines) < before + count:
                seen, at_ms = len(job.lines), wall_ms()  # the clock would expire older records at once
                for side in ("right", "left"):
                    puts = [Put(p, b"%d" % p, at_ms + p, b"%d" % made) for p in range(PARTITIONS)]
                    produce(kafka, content[side]["topic"], puts)
                made += 1
                job.until(lambda seen=seen: len(job.lines) > seen, "another batch")
            found: Counter[str] = Counter()
            for line in job.lines[before:]:
                found.update(line["restored"])
            return found

        job.until(lambda: len(cluster.executors()) == MACHINES, "all executors")
        batches(8)
        steady = batches(40)
        assert set(steady) == {"memory"}
        assert job.lines[-1]["window_records"] > 20 * PARTITIONS

        cluster.lose(cluster.executors()[0])
        wait_until(lambda: len(cluster.executors()) == MACHINES - 1, within_s=120)
        moved = batches(8)
        after = batches(20)
        wait_until(lambda: len(records(kafka, content["output"]["topic"])) == made * PARTITIONS)
        code = job.stop()

    assert code == ExitCode.DONE
    restored = sum(windows for source, windows in moved.items() if source != "memory")
    assert 0 < restored < BUCKETS
    assert set(after) == {"memory"}
