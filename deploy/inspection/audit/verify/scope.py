"""What a join says, and what of it is audited, as plain values for the verdicts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deploy.inspection.audit.records import SHIFT
from joins.spec import Policy, Right
from teacup.base.times import EARLIEST_MS, LATEST_MS

OFFSET = (1 << SHIFT) - 1
"""In SQL, `pos & OFFSET` is the offset of a position."""


@dataclass(frozen=True, slots=True)
class LeftSpan:
    """The offsets of one left partition.

    begin, end   what was read of it, apart from single records that rows name
    done         where the run goes on
    due          from here on every record has a row; None: from the first one that has one
    moved        records before it were written by another checkpoint, perhaps as another join
    log_start, log_end   of the topic; a record missing before log_start may have been deleted
    again, until         an earlier checkpoint has read these offsets, too
    """

    begin: int
    end: int
    done: int
    due: int | None = 0
    moved: int = 0
    log_start: int = 0
    log_end: int = 0
    again: int = 0
    until: int = 0


@dataclass(frozen=True, slots=True)
class RightSpan:
    """The offsets of one right partition.

    begin, end   what was read of it
    begins       where the run began; None: at the first record that a row or copy names
    done         where the run goes on
    expiry_ms    records below it have expired
    log_start, log_end, again, until   as in `LeftSpan`
    """

    begin: int
    end: int
    begins: int | None = 0
    done: int = 0
    expiry_ms: int = -LATEST_MS
    log_start: int = 0
    log_end: int = 0
    again: int = 0
    until: int = 0


@dataclass(frozen=True, slots=True)
class VersionsKnown:
    """For which times the versions of a table are known.

    whole_from_ms   compaction may have removed earlier ones from the topic
    cut             the topic has lost its beginning
    stored_from_ms  the store may have dropped earlier ones, and those of keys with more than `bound`
    problem         why the store could not be asked
    """

    whole_from_ms: int = EARLIEST_MS
    cut: bool = False
    stored_from_ms: int = EARLIEST_MS
    bound: int = 2**53
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditScope:
    """What the join says, and what of it is audited.

    join             which right records match, and which rows are written
    from_ms, to_ms   left's event time, the end excluded
    envelopes        rows are envelopes; otherwise a `select` made them, and only their positions are compared
    once             each row is in the output once; otherwise a batch that ran again has written it again
    copies_once      the same for copies
    direct           the direct path: partition n of left meets partition n of right only
    versions         right is a table that changes (`before` unlimited)
    one_topic        left's topic is right's: a record does not match itself
    topics           the existing side topics, by role
    complete         by role: what is not in the topic was never written
    skips            by side, the reasons of the records that it skips
    from_due_ms      left records before it may be missing: the job began at a time
    all_named        all records that rows and copies name were read
    """

    join: Right
    from_ms: int
    to_ms: int
    envelopes: bool = True
    once: bool = True
    copies_once: bool = True
    direct: bool = False
    versions: VersionsKnown | None = None
    one_topic: bool = False
    output: str = "output"
    topics: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[int, LeftSpan] = field(default_factory=dict)
    right: Mapping[int, RightSpan] = field(default_factory=dict)
    complete: Mapping[str, bool] = field(default_factory=dict)
    skips: Mapping[str, Sequence[str]] = field(default_factory=dict)
    from_due_ms: int = -LATEST_MS
    all_named: bool = True

    def skipped(self, side: str) -> str:
        """Returns, in SQL, the reasons of the records that a side skips."""
        return ", ".join(f"'{reason}'" for reason in self.skips.get(side, ())) or "''"

    def not_itself(self, left: str) -> str:
        """Returns, in SQL, the rest of a condition: the right record `r` is not the left one."""
        return f" AND r.pos <> {left}.pos" if self.one_topic else ""

    def meets(self, record: str) -> str:
        """Returns, in SQL, what records that meet have in common: the key, and on the direct path the partition."""
        return f"hash({record}.kh, {record}.pos >> {SHIFT})" if self.direct else f"{record}.kh"

    def is_complete(self, role: str) -> bool:
        """Returns whether what is not in this topic was never written."""
        return self.complete.get(role, True)

    @property
    def lookup(self) -> bool:
        """Whether it is a lookup join."""
        return self.join.source.is_stored

    @property
    def all_pairs(self) -> bool:
        """Returns whether a left record has a row for each right one."""
        return self.join.policy is Policy.ALL
