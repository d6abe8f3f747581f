"""A worker's part: tickets in, rows out. Keeps the windows of the buckets it has seen, up to a limit. Pure.

A window is removed from the cache while a batch changes it, and put back only when the batch has ended. An attempt that
fails leaves nothing half changed; the next one starts from the files.
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


class JoinBolt:
    """Carries out tickets, one after the other."""

    def __init__(
        self,
        spec: JoinSpec,
        read: Read,
        store_of: StoreOf,
        *,
        give_back: GiveBack | None = None,
        buckets_kept: int = 256,
    ) -> None:
        """give_back: takes the records that were read and held back, so that the next batch finds them."""
        self._spec, self._read, self._store_of, self._give_back = spec, read, store_of, give_back
        self._buckets_kept = buckets_kept
        self._windows: OrderedDict[tuple[str, str], Kept] = OrderedDict()

    def join(
        self, ticket: Ticket, done: Callable[[BucketSummary], None], opened: OpenRange | None = None
    ) -> Iterator[pl.DataFrame]:
        """The rows of a ticket (`records.ROW`); `done` is called with the summary after the last of them.

        opened   gives the records of the ticket's ranges; None: they are read from the log
        """
        spec = self._spec
        key = (ticket.generation, ticket.name_of_part)
        store = self._store_of(*key)
        known = self._windows.pop(key, None)
        self._let_go_of_stale(ticket)
        kept, came_from = restore(spec, ticket, known, store, self._read)
        kept.window.compact()
        _file(kept.window, store)
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
        while len(self._windows) > self._buckets_kept:
            self._windows.popitem(last=False)
        done(batch.summary)

    def _let_go_of_stale(self, ticket: Ticket) -> None:
        """Every batch has a ticket per bucket: a window that missed the last one is being continued elsewhere."""
        self._windows = OrderedDict(
            (key, kept)
            for key, kept in self._windows.items()
            if key[0] == ticket.generation and kept.number >= ticket.number - 1
        )

    def _save(self, batch: BatchJoin, kept: Kept, ticket: Ticket, store: SliceStore) -> None:
        """Save what later batches need. Nothing that a retry of this batch would need is dropped."""
        bucket = ticket.bucket
        if batch.slice not in kept.window.slices:
            covers = {p: (r.start, batch.facts.right[p].end) for p, r in bucket.right.items() if r.records}
            if covers:
                store.save_slice(Slice.nothing(covers, bucket.expiry_ms))
        _file(kept.window, store)
        left = {p: (bucket.left[p].start, facts.end) for p, facts in batch.facts.left.items()}
        if any(start < end for start, end in left.values()):
            store.save_marks(Joined(left, batch.joined, batch.facts.expiry_ms))
        store.save_facts(ticket, batch.facts)
        left, right = needed(self._spec, bucket)
        store.forget({p: low for p, (low, _) in left.items()}, {p: low for p, (low, _) in right.items()})


def needed(spec: JoinSpec, bucket: Bucket) -> tuple[dict[int, Span], dict[int, Span]]:
    """The ranges of left and right that earlier batches have read, and that the window of this one is made of."""
    left_from, _ = rebuild_from(spec, bucket.expiry_ms)
    left = {p: (low_end(r.bounds, left_from), r.start) for p, r in bucket.left.items()}
    return left, {p: (low_end(r.bounds, bucket.expiry_ms), r.start) for p, r in bucket.right.items()}


def _file(window: Window, store: SliceStore) -> None:
    """Turn the slices into files, whose memory all workers of a machine share."""
    window.slices = [slice_ if slice_.in_file else store.save_slice(slice_) for slice_ in window.slices]
