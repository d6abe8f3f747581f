"""Which path a join takes, and into how many buckets: decided once, before Spark plans the query."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace

from joins.admission import copartition
from joins.admission.reader import open_log
from joins.admission.state import Admission
from joins.errors import NotCoPartitioned, SpecError
from joins.spec import JoinPath, JoinSpec
from kafkaio.recordkey import KeyOf

log = logging.getLogger("teacup.joins.shuffle.choice")


def with_path(spec: JoinSpec, planned: Admission | None = None) -> JoinSpec:
    """The same join with its path, and on the shuffled one with its number of buckets.

    planned   the newest admission of the checkpoint, whose path it continues; None: a new checkpoint

    Topics that are partitioned alike by Kafka's key, which is the join key, take the direct path, unless `spec.path`
    says otherwise; others take the shuffled one, and the reason is logged. (A sample of other keys may be too small to
    show that they are not partitioned alike.) Raises `NotCoPartitioned` if the direct one is asked for,
    `SpecError` and `KafkaIOError`.
    """
    path, buckets = spec.path, spec.buckets
    if planned is not None:
        path, buckets = path or (JoinPath.SHUFFLED if planned.parts else JoinPath.DIRECT), buckets or planned.parts
    else:
        with closing(open_log(spec, spec.left)) as left, closing(open_log(spec, spec.right)) as right:
            single = left.partition_count() == right.partition_count() == 1
            if (
                path is None
                and not single
                and not (KeyOf.of(spec.left.key).is_kafkas and KeyOf.of(spec.right.key).is_kafkas)
            ):
                log.warning("%s takes the shuffled path: its join key is not Kafka's key on both sides", spec.name)
                path = JoinPath.SHUFFLED
            if path is not JoinPath.SHUFFLED:
                try:
                    copartition.check(spec, left, right)
                    path = JoinPath.DIRECT
                except NotCoPartitioned as error:
                    if path is JoinPath.DIRECT:
                        raise
                    log.warning("%s takes the shuffled path: %s", spec.name, error)
                    path = JoinPath.SHUFFLED
            if path is JoinPath.SHUFFLED:
                buckets = buckets or max(left.partition_count(), right.partition_count())
    if path is JoinPath.DIRECT and buckets is not None:
        raise SpecError(f"buckets: {buckets} is for the shuffled path only; on the direct path each partition is one")
    return replace(spec, path=path, buckets=buckets)
