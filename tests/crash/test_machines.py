"""Machines of a cluster are lost and added while a job runs; they share no disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.broker.broker import Broker
from teacup.kafka.delivery.failpoints import FAILPOINTS
from tests.crash import checks
from tests.crash.run import Run
from tests.crash.traffic import PARTITIONS
from tests.support.standalone import Standalone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_000)]


@pytest.mark.parametrize("kind", ["window-join", "shuffled-join"])
def test_machines_may_be_lost_and_added(tmp_path: Path, kind: str) -> None:
    """Each is killed with all its processes while it delivers; a new one, with empty folders, replaces it."""
    with Broker() as broker, Standalone(tmp_path, machines=2, cores=1) as cluster:
        points = {"spark.executorEnv.TEACUP_FAILPOINTS": str(tmp_path / "points")}
        spark = {"spark.driver.host": "127.0.0.1", **points}
        changes = {"window_folder": None, "window_backup": True, "spark": spark}
        run = Run(broker, tmp_path, seed=5, master=cluster.url, kind=kind, changes=changes)

        def lose(worker: int) -> None:
            cluster.lose(worker)
            cluster.add(cores=1)

        for point in FAILPOINTS:
            run.strike(f"loss of a machine at {point}", point, lose)
        run.finish()
        copies = [path.name for path in (tmp_path / "checkpoint" / "slices").rglob("*") if path.is_file()]
        assert any(name.endswith(".slice") for name in copies)
        assert any(": fetched " in path.read_text() for path in tmp_path.glob("machine-*/work/*/*/stderr"))
        assert checks.too_many_files(copies, PARTITIONS + 1) is None
