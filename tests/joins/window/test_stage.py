"""What the stage of a task says of its tickets before it carries them out."""

from __future__ import annotations

from pathlib import Path

import msgspec

from joins.batch.state import Bucket
from joins.batch.ticket import Ticket
from joins.items import Begin
from joins.spec import JoinSpec, Right, Side
from joins.window.stage import join_stage

SPEC = JoinSpec(
    name="early",
    left=Side(topic="l"),
    right=Right(topic="r", before_ms=1, after_ms=0),
    kafka={"bootstrap.servers": "127.0.0.1:1"},
)


def test_the_first_ticket_names_the_buckets_that_follow(tmp_path: Path) -> None:
    tickets = [Ticket("g", 1, 3, 0, 60_000, 1 << 20, None, Bucket(number, {}, {})) for number in (2, 0, 1)]

    items = list(join_stage(SPEC, tmp_path)(msgspec.json.encode(ticket).decode() for ticket in tickets))

    begins = [item for item in items if isinstance(item, Begin)]
    assert [(begin.bucket, begin.ahead) for begin in begins] == [(2, (0, 1)), (0, ()), (1, ())]
