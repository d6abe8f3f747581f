"""The Spark edge of the gate: the ticket source of the in-memory join, with the Data Delay API as right's frontier.

Each time, the delay is read *before* left is admitted, and left is looked up after that: what `consumed_until` says is
stored is there when it is looked up. Whatever keeps left waiting (no answer, unknown, stale, another generation, a
feeder that stands still) is logged every ten seconds, with since when. An API that refuses the join (its token, its
namespace) ends the query: waiting does not help.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from datadelay.client import DelayClient
from datadelay.errors import DelayAccessDenied, DelayCallFailed, DelayNotFound
from datadelay.model import Delay
from joins.errors import CallRefused
from joins.lookup.gate import CONSUMER, STORE, Verdict, judge
from joins.lookup.refusal import REFUSED, refused
from joins.lookup.spec import LookupSpec
from joins.lookup.start import begin
from joins.lookup.stored import retained_from
from joins.window.admission import Planned, admit_by_frontier
from joins.window.guard import check_ends, check_topics
from joins.window.listing import Listing
from joins.window.source import Gate, TicketReader, open_log
from joins.window.state import Admission
from kafkaio.brokerlog import BrokerLog
from kafkaio.times import iso
from storage.client import StorageClient
from storage.errors import StorageError

STORE_LOOK_EVERY_S = 1.0
STANDS_STILL_MS = 90_000
"""If right's stored time has not advanced for this long, a line is logged: collectors run once a minute."""


class NotKnown(Exception):
    """It is not known how far right is stored; the message says why. Handled within `joins.lookup`."""


@dataclass(slots=True)
class Outside:
    """The two APIs, as one process sees them."""

    spec: LookupSpec
    delays: DelayClient
    storage: StorageClient
    _store: str = ""
    _looked_at_s: float = 0.0

    @classmethod
    def connected(cls, spec: LookupSpec) -> Outside:
        delay = spec.delay
        delays = DelayClient(
            delay.url,
            delay.token,
            connect_timeout_s=delay.connect_timeout_s,
            read_timeout_s=delay.read_timeout_s,
            retries=1,
        )
        return cls(spec, delays, storage_client(spec))

    def ask(self) -> tuple[Delay, str]:
        """The delay, and the store's generation; `NotKnown` if either is unavailable.

        Raises `CallRefused`, and `SpecError` for a namespace that promises no retention.
        """
        delay = self.spec.delay
        try:
            found = self.delays.read(delay.consumer, self.spec.right.topic)
        except DelayNotFound as error:
            raise NotKnown(f"the Data Delay API knows no such consumer yet: {error}") from error
        except DelayAccessDenied as error:
            raise CallRefused(
                f"the Data Delay API refuses {self.spec.name!r}: {error}; correct `delay.token`"
            ) from error
        except DelayCallFailed as error:
            raise NotKnown(f"the Data Delay API does not answer: {error}") from error
        try:
            return found, self._store_generation()
        except REFUSED as error:
            raise refused(self.spec.name, error) from error
        except StorageError as error:
            raise NotKnown(f"the storage API does not answer: {error}") from error

    def _store_generation(self) -> str:
        if not self._store or time.monotonic() - self._looked_at_s > STORE_LOOK_EVERY_S:
            namespace = self.storage.namespace(self.spec.storage.namespace)
            retained_from(namespace)  # fails now rather than when the first batch is looked up
            self._store = namespace.generation
            self._looked_at_s = time.monotonic()
        return self._store

    def close(self) -> None:
        self.delays.close()
        self.storage.close()


def storage_client(spec: LookupSpec) -> StorageClient:
    """A client with few attempts: the caller logs what it waits for, and retries."""
    at_ = spec.storage
    return StorageClient(
        at_.url,
        at_.token,
        connect_timeout_s=at_.connect_timeout_s,
        read_timeout_s=at_.read_timeout_s,
        attempts=3,
        give_up_after_s=5.0,
        items_per_request=at_.keys_per_request,
    )


