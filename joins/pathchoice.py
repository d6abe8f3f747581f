"""Which path a join takes, and into how many buckets: decided once, before Spark plans the query."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace

from joins.admission import copartition
from joins.admission.reader import open_log
from joins.admission.state import Admission
from joins.errors import NotCoPartitioned
from joins.spec import JoinPath, JoinSpec
from kafkaio.brokerlog import BrokerLog

log = logging.getLogger("teacup.joins.pathchoice")


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
            if path is not JoinPath.SHUFFLED:
                why = _why_not_direct(spec, left, right)
                path = JoinPath.DIRECT if why is None else JoinPath.SHUFFLED
                if why is not None:
                    log.info("%s takes the shuffled path: %s", spec.name, why)
            if path is JoinPath.SHUFFLED:
                buckets = buckets or max(left.partition_count(), right.partition_count())
    return replace(spec, path=path, buckets=buckets)


def _why_not_direct(spec: JoinSpec, left: BrokerLog, right: BrokerLog) -> str | None:
    """Why the topics may not take the direct path; None if they may. Raises `NotCoPartitioned` if it is asked for."""
    single = left.partition_count() == right.partition_count() == 1
    if spec.path is None and not single and not (spec.left.key_of.is_kafkas and spec.right.key_of.is_kafkas):
        return "its join key is not Kafka's key on both sides"
    try:
        copartition.check(spec, left, right)
    except NotCoPartitioned as error:
        if spec.path is JoinPath.DIRECT:
            raise
        return str(error)
    return None
