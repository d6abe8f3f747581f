"""What `make quick` runs starts nothing."""

from __future__ import annotations

from tests.quick import ROOT, quick


def test_what_starts_something_is_left_out() -> None:
    """Tests of or with the broker, those that start processes, whole audits; and the rules are in."""
    names = {str(module.relative_to(ROOT / "tests")) for module in quick()}

    assert names >= {
        *("joins/window/test_match.py", "joins/window/test_join_properties.py", "joins/plan/test_sync_bolt.py"),
        *("joins/testing/test_oracle.py", "dedup/restart/test_deduplicator.py", "datadelay/test_watermark.py"),
        *("deploy/jobfile/test_load.py", "teacup/kafka/delivery/test_receipt.py"),
    }
    assert not names & {
        *("teacup/kafka/read/test_range_reader.py", "joins/window/test_on_broker.py", "deploy/jobs/test_dedup.py"),
        *("teacup/kafka/delivery/test_fencing.py", "deploy/cli/test_app.py", "deploy/watch/test_page.py"),
        *("teacup/storage/backends/redis/test_store.py", "datadelay/positions/test_zookeeper.py"),
        "deploy/inspection/audit/test_types.py",
    }
