"""What Kafka alone can tell against a join, asked before Spark starts.

    the topics        compaction leaves what the join needs; they are those of the checkpoint. An interrupted batch of
                      topics that were given partitions since is completed; then the planner refuses the next one
    a new checkpoint  both topics have keys in common

The planner asks for the same again when it plans (`joins.admission`): by then the topics may have changed.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

from deploy.job import JoinJob
from deploy.jobs.joincheckpoint import Checkpoint
from joins.admission.firstlook import compare
from joins.admission.guard import check_not_recreated, check_topics
from joins.admission.reader import open_log
from joins.admission.state import Admission
from joins.flavour import flavour_of

Keys = tuple[bytes, bytes]


def first_look(job: JoinJob, planned: Admission | None) -> Keys | None:
    """Returns a key of each side, where both topics were compared. Warns if probably nothing will match.

    planned   the batch that the checkpoint planned last; None for a new one

    Raises `DataLoss`, `KafkaIOError`.
    """
    spec = job.spec
    with ExitStack() as stack:
        inputs = flavour_of(spec).inputs
        logs = {side: stack.enter_context(closing(open_log(spec, spec.side(side)))) for side in inputs}
        if planned is not None:
            check = check_topics if Checkpoint(job.checkpoint).is_committed() else check_not_recreated
            check(spec, planned, {side: log.described() for side, log in logs.items()})
            return None
        if "right" not in logs:
            return None
        left, right = logs["left"], logs["right"]
        return compare(spec, left, right)
