"""What this package refuses or gives up. Pure.

DedupError
  +- DedupConfigInvalid  a value of the configuration is not allowed
  +- SourceChanged       the checkpoint belongs to a job with another topic
  +- RecordsGone         records that were not read yet are gone from the topic
  +- PartitionsDiffer    the two topics have different numbers of partitions
  +- ResultsUnreadable   the output cannot be read
  +- RowsLost            rows read, dropped, sent and acknowledged do not add up
  +- CommitOrder         a transaction is out of order
  +- StoredValueInvalid  a stored value was not written by `dedup.keyed`
"""

from __future__ import annotations

from teacup.base.errors import CommandError, ExitCode, Invalid


class DedupError(CommandError):
    """Anything that deduplication refuses or gives up; the message says which value, where from, and what to do."""


class DedupConfigInvalid(DedupError, Invalid, ValueError):
    """A value of the configuration is not allowed."""


class SourceChanged(DedupError, exit_code=ExitCode.CHECKPOINT):
    """The checkpoint belongs to a job with another topic."""


class RecordsGone(DedupError, exit_code=ExitCode.DATA_LOSS):
    """Records that were not read yet are gone: deleted by retention, truncated, or the topic was recreated."""


class PartitionsDiffer(DedupError, exit_code=ExitCode.NOT_CO_PARTITIONED):
    """The two topics have different numbers of partitions, and records keep theirs."""


class ResultsUnreadable(DedupError):
    """The output cannot be read, so duplicates cannot be recognised."""


class RowsLost(DedupError):
    """Rows read, dropped, sent and acknowledged do not add up: the batch must not be committed."""


class CommitOrder(DedupError):
    """A transaction is out of order: commits are strictly sequential."""


class StoredValueInvalid(DedupError):
    """A stored value was not written by `dedup.keyed`."""
