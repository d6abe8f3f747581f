"""Runs a job until it is done, or asked to stop: one loop for all kinds of jobs.

    checkpoint  lock and read it
    wait        wait until the brokers answer
    topics      check that they exist
    prepare     check the rest before Spark starts; a job that must not run ends here
    stream      get what plans the batches; each gives one summary per task
    report      add up the summaries of a batch; if one is missing, the batch is not committed
    keep        store what the next plan needs, before the batch is committed
    commit      publish positions for lag tools

A batch is committed only after all its summaries have arrived. Every error becomes one line and an exit code.

A stop ends a continuous job with exit code 0. A job that reads all and ends (`trigger: available_now`) is done only if
its reader says so (`StreamReader.all_read`); otherwise it ends as stopped, and logs what is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from deploy.check.access import check_topics, naming_all_lacks, to_run
from deploy.check.machine import written_folders
from deploy.check.uses import Named
from deploy.checkpoint.lock import checkpoint_lock
from deploy.checkpoint.run_record import Recording, RunRecord, recorded
from deploy.jobs.failures import Starved, failed, reported
from deploy.jobs.host import Alone, Host, SparkOfJob
from deploy.jobs.stopping import StopRequest
from deploy.kinds.job_kind import JobKind
from deploy.watch.backlog import Backlog, Positions
from deploy.watch.failed_attempts import FailedAttempts
from deploy.watch.life.moment import JobState, Phase, WaitingFor
from deploy.watch.listener import JobDescription, Listener, Listeners
from teacup.base.errors import ExitCode
from teacup.base.logs import job_here
from teacup.base.now import Every, wall_ms
from teacup.base.process import use_arrow_without_pandas
from teacup.base.version import installed
from teacup.kafka.log.groups import GroupOffsets, LatestOffsets
from teacup.spark.checkpoint_access import check_access
from teacup.spark.cluster import Executors
from teacup.spark.errors import NoExecutor
from teacup.spark.planner_notes import BROKERS, PlannerNote

if TYPE_CHECKING:
    from teacup.spark.batches.jobs import Stream
    from teacup.spark.batches.loop import BatchLoop

log = logging.getLogger("teacup")

POLL_S = 0.5
LEFT_WITHIN_S = 5.0
"""How long a stopped run may take to find out what is left."""
FAILURES_EVERY_S = 1.0


Check = Callable[[], None]
"""Raises if another process has taken over the job."""
Turn = Callable[[Callable[[Check, RunRecord], ExitCode], Callable[[], Executors]], ExitCode]
"""Waits for this process's turn, runs the job, and returns its exit code (`deploy.jobs.standby`). Takes the work, and a
check of the executors, which raises `NoExecutor` once they have been missing for too long."""


def run(
    kind: JobKind, listener: Listener, stop: StopRequest, host: Host | None = None, turn: Turn | None = None
) -> ExitCode:
    """Runs the job until stopped or all is read, and reports each batch to the listener; returns the exit code.

    host   None: this process runs no other job
    turn   None: no standby, so the checkpoint's lock must be free at once
    """

    def whole(run_of_job: _RunOfJob) -> ExitCode:
        try:
            return run_of_job.whole(turn)
        except Exception as error:  # noqa: BLE001 - whatever ended the job is logged and becomes an exit code
            return failed(error, written_folders(kind.common))

    of_process, stopped = host or Alone(), kind.common.stopped
    this = _RunOfJob(kind, listener, stop, of_process)
    if turn is None:

        def work(record: RunRecord) -> ExitCode:
            return whole(this.noted_in(record))

        code = with_lock(kind.common.checkpoint, work, stopped, of_process.restart_ms)
    else:
        code = ended(lambda: whole(this), stopped)
    listener.ended(code)
    return code


def about(kind: JobKind, *, in_detail: bool = True) -> JobDescription:
    """Returns what stays the same while a job runs; in_detail: also what only some listeners use (`Listener`)."""
    roles = [(named.topic, named.key.removesuffix(".topic"), named.written) for named in kind.topics()]
    sides: dict[str, str] = {}
    for topic, role, written in roles:
        if not written:
            sides.setdefault(topic, role)  # one topic on both sides counts as left's
    brief = JobDescription(
        name=kind.name,
        kind=kind.common.kind,
        ends=kind.common.trigger_ms is None,
        does=kind.opening(),
        sides=sides,
    )
    if not in_detail:
        return brief
    return replace(
        brief,
        version=installed(),
        zeros=tuple(kind.zeros()),
        settings=kind.settings(),
        writes={topic: role for topic, role, written in roles if written},
        brokers=kind.kafka.get("bootstrap.servers", ""),
        fields=kind.fields(),
    )


def with_lock(
    checkpoint: str,
    work: Callable[[RunRecord], ExitCode],
    stopped: ExitCode,
    restart_ms: Callable[[ExitCode], int | None] = lambda _: None,
) -> ExitCode:
    """Does work under the lock of a checkpoint, and leaves a record of it there (`deploy.checkpoint.run_record`).

    An error is logged, and becomes an exit code. stopped: the exit code after a second signal; restart_ms: as in
    `Host`.
    """
    code = stopped
    try:
        with checkpoint_lock(checkpoint), recorded(checkpoint) as record:
            code = ended(lambda: work(record), stopped)
            record.end(code, restart_ms(code))
    except Exception as error:  # noqa: BLE001 - of the lock: whatever it is, it is logged and becomes an exit code
        return failed(error)
    except KeyboardInterrupt:  # a second signal while the record is written or the lock released
        log.debug("interrupted while ending")
    return code


def ended(work: Callable[[], ExitCode], stopped: ExitCode) -> ExitCode:
    """Does work; an error is logged, and becomes an exit code. stopped: the exit code after a second signal."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever ended the job is logged and becomes an exit code
        return failed(error)
    except KeyboardInterrupt:  # a second signal: the batch in progress will run again
        return stopped


