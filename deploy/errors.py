"""What running a job, or the development broker, refuses or gives up. Pure.

    DeployError
      +- TopicsMissing            topics that the job file names do not exist
      +- CheckpointUnusable       the checkpoint cannot be used for what was asked
      |    +- CheckpointInUse     another process runs on it
      |    +- DiskFull            a disk that the job writes to is full or read-only
      |    +- JobRenamed          it was written under another name of the job
      |    +- CheckpointOfAnother  another job has written it
      +- StandbyRefused           the job cannot have a standby there
      +- LeaseLost                another process of the job has taken over
      +- AccountsDiffer           rows were lost or duplicated on their way
      +- ForeignRow               the output has a record that the join did not write
      +- BrokerFailed             the development broker did not start, or ended
      +- JarsNotFetched           Maven could not fetch the development broker's jars

Each class carries the exit code of the command that it ends. The message says which value was wrong, where it came
from, and what to do.
"""

from __future__ import annotations

from teacup.base.errors import CommandError, ExitCode, Invalid
from teacup.kafka.errors import TopicMissing


class DeployError(CommandError):
    """Anything that running a job, or the development broker, refuses or gives up."""


class TopicsMissing(DeployError, Invalid):
    """Topics that the job file names do not exist; the message lists them all, each with its key."""


class CheckpointUnusable(DeployError, exit_code=ExitCode.CHECKPOINT):
    """The checkpoint cannot be used for what was asked; the message says why."""


class CheckpointInUse(CheckpointUnusable):
    """Another process runs on the same checkpoint."""


class DiskFull(CheckpointUnusable):
    """A disk of this machine that the job writes to is full or read-only, or the user's quota there is used up."""


class JobRenamed(CheckpointUnusable):
    """The checkpoint was written under another name, by which what is in the output is known."""


class CheckpointOfAnother(CheckpointUnusable):
    """Another job has written the checkpoint: one of another kind, or under another name and of other topics."""


class StandbyRefused(DeployError, Invalid):
    """Two processes of this job could write at once, or it ends by itself; the message says which."""


class LeaseLost(DeployError, exit_code=ExitCode.TAKEN_OVER):
    """Another process of the job has taken over while this one was silent."""


class AccountsDiffer(DeployError):
    """Rows were lost or duplicated on their way; the batch is not committed."""


class ForeignRow(DeployError):
    """The output has a record that the join did not write, so it is unknown which right records were joined."""


class BrokerFailed(DeployError):
    """The development broker did not start, or ended by itself; the message says why."""


class JarsNotFetched(DeployError):
    """Maven could not fetch the development broker's jars; the message has the end of its output."""


def code_of_inspection(error: Exception) -> ExitCode:
    """Returns the exit code of a command that only looks: there a missing topic is a wrong name.

    A running job, whose topic may be recreated, ends otherwise, so that it is started again.
    """
    return ExitCode.BAD_JOB_FILE if isinstance(error, TopicMissing) else getattr(error, "exit_code", ExitCode.FAILED)
