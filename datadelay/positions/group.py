"""Positions of a Kafka consumer group.

A group does not report when it starts over, so its name is its generation; a position that goes back is noticed anyway.
A feeder commits its positions with a note that names the generation of the store that it has fed up to there. Other
jobs of ours leave notes, too. None of them joins its group, and none reads its position from there, so only the note
tells whose positions they are:

    feeder     a claim: everything below is in that store. Setting them would make the claim false
    other job  a copy for lag tools; the position is in the checkpoint
    receipts   what is in the output; without them the job could no longer tell
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from datadelay.errors import PositionsRefused, PositionsUnreadable
from datadelay.positions import Committed, check_unchanged
from teacup.kafka.delivery.receipt import Receipt
from teacup.kafka.errors import ReceiptRefused
from teacup.kafka.log.groups import JOB_NOTE, GroupOffsets, Spot

_STORE = "store="


def note_of_store(generation: str) -> str:
    """Returns the note that a feeder commits with its positions."""
    return _STORE + generation


def store_in(note: str) -> str | None:
    """Returns the generation in such a note; None if it is another note."""
    return note.removeprefix(_STORE) if note.startswith(_STORE) else None


def whose(note: str) -> str | None:
    """Returns what positions with this note are, and what to do instead of setting them; None if they are not ours."""
    store = store_in(note)
    if store is not None:
        return (
            f"they say what a feeder has stored in generation {store} of its store, and records that they skip would "
            "count as stored. To feed from another time, start the feeder with a new checkpoint and `start: TIME`"
        )
    if note == JOB_NOTE:
        return (
            "they only show how far a job has come; its position is in its checkpoint. To start it from another time, "
            "give it a new checkpoint and `start: TIME`"
        )
    try:
        Receipt.from_text(note)
    except ReceiptRefused:
        return None
    return "it holds receipts of a job, which say what is in the output"


class ConsumerGroup:
    """Implements `WritablePositions`. Raises `teacup.kafka.errors.KafkaIOError`."""

    def __init__(self, group: str, kafka: Mapping[str, str]) -> None:
        self._offsets = GroupOffsets(group, kafka)

    def read(self, topic: str, partitions: Collection[int]) -> Committed:
        committed = self._offsets.read_with_notes((topic, partition) for partition in partitions)
        stores = {store_in(note) for offset, note in committed.values() if offset is not None}
        if len(stores) > 1:
            raise PositionsUnreadable(
                f"{self._name}: its partitions name several stores ({sorted(map(str, stores))}): "
                "were some of its positions set by hand? The feeder's next commit corrects that. Let one feeder alone "
                "commit to it"
            )
        positions = {partition: committed[topic, partition][0] for partition in partitions}
        return Committed(positions, self._name, next(iter(stores), None))

    def target(self) -> dict[str, str]:
        return {"kind": "group", "group": self._offsets.group}

    def claimed(self, topic: str, partitions: Collection[int]) -> str | None:
        return self._claimed(self._offsets.read_with_notes((topic, partition) for partition in partitions))

    def in_use(self, topic: str, partitions: Collection[int]) -> str | None:
        activity = self._offsets.activity()
        return None if activity is None else f"group {self._offsets.group!r} is active ({activity}); stop its consumers"

    def write(self, topic: str, old: Mapping[int, int | None], new: Mapping[int, int]) -> None:
        now = self._offsets.read_with_notes((topic, partition) for partition in old)
        refusal = self._claimed(now) or check_unchanged(topic, old, {p: now[topic, p][0] for p in old})
        if refusal is not None:
            raise PositionsRefused(refusal)
        self._offsets.commit({(topic, partition): offset for partition, offset in new.items()})

    def close(self) -> None:
        self._offsets.close()

    def _claimed(self, committed: Mapping[Spot, tuple[int | None, str]]) -> str | None:
        notes = {note for offset, note in committed.values() if offset is not None}
        owner = next((owner for note in sorted(notes) if (owner := whose(note)) is not None), None)
        return None if owner is None else f"positions of group {self._offsets.group!r} cannot be set: {owner}"

    @property
    def _name(self) -> str:
        return f"group {self._offsets.group}"
