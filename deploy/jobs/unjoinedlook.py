"""What `teacup unjoined` looks at before it plans a slice.

The join's newest committed batch, then the ends of the output, then those of right; in this order, see
`joins.unjoined.expired`. Then it waits until the output is readable up to there: an open transaction, perhaps of a
process that is gone, may precede rows of committed batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from datadelay.positions.checkpoint import SparkCheckpoint
from deploy.job import JoinJob
from deploy.jobfile.joinwording import IN_FILE
from joins.admission.committed import state_after
from joins.admission.state import Admission
from joins.decoded import times_as_json
from joins.errors import DataLoss, SpecChanged
from joins.unjoined.expired import Seen
from kafkaio.brokerlog import BrokerLog
from kafkaio.client import committed_only
from kafkaio.now import wall_ms
from kafkaio.opentransaction import wait_until_readable

OPEN_TRANSACTION_S = 60.0


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs of the two topics."""

    right: BrokerLog
    output: BrokerLog

    @classmethod
    def of(cls, job: JoinJob) -> Logs:
        """Opens both; they are to be closed."""
        kafka, side = committed_only(job.spec.kafka), job.spec.right
        right = BrokerLog(
            side.topic,
            kafka,
            side.time_of,
            max_future_skew_ms=job.spec.max_future_skew_ms,
            as_json=times_as_json(side, job.spec.registry),
        )
        return cls(right, BrokerLog(job.output.topic, kafka))

    def close(self) -> None:
        """Closes both."""
        self.right.close()
        self.output.close()


def look(job: JoinJob, logs: Logs) -> Seen:
    """Looks at everything, in the order that makes it valid. Raises `KafkaUnavailable` if the output is unreadable."""
    admission = state_left_behind(job, committed_admission(job))
    now_ms = wall_ms()
    topics = {"right": logs.right.topic_id(), "output": logs.output.topic_id()}
    output = logs.output.ends()
    right = logs.right.ends()
    wait_until_readable(logs.output, output, OPEN_TRANSACTION_S)
    return Seen(admission, now_ms, output, right, topics)


def committed_admission(job: JoinJob) -> Admission:
    """Returns the admission of the join's newest committed batch. Raises `SpecChanged`, and like `SparkCheckpoint`."""
    ends = SparkCheckpoint(job.checkpoint).ends()
    if len(ends) != 1 or not isinstance(ends[0], dict):
        raise SpecChanged(f"checkpoint {job.checkpoint} is not that of a join: it has {len(ends)} sources")
    admission = Admission.from_json(ends[0])
    admission.check_belongs_to(job.spec, IN_FILE)
    return admission


def state_left_behind(job: JoinJob, admission: Admission) -> Admission:
    """Returns the state after a committed batch, from its facts.

    The next admission would hold it, but a join at its end may not plan one for a day.
    """
    spec = replace(job.spec, kafka=committed_only(job.spec.kafka))
    return state_after(spec, admission, job.facts_folders)


def check_output(output: BrokerLog) -> None:
    """Raises `DataLoss` for a compacted output topic."""
    policy = output.config().get("cleanup.policy", "")
    if "compact" in policy:
        raise DataLoss(
            f"output topic {output.topic!r} has cleanup.policy={policy}: rows that compaction removes would make their "
            "right records unjoined. Give it cleanup.policy=delete"
        )
