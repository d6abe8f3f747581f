"""`teacup unjoined` over a simulated lookup join: any slices, looks that are outdated when used, any crash."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from joins.lookup.unjoined.expired import Seen, Verdicts, after_slice, begin, begin_ms_of, plan
from joins.lookup.unjoined.verdicts import JoinedOffsets, PartitionVerdicts
from joins.testing.history import Event, History, TopicHistory
from teacup.kafka.log.broker_log import BEYOND_THE_LOG
from teacup.kafka.log.topic_log import Ends

OUTPUTS = 2


def with_a_last_left_record(history, spec):
    """Every left partition ends so late that no right record can match any more once it is read."""
    present = [e.time_ms for e in history.right.records() if not e.is_future(spec.max_future_skew_ms)]
    times = [*present, history.end_ms, *(e.time_ms for e in history.left.records() if not e.is_future(1_000))]
    last_ms = max(times) + spec.span_ms + spec.producer_delay_ms + 1_000
    partitions = []
    for p, events in enumerate(history.left.partitions):
        last = Event(
            partition=p,
            offset=len(events),
            time_ms=last_ms,
            key=b"last",
            value=b'{"time": %d}' % last_ms,
            appended_ms=last_ms,
            readable_ms=last_ms,
        )
        partitions.append((*events, last))
    return History(TopicHistory("left", tuple(partitions)), history.right, history.start_ms)


class OutputLog:
    """The rows of a simulated join as a topic: each at its offset, with the time of its left record."""

    topic = "out"

    def __init__(self, run):
        self.run = run
        self.start = dict.fromkeys(range(OUTPUTS), 0)

    def rows(self, partition):
        return [r for r in self.run.results if r.left_offset % OUTPUTS == partition]

    def ends(self):
        return {p: Ends(self.start[p], len(self.rows(p)), len(self.rows(p))) for p in range(OUTPUTS)}

    def times(self, partition):
        return [self.run.left.history.partitions[r.left_partition][r.left_offset].time_ms for r in self.rows(partition)]

    def estimate(self, times_ms):
        def found(p, time_ms):
            return next(
                (at for at, t in enumerate(self.times(p)) if t >= time_ms and at >= self.start[p]), BEYOND_THE_LOG
            )

        return {p: found(p, time_ms) for p, time_ms in times_ms.items()}

    def last_times(self, ends, ceiling_ms, count):
        return {p: [*enumerate(self.times(p)[:end])][self.start[p] :][-count:] for p, end in ends.items()}

    def right_positions(self, partition, start, end):
        assert start >= self.start[partition], "rows that retention has deleted"
        return [r.right for r in self.rows(partition)[start:end] if r.right is not None]


class Judging:
    """What the job does, with its checkpoint in `saved` and its topic in `reported`."""

    def __init__(self, run, start=None):
        self.run, self.spec, self.start = run, run.spec, start
        self.output = OutputLog(run)
        self.saved = None
        self.looked = None
        self.delivered = {}

    @property
    def reported(self):
        return [position for rows in self.delivered.values() for position in rows]

    def look(self):
        """The start of a run; meanwhile the join continues."""
        self.looked = self.run.between(), self.output.ends()

    def judge(self, most=2**40, crash=None):
        """One slice, as far as the crash allows; returns whether one was carried out."""
        if self.looked is None:
            self.look()
        (batch_plan, output), self.looked = self.looked, None
        right = self.run.right
        seen = Seen(batch_plan, self.run.clock.now_ms, output, right.ends(), {"right": "r", "output": "o"})
        state = None if self.saved is None else Verdicts.from_json(self.saved)
        if state is None:
            begin_ms = begin_ms_of(self.spec, seen, self.start)
            if begin_ms is None:
                return False
            state = begin(self.spec, seen, right, self.output, begin_ms, "g")
        if state.under_way is None:
            state = plan(self.spec, state, seen, right, most)
        self.saved = state.to_json()
        if state.under_way is None or crash == "planned":
            return False
        reached = self._judge_slice(state)
        if crash == "delivered":
            return False
        self.saved = after_slice(state, reached).to_json()
        return reached != {p: share.start for p, share in state.under_way.right.items()}

    def _judge_slice(self, state):
        ticket, reached = state.under_way, {}
        rows = [at for p, span in ticket.output.items() for at in self.output.right_positions(p, *span)]
        for p, share in ticket.right.items():
            joined = JoinedOffsets(share.start, share.end)
            joined.add(np.array([offset for partition, offset in rows if partition == p], dtype=np.int64))
            judged = PartitionVerdicts(self.spec, ticket, p, state.begin_ms, joined)
            batches = [self.run.right.fetch(p, at, min(at + 3, share.end)) for at in range(share.start, share.end, 3)]
            unjoined = [(p, at) for frame in judged.rows(batches) for at in frame["right_offset"]]
            summary = judged.summary
            assert summary.read == summary.joined + summary.before_start + sum(
                (summary.dead | {"": sum(summary.rows.values())}).values()
            )
            key = state.generation, p, share.number
            assert self.delivered.setdefault(key, unjoined) == unjoined, "a slice that runs again has the same rows"
            reached[p] = summary.reached
        return reached

    def drain(self):
        """Run until no slice is left; earlier looks are forgotten."""
        self.looked = None
        while self.judge(7):
            pass
        return sorted(self.reported)


def late(spec):
    """The same join with left's disorder understated: some of its records come late."""
    return replace(spec, left=replace(spec.left, disorder_ms=0))
