"""Problems that batches report: logged when they begin, when they grow tenfold, and when they are over. Pure.

Reports have concerns: a topic is more out of order than configured, ids were forgotten, nothing matches. Failed task
attempts are concerns too. A concern that comes with every batch for a day would fill the log with a thousand similar
lines and hide all others. So its occurrences form an *episode*, and it is reported, with its size and what to do, when
the episode

    begins   the concern is seen for the first time
    grows    it is at least `GROWN` times as large as when it was last reported
    is over  after `OVER_MS` without it, or at the end of the run: how often it was seen, and the worst occurrence

All listeners get the same (`ConcernNews`): the log, JSON, the page, the metric and the record of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from teacup.base.times import iso

GROWN = 10
OVER_MS = 600_000
SHOWN_MS = 3_600_000
"""How long after its last occurrence an episode is forgotten."""
MOST = 100
"""The most episodes that are remembered: the newest."""


@dataclass(frozen=True, slots=True)
class Concern:
    """A problem in a batch.

    subject   what it is about, the same each time: `right.disorder`
    size      how bad it is, in any unit, but always the same for one concern
    text      for people: what was seen, and what to do about it
    """

    subject: str
    size: float
    text: str


@dataclass(frozen=True, slots=True)
class Episode:
    """The occurrences of a concern, from its beginning to its end.

    worst      the largest one; the first of equals
    said       the size that was last reported
    from_ms, last_ms   when it began, and when it was last seen
    """

    worst: Concern
    said: float
    from_ms: int
    last_ms: int
    times: int = 1
    over: bool = False

    def seen(self, concern: Concern, now_ms: int) -> Episode:
        """Returns the episode with one more occurrence."""
        worst = concern if concern.size > self.worst.size else self.worst
        return replace(self, worst=worst, last_ms=now_ms, times=self.times + 1)

    @property
    def sum(self) -> str:
        """The text for the end of the episode."""
        often = f"{self.times:,} times since {iso(self.from_ms)}, the worst: " if self.times > 1 else ""
        return f"over, last seen at {iso(self.last_ms)}: {often}{self.worst.text}"


@dataclass(frozen=True, slots=True)
class ConcernNews:
    """The news about concerns.

    warnings   texts of those that have begun or grown
    over       texts of those that are over
    episodes   all current and recent ones, newest first
    """

    warnings: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    episodes: tuple[Episode, ...] = ()


class Concerns:
    """Follows the concerns of a job."""

    def __init__(self) -> None:
        self._episodes: dict[str, Episode] = {}

    def take(self, concerns: Iterable[Concern], now_ms: int) -> ConcernNews:
        """Takes the concerns of a batch or a moment, and returns the news."""
        by_subject = {concern.subject: concern for concern in concerns}
        episodes = dict(self._episodes)
        warnings = []
        for subject, concern in by_subject.items():
            episode = episodes.pop(subject, None)
            if episode is None or episode.over:
                episodes[subject] = Episode(concern, concern.size, now_ms, now_ms)
                warnings.append(concern.text)
                continue
            episodes[subject] = episode.seen(concern, now_ms)
            if concern.size >= GROWN * episode.said:
                episodes[subject] = replace(episodes[subject], said=concern.size)
                warnings.append(concern.text)
        over = []
        for subject, episode in list(episodes.items()):
            if not episode.over and now_ms - episode.last_ms >= OVER_MS:
                episodes[subject] = replace(episode, over=True)
                over.append(episode.sum)
            elif now_ms - episode.last_ms > SHOWN_MS:
                del episodes[subject]
        for subject in list(episodes)[:-MOST]:
            del episodes[subject]
        self._episodes = episodes
        return ConcernNews(tuple(warnings), tuple(over), tuple(reversed(episodes.values())))

    def end(self) -> ConcernNews:
        """Ends all episodes with the run, and returns the news: those that were seen more than once."""
        over = tuple(episode.sum for episode in self._episodes.values() if not episode.over and episode.times > 1)
        self._episodes = {subject: replace(episode, over=True) for subject, episode in self._episodes.items()}
        return ConcernNews(over=over, episodes=tuple(reversed(self._episodes.values())))
