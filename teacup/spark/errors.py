"""What starting or keeping Spark refuses or gives up. Pure.

    SparkError
      +- MissingTool       Java or Maven is missing or too old
      +- NoCache           there is no folder for a cache
      +- SessionRefused    a Spark property or expression would break the job
      +- StartFailed       Spark's session could not be created
      |    +- MasterUnreachable  its master does not accept a connection, or not the job
      +- NoExecutor        Spark has given a session no executor for too long
      +- JvmEnded          Spark's JVM was killed, or ended by itself
      +- CheckpointInterrupted  a checkpoint's record of batches has gaps, or another process writes it
      +- CheckpointUnreadable   what the checkpoint holds is not known
           +- CheckpointInvalid        a file of it is truncated, or not understood
           +- CheckpointUnreachable    its file system does not answer
           +- CheckpointRefused        its file system denies access: credentials are missing or wrong
           +- CheckpointDriverMissing  fsspec has no driver for its file system

Each class carries the exit code of the command that it ends.
"""

from __future__ import annotations

from teacup.base.errors import CommandError, ExitCode, Invalid


class SparkError(CommandError):
    """Anything that Spark's edge refuses or gives up."""


class MissingTool(SparkError, exit_code=ExitCode.BAD_JOB_FILE):
    """Java or Maven is missing or too old; the message says how to get it."""


class NoCache(SparkError, exit_code=ExitCode.BAD_JOB_FILE):
    """No folder for a cache can be written to; the message says which were tried."""


class SessionRefused(SparkError, Invalid):
    """A property of the session would break the job, or Spark refuses an expression; the message says which."""


class StartFailed(SparkError):
    """Spark's session could not be created; the message has Java's reason."""


class MasterUnreachable(StartFailed, exit_code=ExitCode.UNREACHABLE):
    """Spark's master does not accept a connection, or not the job. The same start may work later."""


class NoExecutor(SparkError, exit_code=ExitCode.UNREACHABLE):
    """Spark has given a session no executor for too long. A new application may get one."""


class JvmEnded(SparkError):
    """Spark's JVM was killed, or ended by itself; the message says how."""


class CheckpointInterrupted(SparkError, exit_code=ExitCode.CHECKPOINT):
    """The record of batches in a checkpoint has gaps, or another process writes it; the message says where."""


class CheckpointUnreadable(SparkError):
    """What the checkpoint holds is not known."""


class CheckpointInvalid(CheckpointUnreadable, exit_code=ExitCode.CHECKPOINT):
    """A file of the checkpoint is truncated, or not understood; the message names it."""


class CheckpointUnreachable(CheckpointUnreadable, exit_code=ExitCode.UNREACHABLE):
    """The checkpoint's file system does not answer. The same call may work later."""


class CheckpointRefused(CheckpointUnreadable, exit_code=ExitCode.BAD_JOB_FILE):
    """The checkpoint's file system denies access: credentials are missing or wrong, or there is no such bucket."""


class CheckpointDriverMissing(CheckpointUnreadable, exit_code=ExitCode.BAD_JOB_FILE):
    """fsspec has no driver for the checkpoint's file system."""
