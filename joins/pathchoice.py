"""Which path a join takes, and into how many buckets: decided once, before Spark plans the query."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace

from joins.admission import copartition
from joins.admission.guard import not_direct
from joins.admission.moved import Moved
from joins.admission.reader import open_log
from joins.admission.state import Admission
from joins.spec import JoinPath, JoinSpec
from kafkaio.topiclog import TopicLog

log = logging.getLogger("teacup.joins.pathchoice")


def with_path(spec: JoinSpec, planned: Admission | None = None, moved: Moved | None = None) -> JoinSpec:
    """Returns the same join with its path, and on the shuffled one with its number of buckets.

    planned   the newest admission of the checkpoint, whose path it continues; None: a new checkpoint
    moved     what a new checkpoint knows of the one that it goes on after

    Topics that are partitioned alike by Kafka's key, which is the join key, take the direct path, unless `spec.path`
    says otherwise; others take the shuffled one, and the reason is logged. Raises `NotCoPartitioned` if the direct one
    is asked for, `SpecError`, `DataLoss` and `KafkaIOError`.
    """
    path, buckets = spec.path, spec.buckets
    if planned is not None:
        path, buckets = path or (JoinPath.SHUFFLED if planned.parts else JoinPath.DIRECT), buckets or planned.parts
    else:
        with closing(open_log(spec, spec.left)) as left, closing(open_log(spec, spec.right)) as right:
            if path is not JoinPath.SHUFFLED:
                why = why_not_direct(spec, left, right, moved)
                if why is not None and path is JoinPath.DIRECT:
                    raise not_direct(spec, why)
                path = JoinPath.DIRECT if why is None else JoinPath.SHUFFLED
                if why is not None:
                    log.info("%s takes the shuffled path: %s", spec.name, why)
            if path is JoinPath.SHUFFLED:
                buckets = buckets or max(left.partition_count(), right.partition_count())
    return replace(spec, path=path, buckets=buckets)


def why_not_direct(spec: JoinSpec, left: TopicLog, right: TopicLog, moved: Moved | None = None) -> str | None:
    """Says why the topics may not take the direct path; None if they may, as far as is known.

    Unless it is asked for, the join key must be Kafka's, and left must not have more partitions than the checkpoint
    that the join goes on after knew: right records that it needs may be where their keys belonged before.

    Raises `DataLoss`, `KafkaIOError`.
    """
    partitions = left.partition_count()
    if spec.path is None and not partitions == right.partition_count() == 1:
        if not (spec.left.key_of.is_kafkas and spec.right.key_of.is_kafkas):
            return "its join key is not Kafka's key on both sides"
        if moved is not None and len(moved.left) < partitions:
            return (
                f"left topic {spec.left.topic!r} had {len(moved.left)} partitions before the move, and now {partitions}"
            )
    return copartition.why_not(spec, left, right)
