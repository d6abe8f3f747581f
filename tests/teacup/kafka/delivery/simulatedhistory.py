"""A drawn history of one bucket and its jobs on a simulated cluster.

What may happen at each step, and what must hold at each point at which somebody may read: `History.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from hypothesis import strategies as st

from teacup.kafka.delivery import claim
from teacup.kafka.delivery.delivery import ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.delivery.receipt import Batch, Receipt
from teacup.kafka.errors import KafkaIOError, OutputTaken, ReceiptRefused, TakenOver
from tests.teacup.kafka.delivery.simulatedcluster import Cluster, Fate, Worker

T = TypeVar("T")

BUCKET = OutputBucket("job", 0, "out")
KAFKA = {"bootstrap.servers": "simulated", "retry.backoff.ms": "1000000"}  # only drawn faults repeat requests
BATCHES = 3
WORKERS = 3


@dataclass(slots=True)
class Job:
    """A checkpoint: what it has planned, and how many batches it has committed.

    lost     the plan that a power loss took: it is restored when the job refuses to continue without it
    ended    it found that another checkpoint, or another process on this one, has the output
    term     of its process, where there are standbys: these share the plans of their checkpoint
    looked   the newest plan that its process found when it began
    """

    generation: str
    plans: dict[int, tuple[str, int]] = field(default_factory=dict)  # number -> digest, rows
    committed: int = 0
    lost: tuple[int, str, int] | None = None
    begun: bool = False
    ended: bool = False
    attempt: Worker | None = None
    replans: int = 0
    term: int = 0
    looked: int = 0

    def batch(self, rows: Callable[[], int]) -> Batch:
        number = self.committed + 1
        if number not in self.plans:
            self.plans[number] = (f"plan {self.replans}", rows())
        return Batch(self.generation, number, self.plans[number][0], term=self.term)

    def newest(self) -> dict[int, Batch]:
        number = max(self.plans, default=0)
        return {BUCKET.number: Batch(self.generation, number, self.plans[number][0])} if number else {}


def deliver(batch: Batch, rows: int, parts: int) -> Callable[[Worker], object]:
    """A task: what `deploy.output.stage` does with the rows of a ticket."""

    def task(worker: Worker) -> str:
        now_ms = lambda: int(worker.cluster.now_s * 1000)  # noqa: E731
        delivery = ExactlyOnce(KAFKA, BUCKET, batch, now_ms, producers=worker.producers)
        try:
            was = delivery.written_so_far()
            at = rows if was.done else was.rows
            rest = rows - at
            for part in range(parts):
                some = [
                    (batch.generation, batch.number, batch.digest, at + i)
                    for i in range(rest * part // parts, rest * (part + 1) // parts)
                ]
                if some:
                    delivery.write(BUCKET.topic, None, some, None, [0] * len(some))
                last = part == parts - 1
                in_then = at + rest * (part + 1) // parts
                if some or last:
                    delivery.commit(in_then, {BUCKET.topic: len(some)} if some else {}, done=last)
        except BaseException:
            delivery.abandon()
            raise
        return "delivered"

    return task


def begin(job: Job, take_over: bool, terms: bool) -> Callable[[Worker], object]:
    """A task: what a driver does before Spark starts."""

    def task(worker: Worker) -> int:
        now_ms = lambda: int(worker.cluster.now_s * 1000)  # noqa: E731
        job.looked = max(job.plans, default=0)
        planned, how = job.newest(), {"take_over": take_over, "terms": terms}
        return claim.begin(KAFKA, [BUCKET], claim.Start(job.generation, planned, **how), now_ms=now_ms, clients=worker)

    return task


class History:
    """Drawn step by step; call `check` after each."""

    def __init__(self, data: st.DataObject, *, standbys: bool = False) -> None:
        """standbys: another process on the same checkpoint may take over, while the one before goes on."""
        self._standbys, self._newest_term = standbys, ("", 0)
        self.cluster = Cluster()
        self.jobs = [Job("checkpoint 0")]
        self.workers: list[Worker] = []
        self.last_word: dict[str, int] = {}  # by generation, rows that were in when it was replaced
        self._data = data

    @property
    def job(self) -> Job:
        return self.jobs[-1]

    def draw(self, of: Any) -> Any:
        return self._data.draw(of)

    def choose(self, of: Sequence[T]) -> T:
        """One of them, drawn by its place.

        `sampled_from` would have Hypothesis hash processes: by their addresses, which differ with when a thread ends.
        What it calls alike it swaps between examples, so that the same seed would search elsewhere.
        """
        return of[self.draw(st.integers(0, len(of) - 1))]

    def step(self) -> None:
        moves = [self._go_on] * 12 + [self._pass_time, self._deliver_late, self._kill, self._leave_behind]
        more = [self._stand_by] * 2 if self._standbys else [self._lose_plan]  # whoever is taken for lost loses no file
        moves += [self._restart, *more, self._take_over]
        self.choose(moves)()
        self._start_tasks()
        self.check()

    def finish(self) -> None:
        """From now on nothing fails: the newest job delivers all that is due, whatever the others still do."""
        for _ in range(100):
            if self.job.committed == BATCHES:
                break
            self._start_tasks()
            for worker in list(self.workers):
                self._advance(worker, Fate.ANSWERED)
            if self.cluster.late:
                self._arrive(0)
            for _ in range(30):  # they cannot fence it for ever: it needs some ten requests
                if self.job.attempt is not None:
                    self._advance(self.job.attempt, Fate.ANSWERED)
            self.check()
        assert self.job.committed == BATCHES, f"the job does not come to its end: {self.job}"

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()

    def check(self) -> None:
        """What holds at every point at which somebody may read."""
        rows = self.cluster.committed()
        found = self._receipt()
        if found is not None:
            generation, term = self._newest_term
            assert found.generation != generation or found.term >= term, "an earlier process has written after a later"
            self._newest_term = found.generation, found.term
        for job in self.jobs:
            mine = [row for row in rows if row[0] == job.generation]
            if job.generation in self.last_word:
                assert len(mine) == self.last_word[job.generation], "an older checkpoint has written after the claim"
            for number in {row[1] for row in mine}:
                of_batch = [row for row in mine if row[1] == number]
                digest = of_batch[0][2]
                assert {row[2] for row in of_batch} == {digest}, f"rows of two plans: {of_batch}"
                assert [row[3] for row in of_batch] == list(range(len(of_batch))), f"not each row once: {of_batch}"
                if found is not None and found.generation == job.generation:
                    assert number <= found.number, "rows without their receipt"
                    if number == found.number:
                        assert (digest, len(of_batch)) == (found.digest, found.rows), "the receipt differs"
            if job is self.job:
                for number in range(1, job.committed + 1):
                    digest, count = job.plans[number]
                    in_there = sum(row[1:3] == (number, digest) for row in mine)
                    assert in_there == count, f"batch {number} is committed with {in_there} of {count} rows"

    def _receipt(self) -> Receipt | None:
        _, text = self.cluster.offsets.get(BUCKET.group, (0, ""))
        return Receipt.from_text(text) if text else None

    def _start_tasks(self) -> None:
        """Each driver that is not waiting for an attempt starts one."""
        for job in self.jobs:
            if job.attempt is not None or job.ended or job.committed == BATCHES:
                continue
            free = [worker for worker in self.workers if worker.doing == "idle"]
            if not free and len(self.workers) < WORKERS * len(self.jobs) + 2:
                free = [Worker(self.cluster)]
                self.workers += free
            if not free:
                continue
            job.attempt = free[0] if len(free) == 1 else self.choose(free)
            if job.begun:
                batch = job.batch(lambda: self.draw(st.integers(0, 4)))
                parts = self.draw(st.integers(1, 2))
                job.attempt.begin(deliver(batch, job.plans[batch.number][1], parts))
            else:
                job.attempt.begin(begin(job, job is self.job and len(self.jobs) > 1, self._standbys))
            self._look(job.attempt)

    def _go_on(self) -> None:
        """A process makes some of its requests; anything may become of the last one."""
        written_so_far = [worker for worker in self.workers if worker.doing not in ("idle", "killed")]
        if not written_so_far:
            return
        worker = self.choose(written_so_far)
        for _ in range(self.draw(st.integers(0, 9))):
            self._advance(worker, Fate.ANSWERED)
            self.check()
        fate = self.choose([Fate.ANSWERED, Fate.ANSWER_LOST, Fate.LOST, Fate.LATE])
        self._advance(worker, Fate.ANSWERED if worker.doing == "read" else fate)

    def _advance(self, worker: Worker, fate: Fate) -> None:
        if worker.doing not in ("idle", "killed"):
            worker.go_on(fate)
            self._look(worker)

    def _look(self, worker: Worker) -> None:
        """A driver learns how its attempt has ended."""
        if worker.doing != "idle":
            return
        for job in self.jobs:
            if job.attempt is worker:
                job.attempt = None
                self._ended(job, worker.outcome)

    def _ended(self, job: Job, outcome: object) -> None:
        if isinstance(outcome, int):
            job.begun, job.term = True, outcome
            job.committed = max(other.committed for other in self.jobs if other.generation == job.generation)
            older = [
                earlier
                for earlier in self.jobs[: self.jobs.index(job)]
                if earlier.generation not in {*self.last_word, job.generation}
            ]
            for earlier in older:
                self.last_word[earlier.generation] = sum(
                    row[0] == earlier.generation for row in self.cluster.committed()
                )
        elif outcome == "delivered":
            job.committed += 1
        elif isinstance(outcome, OutputTaken | TakenOver):
            assert job is not self.job, "the newest checkpoint has lost its output"
            job.ended = True
        elif isinstance(outcome, ReceiptRefused) and not job.begun and max(job.plans, default=0) > job.looked:
            return  # the one that was taken for lost went on meanwhile: the checkpoint is read again
        elif isinstance(outcome, ReceiptRefused):
            assert job.lost is not None, f"nothing was lost, and {outcome}"
            self._put_back(job)
        else:
            assert isinstance(outcome, KafkaIOError), repr(outcome)  # Spark tries again

    def _put_back(self, job: Job) -> None:
        """What the message asks for: the operator has found the files."""
        assert job.lost is not None
        number, digest, rows = job.lost
        job.plans = {n: plan for n, plan in job.plans.items() if n < number}
        job.plans[number] = (digest, rows)
        job.committed, job.lost, job.begun = number - 1, None, False

    def _pass_time(self) -> None:
        self.cluster.advance(self.choose([1.0, 11.0]))

    def _deliver_late(self) -> None:
        if self.cluster.late:
            self._arrive(self.draw(st.integers(0, len(self.cluster.late) - 1)))

    def _arrive(self, which: int) -> None:
        with suppress(KafkaException):  # nobody gets the answer
            self.cluster.late.pop(which)()

    def _kill(self) -> None:
        alive = [worker for worker in self.workers if worker.doing != "killed"]
        if alive:
            worker = self.choose(alive)
            worker.kill()
            self.workers.remove(worker)
            for job in self.jobs:
                if job.attempt is worker:
                    job.attempt = None

    def _leave_behind(self) -> None:
        """Spark believes that an attempt is dead and starts another one: the old one continues as a zombie."""
        busy = [job for job in self.jobs if job.attempt is not None]
        if busy:
            self._let_go(self.choose(busy))

    def _let_go(self, job: Job) -> None:
        """What a driver does itself dies with it; a checkpoint has only one driver."""
        worker, job.attempt = job.attempt, None
        if worker is not None and not job.begun:
            worker.kill()
            self.workers.remove(worker)

    def _restart(self) -> None:
        """The driver dies and starts again; its attempt is left behind."""
        self._let_go(self.job)
        self.job.begun = False

    def _lose_plan(self) -> None:
        """The driver dies, and the newest files of its checkpoint with it; then it plans something else."""
        job = self.job
        number = max(job.plans, default=0)
        if number and job.lost is None:
            digest, rows = job.plans.pop(number)
            job.lost, job.replans = (number, digest, rows), job.replans + 1
            job.committed = min(job.committed, number - 1)
            self._let_go(job)
            job.begun = False

    def _take_over(self) -> None:
        """Another checkpoint; the older driver continues until it is refused. Of two claims the later one counts."""
        if len(self.jobs) < 3 and self.job.begun:
            self.jobs.append(Job(f"checkpoint {len(self.jobs)}"))

    def _stand_by(self) -> None:
        """Another process on the same checkpoint takes this one for lost; both go on."""
        job = self.job
        if job.begun and not job.ended and len(self.jobs) < 4:
            self.jobs.append(Job(job.generation, job.plans, job.committed))


def play(data: st.DataObject, *, standbys: bool = False) -> None:
    history = History(data, standbys=standbys)
    try:
        for _ in range(data.draw(st.integers(0, 40))):
            history.step()
        history.finish()
    finally:
        history.close()
