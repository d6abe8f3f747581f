"""Keeps an output free of duplicates after a restart; while off, it costs nothing.

restart/         the deduplicator that a restart triggers
topic/           one topic deduplicated into another
errors.py        what this package refuses or gives up (pure)
identity.py      what identifies a result: positions, a header, a key; and the batch that wrote it (pure)
keyed.py         values by key that survive replays
replay_range.py  which batches may be a replay, and where in the output their earlier results may be (pure)
results.py       recent results: from a Kafka topic, from files of a lake

Public: `dedup.DedupConfig`, `dedup.DedupError`, `dedup.Identity`, `dedup.KafkaResults`, `dedup.KeyValue`,
`dedup.KeyedResults`, `dedup.LakeResults`, `dedup.LoadLimits`, `dedup.Loaded`, `dedup.RecentResults`, `dedup.add_int`,
`dedup.restart_deduplicator`; the rest is internal.

What needs Spark, Kafka or Arrow is imported on first use, because the pure parts need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacup.base.process import on_first_use

if TYPE_CHECKING:
    from dedup.errors import DedupError
    from dedup.identity import Identity
    from dedup.keyed import KeyedResults, KeyValue, add_int
    from dedup.replay_range import DedupConfig, Loaded, LoadLimits, RecentResults
    from dedup.restart.worker import restart_deduplicator
    from dedup.results import KafkaResults, LakeResults

__all__ = [
    "DedupConfig",
    "DedupError",
    "Identity",
    "KafkaResults",
    "KeyValue",
    "KeyedResults",
    "LakeResults",
    "LoadLimits",
    "Loaded",
    "RecentResults",
    "add_int",
    "restart_deduplicator",
]

__getattr__ = on_first_use(
    __name__,
    {
        "DedupConfig": "dedup.replay_range",
        "DedupError": "dedup.errors",
        "Identity": "dedup.identity",
        "KafkaResults": "dedup.results",
        "KeyValue": "dedup.keyed",
        "KeyedResults": "dedup.keyed",
        "LakeResults": "dedup.results",
        "LoadLimits": "dedup.replay_range",
        "Loaded": "dedup.replay_range",
        "RecentResults": "dedup.replay_range",
        "add_int": "dedup.keyed",
        "restart_deduplicator": "dedup.restart.worker",
    },
)