def ready(wait: Callable[[Callable[[], bool]], None], topics: Sequence[Named], stopped: Callable[[], bool]) -> bool:
    """Returns once the inputs answer (`wait`) and all topics exist; False if the job is asked to stop before.

    Raises `TopicsMissing`, and what `wait` raises.
    """
    wait(stopped)
    if not stopped():
        check_topics(topics)
    return not stopped()


def connect(wait: Callable[[Callable[[], bool]], None], listener: Listener, stopped: Callable[[], bool]) -> None:
    """Waits until the job's inputs answer, and reports each attempt to the listener."""
    unanswered = ""

    def attempt() -> bool:
        nonlocal unanswered
        listener.moment(JobState(at_ms=wall_ms(), phase=Phase.CONNECTING, unreachable=unanswered))
        unanswered = "no broker has answered since the job was started"
        return stopped()

    wait(attempt)
    listener.moment(JobState(at_ms=wall_ms(), phase=Phase.STARTING, answered=not stopped()))


@dataclass(frozen=True, slots=True)
class _RunOfJob:
    """One run of a job in this process."""

    kind: JobKind
    listener: Listener
    stop: StopRequest
    host: Host

    def noted_in(self, record: RunRecord) -> _RunOfJob:
        """Returns the same run, which notes its state in the record."""
        return replace(self, listener=Listeners(self.listener, Recording(record)))

    def whole(self, turn: Turn | None = None) -> ExitCode:
        """Runs from the beginning. turn: as in `run`."""
        use_arrow_without_pandas()
        kind = self.kind
        self.listener.opening(about(kind, in_detail=self.listener.wants_detail))

        check_access(kind.common.checkpoint)
        if turn is None:
            kind.read_checkpoint()
        with self.host.session(kind) as session:  # its JVM starts in the background
            with naming_all_lacks(lambda: to_run(kind)):
                begins = ready(partial(connect, kind.wait, self.listener), kind.topics(), lambda: self.stop.asked)
                if begins and turn is None:
                    kind.prepare()
            if self.stop.asked:
                return kind.common.stopped
            session.warm_up()
            if turn is not None:
                from teacup.spark.batches.one_row import rehearse

                rehearse(session.spark, lambda: self.stop.asked)
                starved = self._starved(session)
                return turn(
                    lambda check, record: self.noted_in(record)._taken_over(session, check),
                    lambda: starved.checked(session.executors()),
                )
            return self._carried_out(session, lambda: None)

    def _starved(self, session: SparkOfJob) -> Starved:
        return Starved(str(session.spark.sparkContext.master), self.kind.common.executors_within_ms)

    def _taken_over(self, session: SparkOfJob, check: Check) -> ExitCode:
        """Runs the job in a warm session; its topics existed when the process was started."""
        self.listener.moment(JobState(at_ms=wall_ms(), phase=Phase.STARTING))
        self.kind.read_checkpoint()
        with naming_all_lacks(lambda: to_run(self.kind)):
            self.kind.prepare()
        check()
        return self._carried_out(session, check)

    def _carried_out(self, session: SparkOfJob, check: Check) -> ExitCode:
        """Runs the batches."""
        if self.stop.asked:
            return self.kind.common.stopped
        try:
            all_read = self._run_batches(session, check)
        except NoExecutor as error:
            session.give_up()
            return failed(error)
        except Exception as error:  # noqa: BLE001 - Spark's errors have a text only while its JVM runs
            return failed(session.ended() or error, written_folders(self.kind.common))
        return self.kind.common.stopped if self.stop.asked and not all_read else ExitCode.DONE

    def _run_batches(self, session: SparkOfJob, check: Check) -> bool:
        """Returns whether a job that reads all and ends has read all."""
        kind, listener, stop, host = self.kind, self.listener, self.stop, self.host

        def now() -> JobState:
            phase = Phase.STOPPING if stop.asked else Phase.RUNNING
            return state_of(phase, backlog, reader.notes.newest, session.executors())

        def finish(carry_out: Callable[[], list[Any]]) -> None:
            began = time.monotonic()
            summaries = carry_out()
            if summaries:  # none if the job was stopped before anything was planned
                report = kind.report(summaries, time.monotonic() - began, wall_ms())
                kind.keep(summaries)
                listener.moment(now())
                listener.batch(report)
            check()

        def committed(end: Mapping[str, Any]) -> None:
            offsets.put(lambda: kind.group_offsets(end))

        def positions() -> Positions:
            return kind.positions(loop.newest) if loop.newest else {}

        offsets = LatestOffsets(lambda: GroupOffsets(kind.name, kind.kafka))
        reads = list(dict.fromkeys(named.topic for named in kind.topics() if not named.written))
        backlog = Backlog(reads, positions, kind.kafka, host.poll_slowdown)
        stream = kind.stream(session.spark, lambda: stop.asked)
        reader = stream.reader
        loop = started(kind, stream, session, finish, committed)
        stop.at_once(loop.stop)
        attempts = FailedAttempts(session.spark.sparkContext, loop.group)
        if listener.watches:
            backlog.start()
        starved = self._starved(session)
        asked, polls = False, Every(FAILURES_EVERY_S * host.poll_slowdown)
        host.supervisor.ready()
        try:
            while not loop.awaitTermination(POLL_S * (1 if stop.asked else host.poll_slowdown)):
                host.supervisor.alive(stops=stop.asked)
                check()
                state = now()
                listener.moment(replace(state, failures=attempts.poll() if polls.due() else ()))
                if asked and loop.in_progress:
                    backlog.start()  # unless it has: it finds out whether brokers answer
                    if state.stuck:
                        log.info("%s: stops at once, the batch in progress runs again at the next start", state.stuck)
                        loop.stop()
                elif asked:
                    loop.stop()
                starved.checked(session.executors())
                asked = stop.asked  # acts at the next poll: a batch planned before the signal is in progress by then
        finally:
            stop.at_once(None)
            with suppress(Py4JError, OSError):  # Spark or its JVM may have ended
                loop.stop()
            backlog.close()
            offsets.close(wait=not backlog.unreachable)
        if stop.asked and kind.common.trigger_ms is None and not reader.all_read:
            left = Backlog(reads, positions, kind.kafka).measure_once(LEFT_WITHIN_S)
            listener.moment(replace(now(), lag=left))
        return reader.all_read


