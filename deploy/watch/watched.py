"""Connects a job with its listeners: what `teacup run` opens around the runner.

`watched` gives the runner one listener that stands for all. `metrics` in the job file adds a server and what it shows,
and `lineage` reports to a service what the job reads and writes. Without these the job only prints lines, and nothing
else is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from deploy.jobfile.job import CommonJob
from deploy.watch.lines import Lines
from deploy.watch.listener import JobListeners, Listener

if TYPE_CHECKING:
    from deploy.watch.board import Board


@contextmanager
def watched(job: CommonJob, name: str, lines: Lines, board: Board | None = None) -> Iterator[Listener]:
    """Opens all listeners of a job, and closes them at the end.

    name    the name of the job
    board   the board of a process with many jobs; None: the job has its own, if it asks for one
    """
    listeners: list[Listener] = [lines]
    with ExitStack() as opened:
        if board is None and job.metrics is not None:
            from deploy.watch.board import Board

            board = opened.enter_context(closing(Board(job.metrics, name)))
        if board is not None:
            shown = board.show(name)
            listeners.append(shown)
            takers = [shown.metrics.numbers.take]
            if job.metrics is not None and job.metrics.otlp is not None:
                from deploy.watch.otlp import Otlp  # needs an extra

                otlp = Otlp(job.metrics.otlp, shown.metrics)
                takers.append(otlp.take)
                listeners.append(otlp)
            shown.hour.give_to(*takers)
        if job.lineage is not None:
            from deploy.watch.lineage import Lineage

            listeners.append(opened.enter_context(closing(Lineage(job.lineage))))
        yield JobListeners(*listeners)