class LookupReader(TicketReader):
    """Like its base, for left alone; right's frontier comes from outside."""

    def __init__(self, spec: LookupSpec, gate: Gate, stage: bytes | None = None) -> None:
        super().__init__(spec, gate, stage)
        self._lookup = spec
        self._left: BrokerLog | None = None
        self._outside: Outside | None = None
        self._waits: tuple[str, int] | None = None
        self._first_left: Listing | None = None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Each ticket also names the store that its admission relies on."""
        store = end["identity"][STORE] if end else None
        return [
            InputPartition(json.dumps({**json.loads(part.value), "store": store}))
            for part in super().partitions(start, end)
        ]

    def stop(self) -> None:
        """Also called between two attempts: the next one opens new connections."""
        for one in (self._left, self._outside):
            if one is not None:
                one.close()
        self._left = self._outside = None

    def _admit(self, start: Mapping[str, Any]) -> Planned | None:
        spec, left = self._lookup, self._connected_left()
        state = self._state_after(Admission.from_json(start)) if start else None
        now_ms = self._now_ms(state)
        self._outside = self._outside or Outside.connected(spec)
        try:
            delay, store = self._outside.ask()
        except NotKnown as error:
            if state is None:  # nothing is pinned yet, but `latest` keeps the ends of the first look
                self._first_left = self._first_left or self._frozen(Listing(now_ms, left.ends(), {}))
                self._held(Verdict(waits_for=str(error)), now_ms)
                return None
            return self._onward(state, left, Verdict(waits_for=str(error)), now_ms)
        if state is None:
            listing = self._frozen(Listing(now_ms, left.ends(), {}))
            if spec.start == "latest":
                self._first_left = listing = self._first_left or listing
            begun = begin(spec, listing, left, {CONSUMER: delay.generation, STORE: store})
            verdict = judge(delay, store, begun.identity, spec.accepted_generations)
            self._held(verdict, now_ms)
            if verdict.shut:
                return None
            first = admit_by_frontier(spec, begun, listing, left, verdict.frontier_ms, self._watching(now_ms))
            return self._inside_the_clock(first or Planned.nothing(begun), {"left": left})
        return self._onward(state, left, judge(delay, store, state.identity, spec.accepted_generations), now_ms)

    def _plan_ahead(self, planned: Planned) -> None:
        """Nothing is planned ahead: how far right is stored is read just before left is admitted."""

    def _onward(self, state: Admission, left: BrokerLog, verdict: Verdict, now_ms: int) -> Planned | None:
        """The admission after `state`, as far as the verdict allows left to go; None when there is nothing to do."""
        spec = self._lookup
        check_topics(spec, state, {"left": (left.topic_id(), left.partition_count())})
        self._held(verdict, now_ms)
        if verdict.shut:
            return None
        listing = self._frozen(Listing(now_ms, left.ends(), {}))
        state = check_ends(spec, state, listing)
        planned = admit_by_frontier(spec, state, listing, left, verdict.frontier_ms, self._watching(now_ms))
        if planned is None and verdict.waits_for is None:
            self._stands_still(state, listing, verdict.frontier_ms)
        return self._inside_the_clock(planned, {"left": left}) if planned else None

    def _stands_still(self, state: Admission, listing: Listing, frontier_ms: int) -> None:
        """Log it when left waits and right's stored time has long stood still: the feeder may be down."""
        assert self._watch is not None
        readings = {p: reading for bucket in state.buckets.values() for p, reading in bucket.left.items()}
        waiting = sum(max(ends.stable - readings[p].end, 0) for p, ends in listing.left.items() if p in readings)
        since_ms = max(self._watch.since_ms(number) for number in state.buckets)
        if waiting and listing.listed_ms - since_ms >= STANDS_STILL_MS:
            self._say(
                f"holds since {iso(since_ms)}: {waiting} left records wait, as {self._lookup.delay.consumer!r} has "
                f"stored {self._lookup.right.topic!r} only up to {iso(frontier_ms)}: does the feeder run?"
            )

    def _waits_for_left(self, start: Mapping[str, Any]) -> bool:
        """Under `availableNow` a join that could not even start is not done."""
        return self._until_now if not start else super()._waits_for_left(start)

    def _held(self, verdict: Verdict, now_ms: int) -> None:
        """Log what left waits for, and since when this process has seen it."""
        if verdict.waits_for is None:
            self._waits = None
            return
        kind = verdict.waits_for[:40]
        if self._waits is None or self._waits[0] != kind:
            self._waits = (kind, now_ms)
        self._say(f"holds since {iso(self._waits[1])}: {verdict.waits_for}")

    def _connected_left(self) -> BrokerLog:
        if self._left is None:
            self._left = open_log(self._spec, self._spec.left)
        return self._left
