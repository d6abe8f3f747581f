"""What the stages of a task pass to each other: a ticket's rows, between what opens and what closes them. Pure.

    Begin    what delivery needs to know of the ticket
    Rows     some of its rows, in bounded chunks; any number of times
    End      what was done: the accounts that delivery has to meet

`joins.window.stage` and `joins.lookup.stage` make them, `deploy.output.stage` delivers them. Where they have to cross
the JVM, they are rows of a DataFrame (`joins.itemrows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import polars as pl

from joins.admission.ticket import Ticket
from joins.spec import JoinSpec
from kafkaio.delivery.receipt import digest_of


class RowCounts(Protocol):
    """What any summary says of the rows that it closes.

    lefts_read   how many left records they are about
    rows         how many there are, by outcome
    ended        how far the batch went: the next one begins there, so that it must be the same whenever the batch runs
    """

    @property
    def lefts_read(self) -> int:
        """Returns how many left records the rows are about."""
        ...

    @property
    def rows(self) -> Mapping[str, int]:
        """Returns how many rows there are, by outcome."""
        ...

    @property
    def ended(self) -> str:
        """Returns how far the batch went."""
        ...


C = TypeVar("C", bound=RowCounts)


@dataclass(frozen=True, slots=True)
class Begin:
    """Says that the rows of a ticket follow.

    digest          covers everything that decides them: another batch with the same number has another digest
    left_since_ms   no left record of the batch, in any bucket, has a time below it, except late ones; None: unknown
    first           the number of the bucket's first batch
    """

    bucket: int
    number: int
    generation: str
    digest: str
    left_since_ms: int | None = None
    first: int = 1

    @classmethod
    def of(cls, ticket: Ticket, spec: JoinSpec) -> Begin:
        """Returns what opens the rows of a ticket of this join."""
        digest = digest_of({"join": spec.identity(), "ticket": ticket.to_json()})
        return cls(
            ticket.number_of_part, ticket.number, ticket.generation, digest, ticket.left_since_ms, ticket.bucket.since
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the ticket (`joins.rows.records.ROW`); those about one left record are consecutive."""

    frame: pl.DataFrame


@dataclass(frozen=True, slots=True)
class End(Generic[C]):
    """Says that there are no more rows of the ticket."""

    summary: C


Item = Begin | Rows | End[C]

Stage = Callable[[Iterable[Any]], Iterator[Item[C]]]
"""Makes the items of tickets (JSON texts), one ticket after the other; on the shuffled path, of parts of a ticket with
their records (`joins.shuffle.pieces`)."""
