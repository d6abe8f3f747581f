"""Keeps an output free of duplicates after a restart; while off, it costs nothing.

deduplicator.py  one worker's deduplicator                                   (pure)
states.py        off -> filtering -> off, and why                            (pure)
replayrange.py   what may be a replay, and where its results may be          (pure)
seen.py          the ids that were seen; hashing.py: ids as 16 bytes         (pure)
results.py       recent results, a Protocol; kafkaresults.py, lakeresults.py: from a topic, from files
identity.py      what identifies a result; batchtag.py: which batch of which job wrote it      (pure)
worker.py        the deduplicator in a worker process: waits, loads, logs
spark.py         Spark: attempts and the replay range; `restart_deduplicator` for any streaming DataFrame
topicsource.py, topicjob.py   one topic deduplicated into another
keyed.py         values by key that survive replays                          (pure)

What needs Spark, Kafka or Arrow is imported on first use, because the pure parts need none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dedup.errors import DedupError
    from dedup.identity import Identity
    from dedup.results.kafka import KafkaResults
    from dedup.keyed import KeyedResults, KeyValue, add_int
    from dedup.results.lake import LakeResults
    from dedup.restart.replayrange import DedupConfig, LoadLimits
    from dedup.results.protocol import Loaded, RecentResults
    from dedup.restart.spark import restart_deduplicator

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

_LATER = {
    "DedupConfig": "dedup.restart.replayrange",
    "DedupError": "dedup.errors",
    "Identity": "dedup.identity",
    "KafkaResults": "dedup.results.kafka",
    "KeyValue": "dedup.keyed",
    "KeyedResults": "dedup.keyed",
    "LakeResults": "dedup.results.lake",
    "LoadLimits": "dedup.restart.replayrange",
    "Loaded": "dedup.results.protocol",
    "RecentResults": "dedup.results.protocol",
    "add_int": "dedup.keyed",
    "restart_deduplicator": "dedup.restart.spark",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
