"""How many records of each partition, or bucket, a batch reads when not all of them fit. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def fair_shares(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Returns max-min fair shares of `limit` records: none gets more than it has waiting while another one gets less.

    Together they are at most `limit`. If anything waits and the limit is 1 or more, somebody gets something.
    """
    shares: dict[int, int] = {}
    rest = limit
    for rank, number in enumerate(sorted(waiting, key=lambda number: (waiting[number], number))):
        shares[number] = min(waiting[number], rest // (len(waiting) - rank))
        rest -= shares[number]
    return shares
