"""Where a batch's tasks run: each executor gets the same work in every batch, and so keeps windows and clients for it.

An item of work has a key: what it is about, such as a bucket or a partition. A key stays on its executor while that
lives and has no more than an equal part. A local master has no places: all work is one group, cut by size. Places are
preferences: a task elsewhere is slower, not wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark import SparkContext

from teacup.base.now import Every
from teacup.spark.conf import is_local
from teacup.spark.stream_reader import BatchWork, SparkTask

EXECUTORS_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """What a Spark task gets, and where it should run; Spark chooses if there are no places."""

    task: SparkTask
    places: Sequence[str] = ()


class Placement:
    """Which executor has which work, from batch to batch."""

    def __init__(self, executors: Callable[[], Sequence[str]]) -> None:
        self._executors = executors
        self._places: Mapping[Hashable, str] = {}

    def tasks(self, work: BatchWork) -> list[PlacedTask]:
        """Divides a batch's work into Spark tasks."""
        assert len(work.keys) == len(work.items), "an item without a key would not be done"
        self._places = placed([*self._places, *work.keys], self._executors(), self._places)
        groups = grouped([self._places.get(key) for key in work.keys], work.per_task)
        of_place = Counter(place for place, _ in groups)
        return [
            PlacedTask(SparkTask(tuple(work.items[at] for at in group), of_place[place] == 1), [place] if place else ())
            for place, group in groups
        ]


def placed(keys: Iterable[Hashable], executors: Sequence[str], before: Mapping[Hashable, str]) -> dict[Hashable, str]:
    """Returns the executor of each key: as before if it still is there, and does not have more than an equal part.

    So the keys of a lost executor move, and no others; a new one gets keys from those that have more than that.
    """
    chosen: dict[Hashable, str] = {}
    if not executors:
        return chosen
    wanted = list(dict.fromkeys(keys))
    most, loads = -(-len(wanted) // len(executors)), dict.fromkeys(executors, 0)
    for key in wanted:
        executor = before.get(key)
        if executor is not None and loads.get(executor, most) < most:
            chosen[key] = executor
            loads[executor] += 1
    for key in wanted:
        if key not in chosen:
            executor = min(executors, key=loads.__getitem__)
            chosen[key] = executor
            loads[executor] += 1
    return chosen


def grouped(places: Sequence[str | None], size: int) -> list[tuple[str | None, list[int]]]:
    """Returns the items (indexes) in groups of one place, of at most `size`."""
    by_place: dict[str | None, list[int]] = defaultdict(list)
    for at, place in enumerate(places):
        by_place[place].append(at)
    return [(place, items[at : at + size]) for place, items in by_place.items() for at in range(0, len(items), size)]


class ExecutorPlaces:
    """The executors of a session, as Spark names them for preferred locations; on a local master there are none."""

    def __init__(self, context: SparkContext) -> None:
        self._context, self._local = context, is_local(str(context.master))
        self._look, self._places = Every(EXECUTORS_EVERY_S, at_once=True), list[str]()

    def now(self) -> list[str]:
        """Returns them in order, from a look within the last second."""
        if not self._local and self._look.due():
            listed = self._context._jsc.sc().statusStore().executorList(True)
            executors = [listed.apply(at) for at in range(listed.size())]
            hosts = {one.id(): one.hostPort().rpartition(":")[0] for one in executors if one.id() != "driver"}
            # One that has just come has no host yet.
            self._places = [f"executor_{hosts[one]}_{one}" for one in sorted(hosts) if hosts[one]]
        return self._places
