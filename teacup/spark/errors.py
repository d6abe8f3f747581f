"""What starting or keeping Spark refuses or gives up. Pure.

    SparkError
      +- MissingTool       Java or Maven is missing or too old
      +- NoCache           there is no folder for a cache
      +- SessionRefused    a Spark property or expression would break the job
      +- StartFailed       Spark's session could not be created
      |    +- MasterUnreachable  its master does not accept a connection, or not the job
      +- NoExecutor        Spark has given a session no executor for too long
      +- JvmEnded          Spark's JVM was killed, or ended by itself

Each class carries the exit code of the command that it ends.
"""

from __future__ import annotations

from typing import ClassVar

from teacup.base.errors import ExitCode, Invalid


class SparkError(Exception):
    """Anything that Spark's edge refuses or gives up."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class MissingTool(SparkError):
    """Java or Maven is missing or too old; the message says how to get it."""

    exit_code = ExitCode.BAD_JOB_FILE


class NoCache(SparkError):
    """No folder for a cache can be written to; the message says which were tried."""

    exit_code = ExitCode.BAD_JOB_FILE


class SessionRefused(SparkError, Invalid):
    """A property of the session would break the job, or Spark refuses an expression; the message says which."""

    exit_code = ExitCode.BAD_JOB_FILE


class StartFailed(SparkError):
    """Spark's session could not be created; the message has Java's reason."""


class MasterUnreachable(StartFailed):
    """Spark's master does not accept a connection, or not the job. The same start may work later."""

    exit_code = ExitCode.UNREACHABLE


class NoExecutor(SparkError):
    """Spark has given a session no executor for too long. A new application may get one."""

    exit_code = ExitCode.UNREACHABLE


class JvmEnded(SparkError):
    """Spark's JVM was killed, or ended by itself; the message says how."""
