"""All histories of two buckets that are delivered by tasks whose buckets change: every interleaving, none by chance.

A driver carries out three batches. Who is with whom it decides for each batch, and again after a restart: both buckets
in one task, or each in a task of its own. Two processes carry out tasks, one at a time; within a task the requests of
its buckets go in any order, as one is opened and committed while the other is joined. A *disturbance* is one of these:

    unanswered   a request gets no answer; it arrives at any later time, or never; the task's other bucket goes on
    lost         the driver takes a task's process for lost and has another one carry the task out; the first goes on
    restarts     the driver starts again: all tasks that run go on, and belong to nobody
    aborts       the coordinator aborts a transaction that is open for too long, and fences its producer

At every point: of each bucket and batch the first rows, in order, each once, as its receipt says; all of them once the
batch is committed. No attempt fails unless something is disturbed, and whatever happens, the job comes to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import NamedTuple

from teacup.kafka.delivery import claim
from teacup.kafka.delivery.delivery import ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.delivery.receipt import Batch, Receipt
from teacup.kafka.errors import KafkaIOError, ReceiptRefused
from tests.teacup.kafka.delivery.replayedlanes import (
    LOST,
    TIMED_OUT,
    Frozen,
    Lanes,
    Task,
    frozen,
    restore,
)
from tests.teacup.kafka.delivery.simulatedcluster import Worker
from tests.teacup.kafka.delivery.simulatedhistory import KAFKA

GENERATION = "g"
TOGETHER, APART = ((0, 1),), ((0,), (1,))
ROWS = {1: ((1, 1), (2, 2)), 2: ((1, 1), (0, 1)), 3: ((1, 1), (1, 1))}
"""Batch -> of each bucket its rows, and in how many parts they are committed."""
FAILURES = 2
"""A disturbance lets at most so many attempts of one bucket fail: its own, and the one that a late `init` fences."""
NOBODY = -1
"""In place of the task: its driver no longer waits for it."""

BucketOf = Callable[[int, tuple[int, ...]], OutputBucket]
"""A bucket, as a task with these buckets delivers it."""


def bucket_of(number: int, _: tuple[int, ...] = ()) -> OutputBucket:
    """Returns the same, whoever delivers it."""
    return OutputBucket("job", number, "out")


class Process(NamedTuple):
    """lanes: of its buckets; task: which of the batch it carries out; buckets: of the task, () if it has none."""

    lanes: tuple[int, int] = (0, 0)
    task: int = NOBODY
    buckets: tuple[int, ...] = ()
    failed: bool = False


class State(NamedTuple):
    """cluster: frozen, by number; number: of the batch; late: buckets and lanes whose request is still under way

    tasks      of the batch: their buckets; done: which of them are
    processes  those of the driver; left: those that go on, and belong to nobody
    starting   the lane of a driver that starts; None: it has started
    spent      disturbances
    elsewhere  how often the bucket that is not walked may still fail
    """

    cluster: int
    late: tuple[tuple[int, int], ...] = ()
    number: int = 1
    tasks: tuple[tuple[int, ...], ...] = ()
    done: frozenset[int] = frozenset()
    processes: tuple[Process, ...] = (Process(), Process())
    left: tuple[Process, ...] = ()
    starting: int | None = None
    spent: int = 0
    elsewhere: int = 0


class Broken(AssertionError):
    """What must hold does not."""


@dataclass
class Explored:
    """states, steps: how many; interleavings: paths from the first state to an end of everything"""

    states: int = 0
    steps: int = 0
    interleavings: int = 0
    runs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


class Histories:
    """The state space; `explore` walks all of it, depth first."""

    def __init__(
        self,
        disturbances: int,
        bucket_of: BucketOf = bucket_of,
        digest: Callable[[int], str] = str,
        *,
        batches: int = len(ROWS),
        in_any_order: bool = False,
        only: int | None = None,
    ) -> None:
        """disturbances: at most so many in a history; bucket_of, digest: of canaries, where only rows are checked.

        in_any_order   walk all orders of independent steps, too
        only           walk this bucket alone. Buckets share no transaction and no receipt: what happens to the other
                       one shows only in a task that fails, or whose process is lost, after this one is delivered
        """
        self.lanes, self._most, self._bucket_of, self._digest = Lanes(), disturbances, bucket_of, digest
        self._batches, self._in_any_order = batches, in_any_order
        self._buckets, self._groupings = ((0, 1), (TOGETHER, APART)) if only is None else ((only,), (((only,),),))
        self._clusters: list[Frozen] = []
        self._number: dict[Frozen, int] = {}
        self._checked: set[tuple[int, int]] = set()
        self._effects: dict[tuple[int, int], tuple[tuple[str, object], int]] = {}
        self._task = cache(self._made_task)
        self._start = cache(self._made_start)

    def explore(self, look: Callable[[State], object] = lambda _: None) -> Explored:
        """Walks every state, and looks at each. Raises `Broken`, with the way to it."""
        found = Explored()
        paths: dict[State, int] = {}
        first = self._first()
        way: list[str] = []
        stack = [(first, self._steps(first), [0])]
        on_way = {first}
        while stack:
            state, steps, total = stack[-1]
            try:
                label, following = next(steps)
            except StopIteration:
                stack.pop()
                on_way.remove(state)
                paths[state] = total[0] or 1  # nothing may happen any more
                if stack:
                    stack[-1][2][0] += paths[state]
                    way.pop()
                continue
            except Broken as broken:
                raise Broken(f"{broken}, after: {'; '.join(way)}") from None
            found.steps += 1
            found.kinds[label.split(" ", 1)[0]] += 1
            if following in paths:
                total[0] += paths[following]
                continue
            assert following not in on_way, f"a circle: {label}"
            way.append(label)
            try:
                self._check(following)
                look(following)
            except Broken as broken:
                raise Broken(f"{broken}, after: {'; '.join(way)}") from None
            on_way.add(following)
            stack.append((following, self._steps(following), [0]))
        found.states, found.interleavings, found.runs = len(paths), paths[first], self.lanes.runs
        return found

    def _first(self) -> State:
        """A new checkpoint has claimed the output."""
        cluster = self._known(((), (), (), ()))
        lane = self.lanes.begin(0, self._start(0))
        while self.lanes.seen[lane].asks:
            answer, cluster = self._effect(lane, cluster)
            lane = self.lanes.answered(lane, answer)
        assert self.lanes.seen[lane].outcome == 0, self.lanes.seen[lane].outcome
        return State(cluster)

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yields what may happen next, and the state after it. Raises `Broken` if the job waits for ever.

        Buckets share no transaction and no receipt. So where nothing more is disturbed, the steps of a bucket whose
        delivery the driver waits for come before those of the other one: any other order leads to the same.
        """
        failures = state.elsewhere + (FAILURES if len(self._buckets) == 1 else 0)
        disturbed = state._replace(spent=state.spent + 1, elsewhere=failures) if state.spent < self._most else None
        goes_on = False
        among = None if disturbed is not None or state.starting is not None else self._awaited(state)
        for step in chain(
            self._driver(state, disturbed) if among is None else (),
            self._requests(state, disturbed, among),
            self._starting(state),
            self._arrivals(state, among),
        ):
            goes_on |= not step[0].startswith("arrives")
            yield step
        if disturbed is None and goes_on:
            return
        opened = [name for name, *_ in self._clusters[state.cluster][1]]
        if not goes_on and (state.starting is not None or state.number <= self._batches) and not opened:
            raise Broken(f"nothing goes on in batch {state.number}")
        for name in opened:
            after = self._timed_out(state.cluster, name)
            yield f"aborts {name}", self._unfenced((disturbed or state)._replace(cluster=after))

    def situation(self, state: State, bucket: int) -> tuple[object, ...]:
        """Returns what one bucket has to do with a state: epoch, transaction, rows, receipt, and who asks for what."""
        name, (epochs, opened, rows, offsets) = bucket_of(bucket).group, self._clusters[state.cluster]
        asking = [
            sorted(filter(None, (self.lanes.seen[one.lanes[bucket]].asks for one in processes)))
            for processes in (state.processes, state.left)
        ]
        late = [self.lanes.seen[lane].asks for of, lane in state.late if of == bucket]
        mine = [one for one in opened if one[0] == name], [row for row in rows if row[2] == str(bucket)]
        return state.number, state.spent, dict(epochs)[name], repr(mine), dict(offsets)[name], str(asking), str(late)

    def _awaited(self, state: State) -> int | None:
        """Returns a bucket for which the driver can do nothing until its delivery has gone on; None: there is none."""
        awaited = (
            bucket
            for process in state.processes
            for bucket in process.buckets
            if self.lanes.seen[process.lanes[bucket]].asks
        )
        return None if self._in_any_order else next(awaited, None)

    def _arrivals(self, state: State, among: int | None) -> Iterator[tuple[str, State]]:
        for at, (bucket, lane) in enumerate(state.late):
            if among in (None, bucket):
                _, cluster = self._effect(lane, state.cluster)
                late = state.late[:at] + state.late[at + 1 :]
                after = self._unfenced(state._replace(cluster=cluster, late=late))
                yield f"arrives late: {self.lanes.seen[lane].asks}", after

    def _unfenced(self, state: State) -> State:
        """Returns the state without those that belong to nobody and can do nothing any more, as they are fenced."""
        if not state.left and not state.late:
            return state
        left = []
        for process in state.left:
            lanes = tuple(
                lane if bucket in process.buckets and self._may_act(bucket, process.buckets, lane, state.cluster) else 0
                for bucket, lane in enumerate(process.lanes)
            )
            if any(lanes):
                left.append(Process((lanes[0], lanes[1]), NOBODY, process.buckets))
        late = tuple((bucket, lane) for bucket, lane in state.late if self._effect(lane, state.cluster)[0] != LOST)
        return state._replace(left=_sorted(tuple(left)), late=late)

    def _may_act(self, bucket: int, buckets: tuple[int, ...], lane: int, cluster: int) -> bool:
        """Returns whether a lane will ask for something, and its producer is not fenced, or not yet initialised."""
        seen = self.lanes.seen[lane]
        if seen.asks in ("", "init"):
            return seen.asks == "init"
        if seen.asks != "read":
            return self._effect(lane, cluster)[0] != LOST
        epoch = dict(self._clusters[cluster][0])[self._bucket_of(bucket, buckets).transactional_id]
        return not seen.answers or seen.answers[-1] == ("is", epoch)  # a canary reads first

    def _starting(self, state: State) -> Iterator[tuple[str, State]]:
        if state.starting is not None:
            answer, cluster = self._effect(state.starting, state.cluster)
            if not self._is_blocked(state.starting, answer):
                yield "the start goes on", self._unfenced(self._started(state._replace(cluster=cluster), answer))

    def _is_blocked(self, lane: int, answer: tuple[str, object]) -> bool:
        """Returns whether it reads a receipt that a transaction may still replace."""
        return self.lanes.seen[lane].asks == "read" and answer == ("is", None)

    def _driver(self, state: State, disturbed: State | None) -> Iterator[tuple[str, State]]:
        if state.starting is not None or state.number > self._batches:
            return
        if not state.tasks:
            for tasks in self._groupings:
                yield f"plans batch {state.number} as {tasks}", state._replace(tasks=tasks)
            return
        running = {process.task for process in state.processes if process.buckets}
        for at in range(len(state.tasks)):
            if at not in state.done and at not in running:
                for which in self._idle(state):
                    yield f"gives {state.tasks[at]} to {which}", self._given(state, at, which)
                return  # they are given out in order
        if len(state.done) == len(state.tasks):
            yield "commits", state._replace(number=state.number + 1, tasks=(), done=frozenset())
            if len(self._buckets) == 1:
                yield from self._elsewhere(state, disturbed)
        if disturbed is None:
            return
        for which, process in enumerate(state.processes):
            if process.buckets:
                left = (*state.left, process._replace(task=NOBODY))
                yield f"lost: {which}", _put(disturbed, state.processes, left, which, Process())
        processes = (*state.processes, *state.left)
        left = tuple(process._replace(task=NOBODY) for process in processes if process.buckets)
        start = self.lanes.begin(0, self._start(state.number))
        restarted = disturbed._replace(tasks=(), done=frozenset(), starting=start)
        yield "restarts", restarted._replace(processes=(Process(), Process()), left=_sorted(left))

    def _elsewhere(self, state: State, disturbed: State | None) -> Iterator[tuple[str, State]]:
        """The bucket is delivered, and the other one of its task is not: that one fails, or the process is lost."""
        failing = state if state.elsewhere else disturbed
        if failing is not None:
            yield "fails elsewhere", failing._replace(done=frozenset(), elsewhere=failing.elsewhere - 1)
        if disturbed is not None:
            for which in self._idle(state):
                again = disturbed._replace(done=frozenset())
                yield f"lost: {which}", _put(again, state.processes, state.left, which, Process())

    def _idle(self, state: State) -> list[int]:
        """Returns the processes that do nothing; one of those that are alike."""
        found: dict[Process, int] = {}
        for which, process in enumerate(state.processes):
            if not process.buckets:
                found.setdefault(process, which)
        return list(found.values())

    def _given(self, state: State, task: int, which: int) -> State:
        """A process begins a task: it opens the producers of all its buckets."""
        process, buckets = state.processes[which], state.tasks[task]
        lanes = list(process.lanes)
        for bucket in buckets:
            lanes[bucket] = self.lanes.begin(process.lanes[bucket], self._task(state.number, bucket, buckets))
        begun = Process((lanes[0], lanes[1]), task, buckets)
        return self._settled(state, which, begun)

    def _requests(self, state: State, disturbed: State | None, among: int | None) -> Iterator[tuple[str, State]]:
        """What may become of the pending requests of tasks; of one bucket, or of both."""
        for which, process in enumerate((*state.processes, *state.left)):
            for bucket in process.buckets:
                lane = process.lanes[bucket]
                asks = self.lanes.seen[lane].asks
                if not asks or among not in (None, bucket):
                    continue
                who = f"{asks} of {bucket} by {which}"
                answer, cluster = self._effect(lane, state.cluster)
                if not self._is_blocked(lane, answer):
                    yield who, self._after(state._replace(cluster=cluster), which, bucket, answer)
                if disturbed is not None and asks != "read":
                    late = tuple(sorted((*state.late, (bucket, lane))))
                    yield f"unanswered: {who}", self._after(disturbed._replace(late=late), which, bucket, TIMED_OUT)

    def _after(self, state: State, which: int, bucket: int, answer: tuple[str, object]) -> State:
        """Returns the state after a lane got its answer."""
        process = _process(state, which)
        lanes = list(process.lanes)
        lanes[bucket] = self.lanes.answered(lanes[bucket], answer)
        process = process._replace(lanes=(lanes[0], lanes[1]))
        return self._unfenced(self._settled(state, which, process))

    def _settled(self, state: State, which: int, process: Process) -> State:
        """Returns the state with this process, whose lanes, or whose task, may have ended."""
        lanes = list(process.lanes)
        for bucket in process.buckets:
            lane = self.lanes.seen[lanes[bucket]]
            if not lane.asks and lane.rests >= 0 and lane.outcome is not None:
                lanes[bucket] = lane.rests
                if lane.outcome != "delivered":
                    process = process._replace(failed=True)
                    self._check_failure(state, process, lane.outcome)
        process = process._replace(lanes=(lanes[0], lanes[1]))
        if not any(self.lanes.seen[lanes[bucket]].asks for bucket in process.buckets):
            done = {process.task} if process.task != NOBODY and not process.failed else set()
            state = state._replace(done=state.done | done)
            process = Process(process.lanes)
        if which < len(state.processes):
            return _put(state, state.processes, state.left, which, process)
        left = list(state.left)
        left[which - len(state.processes)] = process
        return state._replace(left=_sorted(tuple(one for one in left if one.buckets)))

    def _started(self, state: State, answer: tuple[str, object]) -> State:
        assert state.starting is not None
        lane = self.lanes.answered(state.starting, answer)
        outcome = self.lanes.seen[lane].outcome
        if self.lanes.seen[lane].asks:
            return state._replace(starting=lane)
        if outcome == 0:
            return state._replace(starting=None)
        if isinstance(outcome, KafkaIOError) and not isinstance(outcome, ReceiptRefused):
            return state._replace(starting=self.lanes.begin(0, self._start(state.number)))
        raise Broken(f"the job does not start: {outcome!r}")

    def _check_failure(self, state: State, process: Process, outcome: object) -> None:
        if not isinstance(outcome, KafkaIOError):
            raise Broken(f"an attempt ended with {outcome!r}")
        if not state.spent:
            raise Broken(f"an attempt failed though nothing went wrong: {outcome}")
        if isinstance(outcome, ReceiptRefused) and process.task != NOBODY:
            raise Broken(f"the job is refused: {outcome}")

    def _check(self, state: State) -> None:
        """What holds at every point at which somebody may read."""
        if (state.cluster, state.number) in self._checked:
            return
        _, _, rows, offsets = self._clusters[state.cluster]
        for bucket in self._buckets:
            there = {number: [row[3] for row in rows if row[1:3] == (number, str(bucket))] for number in ROWS}
            for number, found in there.items():
                count, _ = ROWS[number][bucket]
                if found != list(range(len(found))):
                    raise Broken(f"not each row once: bucket {bucket}, batch {number} has {found}")
                if number < state.number and len(found) != count:
                    raise Broken(f"batch {number} is committed with {len(found)} of {count} rows of bucket {bucket}")
            if self._bucket_of is bucket_of:
                _, text = dict(offsets)[bucket_of(bucket).group]
                receipt = Receipt.from_text(text)
                if any(found and number > receipt.number for number, found in there.items()):
                    raise Broken(f"rows without their receipt: bucket {bucket} has {there}, and {receipt}")
                if receipt.number and len(there[receipt.number]) != receipt.rows:
                    raise Broken(f"the receipt differs: bucket {bucket} has {there}, and {receipt}")
        self._checked.add((state.cluster, state.number))

    def _timed_out(self, cluster: int, name: str) -> int:
        restore(self.lanes.cluster, self._clusters[cluster])
        self.lanes.cluster.time_out(name)
        return self._known(frozen(self.lanes.cluster))

    def _effect(self, lane: int, cluster: int) -> tuple[tuple[str, object], int]:
        key = lane, cluster
        if key not in self._effects:
            answer, after = self.lanes.effect(lane, self._clusters[cluster])
            self._effects[key] = answer, self._known(after)
        return self._effects[key]

    def _known(self, state: Frozen) -> int:
        if state not in self._number:
            self._number[state] = len(self._clusters)
            self._clusters.append(state)
        return self._number[state]

    def _made_task(self, number: int, bucket: int, buckets: tuple[int, ...]) -> Task:
        """A bucket's part of a task, as `deploy.output` delivers it."""
        rows, parts = ROWS[number][bucket]
        output = self._bucket_of(bucket, buckets)
        batch = Batch(GENERATION, number, self._digest(bucket))
        others = [self._bucket_of(other, buckets) for other in buckets[1:]]

        def task(worker: Worker) -> str:
            if output in others:
                worker.producers.open_ahead(KAFKA, [output], True, batch.before)
            delivery = ExactlyOnce(KAFKA, output, batch, lambda: 0, producers=worker.producers)
            try:
                was = delivery.written_so_far()
                at = rows if was.done else was.rows
                for part in range(parts):
                    until = rows if part == parts - 1 else max(at, rows * (part + 1) // parts)
                    some = [(GENERATION, number, str(bucket), row) for row in range(at, until)]
                    if some:
                        delivery.write(output.topic, None, some, None, [0] * len(some))
                    done, at = part == parts - 1, until
                    if some or done:
                        delivery.commit(until, {output.topic: len(some)} if some else {}, done=done)
            except BaseException:
                delivery.abandon()
                raise
            return "delivered"

        return task

    def _made_start(self, number: int) -> Task:
        """What a driver does before its batches; number: of the newest planned one, 0: the checkpoint is new."""
        planned = {bucket: Batch(GENERATION, number, self._digest(bucket)) for bucket in self._buckets if number}

        def task(worker: Worker) -> int:
            start = claim.Start(GENERATION, planned)
            return claim.begin(KAFKA, [*map(bucket_of, self._buckets)], start, now_ms=lambda: 0, clients=worker)

        return task


def _process(state: State, which: int) -> Process:
    return (*state.processes, *state.left)[which]


def _put(
    state: State, processes: tuple[Process, ...], left: tuple[Process, ...], which: int, process: Process
) -> State:
    changed = list(processes)
    changed[which] = process
    return state._replace(processes=_sorted(tuple(changed)), left=_sorted(left))


def _sorted(processes: tuple[Process, ...]) -> tuple[Process, ...]:
    """Which of the processes is which makes no difference."""
    return tuple(sorted(processes))
