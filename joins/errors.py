"""What a join refuses, or gives up. Pure.

    JoinError
      +- SpecError           a value of the join's description is not allowed
      +- SpecChanged         the checkpoint belongs to another join
      +- SampleUnusable      no sampled record of a side has a join key, or a time
      +- NotCoPartitioned    the two topics do not keep a key in the same partition
      +- DataLoss            records that the join still needs are gone from the log
      +- ClockBehind         this machine's clock must be wrong
      +- NoDeadLetterTopic   a record can be neither joined nor written, and no topic for it is named
      +- StoreUnreachable    the storage API gave no usable answer for too long
      +- StoreChanged        the store that answers is not the one relied on
      |    +- StoreWiped     what was fed to the store is gone
      +- NoRetention         the store's namespace does not say how long items live
      +- RightRowUnreadable  an item of the store is not a right record
      +- CallRefused         an API refuses the job: waiting does not help
      +- DelayUnreachable    the data delay did not admit a batch within the requested wait

Each class carries the exit code of the command that it ends. The message says which value was wrong, where it came
from, and what to do.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from teacup.base.errors import CommandError, ExitCode, Invalid
from teacup.kafka.errors import RecordTooLarge, TakenOver
from teacup.kafka.log.losses import CONTINUE, Losses
from teacup.spark.jvm_errors import TaskEnded


class JoinError(CommandError):
    """The base of all errors that end a join."""


class SpecError(JoinError, Invalid, ValueError):
    """A value of the join's description is not allowed."""


class SpecChanged(JoinError, exit_code=ExitCode.CHECKPOINT):
    """The checkpoint belongs to a join with other keys, interval, disorder, policy or topics."""


class SampleUnusable(JoinError, Invalid):
    """No sampled record of a side has a join key, or a time: the rows would be meaningless."""


class NotCoPartitioned(JoinError, exit_code=ExitCode.NOT_CO_PARTITIONED):
    """The two topics do not keep a key in the same partition."""


class DataLoss(JoinError, exit_code=ExitCode.DATA_LOSS):
    """Records that the join still needs are gone: deleted by retention, truncated, or the topic was recreated."""


class ClockBehind(JoinError):
    """This machine's clock contradicts an earlier listing, the brokers' clocks, or most records' times."""


class NoDeadLetterTopic(JoinError, exit_code=ExitCode.REFUSED):
    """A record cannot be joined or stored, or its row cannot be written, and no dead-letter topic is named."""


class StoreUnreachable(JoinError, exit_code=ExitCode.UNREACHABLE):
    """The storage API gave no usable answer for longer than `unreachable_for`; the batch is retried."""


class StoreChanged(JoinError, exit_code=ExitCode.CHECKPOINT):
    """The store that answers is not the one that the batch plan relied on."""


class StoreWiped(StoreChanged):
    """The store that answers is not the one that was fed: what was fed before is gone."""


class NoRetention(JoinError, Invalid):
    """The namespace does not promise how long items live, so no lookup join could rely on it."""


class RightRowUnreadable(JoinError):
    """An item of the store is not a right record, or has a format that this version does not know."""


class CallRefused(JoinError, Invalid):
    """An API refuses the job: its token, its namespace, or its request. Waiting does not help."""


class DelayUnreachable(JoinError, exit_code=ExitCode.UNREACHABLE):
    """The data delay did not admit a batch within the requested wait."""


NO_RETRY_HELPS = (
    CallRefused,
    DataLoss,
    NoDeadLetterTopic,
    NoRetention,
    RecordTooLarge,
    StoreChanged,
    TakenOver,
    TaskEnded,
)
"""Errors that a task reports instead of raising, because a retry by Spark would not help. Its last stage reports to the
driver (`teacup.spark.jvm_errors`), an earlier one to the next (`joins.items`, `joins.window.shuffle.pieces`)."""

REMEDY = "start a new checkpoint at a time (`start: TIME`) with `teacup run --take-over`"
"""Two steps, because receipts in the output refuse another checkpoint than the old one."""
WAY_OUT = (
    "With `on_data_loss: continue` the next `teacup run` plans it again from what is left, if no row of it is in the "
    f"output. Otherwise {REMEDY}: rows from that time on are then written again"
)


def losses_of(on_data_loss: str) -> Losses:
    """Returns what a join does about lost records."""
    return Losses(DataLoss, REMEDY, on_data_loss == CONTINUE)


def planned_records(on_data_loss: str) -> AbstractContextManager[None]:
    """Returns a context for reading a planned batch's records; raises `DataLoss` for those that are gone."""
    return losses_of(on_data_loss).of_planned(WAY_OUT)
