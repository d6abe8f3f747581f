"""JoinBolt, a worker's part: tickets in, rows out. Keeps the windows of the buckets it has seen, up to a limit. Pure.

A window is removed from the cache while a batch changes it, and put back only when the batch has ended. So an attempt
that fails leaves nothing half changed, and the next one starts from the files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import polars as pl

from joins.admission.batchreader import BatchReader
from joins.admission.bounds import low_end
from joins.admission.ranges import GiveBack, OpenRange, Read, from_log
from joins.admission.state import Bucket, rebuild_from
from joins.admission.summary import BucketSummary
from joins.admission.ticket import Ticket
from joins.spec import JoinSpec
from joins.window.batch import BatchJoin
from joins.window.restore import Joined, Kept, SliceStore, restore
from joins.window.slices import Slice, Span
from joins.window.window import Window

StoreOf = Callable[[str, str], SliceStore]
"""(generation, name of the bucket) -> where its slices are kept."""

MOST_WINDOWS = 256
"""How many windows a worker keeps in memory; the others are restored from their files."""


class JoinBolt:
    """Carries out tickets, one after the other.

    give_back   takes the records that were read and held back, so that the next batch finds them
    """

    def __init__(self, spec: JoinSpec, read: Read, store_of: StoreOf, *, give_back: GiveBack | None = None) -> None:
        self._spec, self._read, self._store_of, self._give_back = spec, read, store_of, give_back
        self._windows: OrderedDict[tuple[str, str], Kept] = OrderedDict()

    def join(
        self, ticket: Ticket, done: Callable[[BucketSummary], None], opened: OpenRange | None = None
    ) -> Iterator[pl.DataFrame]:
        """Yields the rows of a ticket (`records.ROW`), then calls `done` with the summary.

        opened   gives the records of the ticket's ranges; None: they are read from the log
        """
        spec = self._spec
        key = (ticket.generation, ticket.name_of_part)
        store = self._store_of(*key)
        known = self._windows.pop(key, None)
        self._drop_stale(ticket)
        kept, came_from = restore(spec, ticket, known, store, self._read)
        kept.window.compact()
        _save_slices(kept.window, store)
        store.copy(ticket.listed_ms, ticket.bucket.expiry_ms, *needed(spec, ticket.bucket))
        opened = opened or from_log(spec, ticket, self._read, self._give_back)
        batch = BatchJoin(ticket, kept.window, BatchReader(spec, ticket, opened), kept.newest)
        batch.summary.restored = came_from
        batch.summary.deleted, batch.summary.presumed = kept.deleted, kept.presumed
        yield from batch.rows()
        self._save(batch, kept, ticket, store)
        kept.number = ticket.number
        kept.right_end = {p: facts.end for p, facts in batch.facts.right.items()}
        kept.left_end = {p: facts.end for p, facts in batch.facts.left.items()}
        self._windows[key] = kept
        while len(self._windows) > MOST_WINDOWS:
            self._windows.popitem(last=False)
        done(batch.summary)

    def _drop_stale(self, ticket: Ticket) -> None:
        """Drops windows that missed the last batch: it had a ticket for each bucket, so another worker has them now."""
        self._windows = OrderedDict(
            (key, kept)
            for key, kept in self._windows.items()
            if key[0] == ticket.generation and kept.number >= ticket.number - 1
        )

    def _save(self, batch: BatchJoin, kept: Kept, ticket: Ticket, store: SliceStore) -> None:
        """Saves what later batches need. Drops nothing that a retry of this batch would need."""
        bucket = ticket.bucket
        if batch.slice not in kept.window.slices:
            covers = {p: (r.start, batch.facts.right[p].end) for p, r in bucket.right.items() if r.records}
            if covers:
                store.save_slice(Slice.nothing(covers, bucket.expiry_ms))
        _save_slices(kept.window, store)
        left_read = {p: (bucket.left[p].start, facts.end) for p, facts in batch.facts.left.items()}
        if any(start < end for start, end in left_read.values()):
            store.save_marks(Joined(left_read, batch.joined, batch.facts.expiry_ms))
        store.save_facts(ticket, batch.facts)
        left, right = needed(self._spec, bucket)
        store.forget({p: low for p, (low, _) in left.items()}, {p: low for p, (low, _) in right.items()})


def needed(spec: JoinSpec, bucket: Bucket) -> tuple[dict[int, Span], dict[int, Span]]:
    """Returns the ranges of left and right that earlier batches have read, and that this batch's window is made of."""
    left_from, _ = rebuild_from(spec, bucket.expiry_ms)
    left = {p: (low_end(r.bounds, left_from), r.start) for p, r in bucket.left.items()}
    return left, {p: (low_end(r.bounds, bucket.expiry_ms), r.start) for p, r in bucket.right.items()}


def _save_slices(window: Window, store: SliceStore) -> None:
    """Saves the slices that are in memory. All workers of a machine share the memory of a file."""
    window.slices = [slice_ if slice_.in_file else store.save_slice(slice_) for slice_ in window.slices]
