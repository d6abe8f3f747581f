"""What a run of `teacup unjoined` knows before it plans a slice: its state, and a snapshot of the join and the topics.

The snapshot has the join's newest committed batch, then the ends of the output, then those of right; in this order,
see `joins.lookup.unjoined.expired`. Then it waits until the output is readable up to there: an open transaction,
perhaps of a process that is gone, may precede rows of committed batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from datadelay.errors import CheckpointNotUnderstood
from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.place import current
from deploy.jobfile.job import JoinJob
from joins.batch.state import BatchPlan
from joins.errors import DataLoss
from joins.lookup.unjoined.expired import Seen
from joins.plan.log_checks import is_compacted
from joins.plan.reader import state_after
from joins.read.side_log import side_log
from teacup.base.now import wall_ms
from teacup.kafka.client import committed_only
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.point_reader import wait_until_readable

OPEN_TRANSACTION_S = 60.0


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs of the two topics."""

    right: BrokerLog
    output: BrokerLog

    @classmethod
    def of(cls, job: JoinJob) -> Logs:
        """Opens both; they are to be closed."""
        right = side_log(job.spec, job.spec.right)
        return cls(right, BrokerLog(job.output.topic, committed_only(job.spec.kafka)))

    def close(self) -> None:
        """Closes both."""
        self.right.close()
        self.output.close()


def snapshot(job: JoinJob, logs: Logs) -> Seen:
    """Returns what there is, asked for in the required order. Raises `KafkaUnavailable` if the output is unreadable."""
    batch_plan = state_left_behind(job, committed_plan(job))
    now_ms = wall_ms()
    topics = {"right": logs.right.topic_id(), "output": logs.output.topic_id()}
    output = logs.output.ends()
    right = logs.right.ends()
    wait_until_readable(logs.output, output, OPEN_TRANSACTION_S)
    return Seen(batch_plan, now_ms, output, right, topics)


def committed_plan(job: JoinJob) -> BatchPlan:
    """Returns the plan of the join's newest committed batch. Raises `SpecChanged`, `CheckpointUnreadable`, and
    `CheckpointNotUnderstood` if there is none.
    """
    checkpoint = Checkpoint(current(job).checkpoint)
    batch_plan = checkpoint.committed()
    if batch_plan is None:
        raise CheckpointNotUnderstood(f"checkpoint {job.checkpoint}: no batch has been committed; run the join first")
    checkpoint.check_belongs(batch_plan, job.spec)
    return batch_plan


def state_left_behind(job: JoinJob, batch_plan: BatchPlan) -> BatchPlan:
    """Returns the state that the next plan starts from: the committed batch and its facts.

    The join's own next plan would hold it, but an idle join may not make one for a day.
    """
    spec = replace(job.spec, kafka=committed_only(job.spec.kafka))
    return state_after(spec, batch_plan, current(job).facts_folders)


def check_output(output: BrokerLog) -> None:
    """Raises `DataLoss` for a compacted output topic."""
    config = output.config()
    if is_compacted(config):
        raise DataLoss(
            f"output topic {output.topic!r} has cleanup.policy={config['cleanup.policy']}: rows that compaction "
            "removes would make their right records unjoined. Give it cleanup.policy=delete"
        )
