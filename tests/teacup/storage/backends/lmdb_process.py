"""A process that uses an LMDB store beside others: `python -m ... URL FIRST COUNT`.

It writes single items until it is killed, or COUNT are done; prints the number of each that was acknowledged.
"""

from __future__ import annotations

import sys

from teacup.storage.backends.opening import open_backend
from teacup.storage.model import Item, Keep, Namespace, Status

SPACE = Namespace("shared", Keep.LATEST)
NOW = 1_800_000_000_000


def numbered(number: int) -> Item:
    """Makes an item of which every byte is known."""
    return Item(number.to_bytes(8), NOW + number, b"", b"%d" % number * 20, NOW + 3_600_000)


def main(url: str, first: int, count: int) -> None:
    store = open_backend(url, [SPACE])
    for number in range(first, first + count):
        (outcome,) = store.write(SPACE, [numbered(number)], NOW)
        assert outcome.status is Status.OK, outcome
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
