"""What batches have to complain of: said when it begins, when it is ten times as large, and when it is over. Pure.

A report has concerns: a topic is out of order by more than its setting, ids were forgotten, nothing matches. So have
attempts at tasks that failed. One that comes with each batch of a day would be a thousand lines that say the same, and
hide all others. So all times that it is seen are an *episode*, and it is said, with its size and what to do:

    begins   when it is seen first
    grows    when it is at least `GROWN` times what was said last
    is over  after `OVER_MS` without, or at the end of the run: how often it was seen, and the worst of it

What listeners get (`Told`) is the same for all of them: the log, JSON, the page, the metric and the record of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from teacup.base.times import iso

GROWN = 10
OVER_MS = 600_000
SHOWN_MS = 3_600_000
"""So long after it was seen last an episode is forgotten."""
MOST = 100
"""How many episodes are remembered, the newest."""


@dataclass(frozen=True, slots=True)
class Concern:
    """What there is to complain of.

    about   what it is about, the same each time: `right.disorder`
    size    how bad it is, in any unit; of one concern always the same
    text    for people: what was seen, and what to do about it
    """

    about: str
    size: float
    text: str


@dataclass(frozen=True, slots=True)
class Episode:
    """All times that a concern was seen, from its begin to its end.

    worst      the largest one; the first of equals
    said       the size of what was said last
    from_ms, last_ms   when it began, and when it was seen last
    """

    worst: Concern
    said: float
    from_ms: int
    last_ms: int
    times: int = 1
    over: bool = False

    def seen(self, concern: Concern, now_ms: int) -> Episode:
        """Returns it, seen once more."""
        worst = concern if concern.size > self.worst.size else self.worst
        return replace(self, worst=worst, last_ms=now_ms, times=self.times + 1)

    @property
    def sum(self) -> str:
        """Returns what is said when it is over."""
        often = f"{self.times:,} times since {iso(self.from_ms)}, the worst: " if self.times > 1 else ""
        return f"over, last seen at {iso(self.last_ms)}: {often}{self.worst.text}"


@dataclass(frozen=True, slots=True)
class Told:
    """What there is to say.

    warnings   of what has begun, or has grown
    over       of what is over
    episodes   all that there are, and were lately, the newest first
    """

    warnings: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    episodes: tuple[Episode, ...] = ()


class Concerns:
    """Follows the concerns of a job."""

    def __init__(self) -> None:
        self._episodes: dict[str, Episode] = {}

    def take(self, concerns: Iterable[Concern], now_ms: int) -> Told:
        """Takes those of a batch or of a moment, and returns what there is to say."""
        found = {concern.about: concern for concern in concerns}
        episodes = dict(self._episodes)
        warnings = []
        for about, concern in found.items():
            known = episodes.pop(about, None)
            if known is None or known.over:
                episodes[about] = Episode(concern, concern.size, now_ms, now_ms)
                warnings.append(concern.text)
                continue
            episodes[about] = known.seen(concern, now_ms)
            if concern.size >= GROWN * known.said:
                episodes[about] = replace(episodes[about], said=concern.size)
                warnings.append(concern.text)
        over = []
        for about, known in list(episodes.items()):
            if not known.over and now_ms - known.last_ms >= OVER_MS:
                episodes[about] = replace(known, over=True)
                over.append(known.sum)
            elif now_ms - known.last_ms > SHOWN_MS:
                del episodes[about]
        for about in list(episodes)[:-MOST]:
            del episodes[about]
        self._episodes = episodes
        return Told(tuple(warnings), tuple(over), tuple(reversed(episodes.values())))

    def end(self) -> Told:
        """Returns what there is to say at the end of a run: of all that was seen more than once."""
        over = tuple(known.sum for known in self._episodes.values() if not known.over and known.times > 1)
        self._episodes = {about: replace(known, over=True) for about, known in self._episodes.items()}
        return Told(over=over, episodes=tuple(reversed(self._episodes.values())))