def started(
    kind: JobKind,
    stream: Stream,
    session: SparkOfJob,
    finish: Callable[[Callable[[], list[Any]]], None],
    committed: Callable[[Mapping[str, Any]], None],
) -> BatchLoop:
    """Starts the batches of a job.

    finish      gets what runs a batch and returns its summaries, before it is committed
    committed   gets where it ends, afterwards
    """
    from teacup.spark.batches.jobs import Report
    from teacup.spark.batches.loop import BatchLoop

    def finish_batch(run: Callable[[], list[Report]], tasks: int, number: int) -> None:
        finish(lambda: reported(run(), tasks, kind.summary))

    common = kind.common
    loop = BatchLoop(session.spark, kind.name, common.checkpoint, stream, finish_batch, common.trigger_ms, committed)
    return loop.start(job_here())


def state_of(phase: Phase, backlog: Backlog, note: PlannerNote, executors: Executors) -> JobState:
    """Returns the job's state, which listeners get a few times a second."""
    unreachable = backlog.unreachable or (note.text if note.reason == BROKERS else "")
    return JobState(
        at_ms=wall_ms(),
        phase=phase,
        waiting=WaitingFor(note.reason, note.since_ms, note.text) if note.reason else None,
        lag=None if unreachable else backlog.lag,
        unreachable=unreachable,
        answered=backlog.answered,
        waited_s=note.waited_s,
        plan_s=note.plan_s,
        executors=executors.count,
        no_executor_since_ms=executors.missing_ms,
    )
