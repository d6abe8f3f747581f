"""Caches encoded history pages until something new is published: many people look at the same few charts.

A page is stored with the `Published` object that was current before the page was read. A page of an older object is
never returned. The least recently used pages are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from datadelay.publish import Published


class HistoryAnswers:
    """Up to `capacity` encoded pages. Used on one event loop only."""

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._pages: OrderedDict[Hashable, tuple[Published, bytes]] = OrderedDict()

    def get(self, query: Hashable, current: Published) -> bytes | None:
        """Returns the page of `query`, if it was made when `current` was already published."""
        found = self._pages.get(query)
        if found is None or found[0] is not current:
            return None
        self._pages.move_to_end(query)
        return found[1]

    def put(self, query: Hashable, current: Published, page: bytes) -> None:
        """Stores a page that was read after `current` was published."""
        self._pages[query] = (current, page)
        self._pages.move_to_end(query)
        if len(self._pages) > self._capacity:
            self._pages.popitem(last=False)
