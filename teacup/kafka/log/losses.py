"""Whether a partition still holds what a reader needs of it: one rule for all that read from a checkpoint. Pure.

the log holds      [start, high)
a reader needs     offsets from `position` on, its next one; and from `needed` on, what it may have to read again

deleted     start > needed: retention, or somebody, has deleted records. Refused; or, with `on_data_loss: continue`,
            counted: the reader continues at `start`
truncated   high < position: offsets that count as read will be those of other records. Always refused, because
            nobody knows what else of the output came from records that are gone. If the log has grown beyond the
            position again, only its leader epochs tell: a log is cut off when another broker, or the same one after a
            restart, becomes its leader without having all records. So a position is kept with the leader epoch of the
            listing that it is from; if the partition has another epoch now, its leader is asked (KIP-320)
recreated   the topic has another id. Always refused
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from teacup.kafka.errors import OffsetOutOfRange
from teacup.kafka.log.topic_log import Ends, LeaderPosition, TopicLog

CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class Lost:
    """How many offsets of a partition are deleted: unread ones, and ones already read that may be needed again."""

    unread: int = 0
    again: int = 0

    def __bool__(self) -> bool:
        return self.unread > 0 or self.again > 0


Epochs = tuple[int | None, ...]
"""The leader epochs of a topic's partitions, in order; None if not known."""


def epochs_of(ends: Mapping[int, Ends]) -> Epochs:
    """Returns the leader epochs of a listing."""
    return tuple(of_partition.epoch for _, of_partition in sorted(ends.items()))


@dataclass(frozen=True, slots=True)
class Losses:
    """What a reader does about lost records.

    error      what it raises
    remedy     how to go on without them, as a clause: "start a new checkpoint"
    continues  whether it counts deleted records instead (`on_data_loss: continue`)
    """

    error: type[Exception]
    remedy: str
    continues: bool = False

    def of(self, where: str, position: int, ends: Ends | None, needed: int | None = None, by: str = "") -> Lost:
        """Returns what is deleted of a partition.

        Raises `error` if something is and the reader does not continue, and always for a truncated partition.

        where    the partition, for people: "right partition clicks-0"
        ends     None: the topic no longer has such a partition
        needed   the first offset that may have to be read again, by what (`by`: "the window"); None: `position`
        """
        needed = position if needed is None else needed
        if ends is None:
            raise self.error(f"{where}, which the checkpoint has read up to offset {position}, is gone: {self.remedy}")
        if position > ends.high:
            raise self.error(
                f"{where} ends at offset {ends.high}, the checkpoint has read up to {position}: it was truncated (an "
                f"unclean leader election, or records deleted by hand); {self.remedy}"
            )
        lost = Lost(max(ends.start - position, 0), max(min(ends.start, position) - needed, 0))
        if lost and not self.continues:
            unread = f"{lost.unread} offsets from {position} on were never read"
            what = unread if lost.unread else f"{by} still needs records from offset {needed} on"
            raise self.error(
                f"retention has deleted records of {where} below offset {ends.start}: {what}. Lengthen retention and "
                f"{self.remedy}, or continue with what is left, counted (`on_data_loss: continue`)"
            )
        return lost

    def moved(self, where: str, positions: Mapping[int, int], ends: Mapping[int, Ends]) -> tuple[dict[int, int], int]:
        """Returns the positions moved to what the log still holds, and how many unread offsets that skips.

        A partition without a position is new, and read from its start. Raises `error` as `of`.

        where   "right partition clicks", without its number
        """
        moved, skipped = {}, 0
        for p in sorted({*positions, *ends}):
            position = positions.get(p, 0)
            lost = self.of(f"{where}-{p}", position, ends.get(p))
            moved[p], skipped = position + lost.unread, skipped + lost.unread
        return moved, skipped

    def is_whole(self, where: str, spans: Mapping[int, tuple[int, int]], ends: Mapping[int, Ends]) -> bool:
        """Returns whether the log still holds these [start, end) by partition. Raises `error` if it was truncated."""
        counts = replace(self, continues=True)
        return not any(counts.of(f"{where}-{p}", end, ends.get(p), start) for p, (start, end) in spans.items())

    def check_leaders(
        self,
        where: str,
        log: TopicLog,
        positions: Mapping[int, int],
        epochs: Sequence[int | None],
        ends: Mapping[int, Ends],
    ) -> None:
        """Raises `error` if a partition holds other records below a position than when that was listed.

        where    "right partition clicks", without its number
        epochs   of the listing that the positions are from
        """
        now = epochs_of(ends)
        if now == tuple(epochs):
            return
        asked = {}
        for p, at in positions.items():
            known, present = (listing[p] if p < len(listing) else None for listing in (epochs, now))
            if known is not None and present is not None and known != present and ends[p].start < at <= ends[p].high:
                asked[p] = LeaderPosition(at, known, present)
        for p in sorted(log.truncated(asked)) if asked else ():
            raise self.error(
                f"{where}-{p} was truncated below offset {asked[p].offset}, up to which the checkpoint has read, and "
                f"has been written to again: other records are at offsets that count as read; {self.remedy}"
            )

    def check_topic(self, where: str, known_id: str, topic_id: str) -> None:
        """Raises `error` if the topic is not the one that the checkpoint has read. where: "right topic 'clicks'"."""
        if topic_id != known_id:
            raise self.error(f"{where} was deleted and recreated (id {known_id} -> {topic_id}): {self.remedy}")

    @contextmanager
    def of_planned(self, way_out: str) -> Iterator[None]:
        """Raises `error` if reading a planned batch finds that its records are gone.

        way_out   a sentence: what can be done if they were deleted
        """
        try:
            yield
        except OffsetOutOfRange as error:
            remedy = way_out if error.offset < error.start else f"{self.remedy[0].upper()}{self.remedy[1:]}"
            raise self.error(f"a batch that is planned cannot be carried out: {error}. {remedy}") from error
