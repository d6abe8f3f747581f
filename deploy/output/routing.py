"""Which topic gets what of a row, and what is refused there.

    matched, unmatched   -> the output topic (envelope or `select`); unmatched also to a topic of its own
    unjoined, late, dead_letter -> topics of their own: the record as it was read, with its position and the reason

A row that cannot be written, because it is too large or an expression of the `select` fails on it, becomes a dead
letter; without a topic for those `NoDeadLetterTopic` ends the job. A time that a topic refuses goes into a header
(`kafkaio.producible`).
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from dedup.batchtag import BatchTag
from deploy.job import Output
from deploy.output.accounts import Accounts
from deploy.output.results import outgoing_results
from deploy.output.sidetopics import write_copies, write_refused, write_side_topics
from deploy.output.unwritable import Refusal, not_refused, select_failures, too_large
from joins.rows.frames import rows_where
from joins.rows.outgoing import Outgoing
from joins.spec import JoinSpec
from kafkaio.now import wall_ms
from kafkaio.topiclimits import Limits


class Router:
    """Turns rows of a ticket into records and writes them.

    tag     of the batch, which at-least-once output carries; None: no header for it
    write   (topic, records) -> how many were delivered
    """

    def __init__(
        self,
        spec: JoinSpec,
        output: Output,
        limits: Limits,
        tag: BatchTag | None,
        write: Callable[[str, Outgoing], int],
        accounts: Accounts,
    ) -> None:
        self._spec, self._output, self._limits, self._tag = spec, output, limits, tag
        self._write, self._accounts = write, accounts

    def route(self, rows: pl.DataFrame) -> None:
        """Writes the rows, and enters the results among them into the accounts."""
        spec, output = self._spec, self._output
        main = (rows["outcome"] == "matched") | (rows["outcome"] == "unmatched")
        results = rows if main.all() else rows_where(rows, main)
        if len(results):
            self._accounts.results += len(results)
            self._write_results(results)
        if not main.all():
            write_side_topics(spec, output, rows_where(rows, ~main), self._write_copies)
        if output.late is not None and (late := results["late"]).any():
            write_copies(spec, "left", output.late, rows_where(results, late), self._write_copies)

    def _write_results(self, results: pl.DataFrame) -> None:
        output = self._output
        limits = self._limits[output.topic]
        results = self._without(results, select_failures(results))
        out = outgoing_results(self._spec, output, results, self._tag).restamped(limits, wall_ms())
        if refusals := too_large(out, limits):
            out = out.where(not_refused(len(results), refusals))
            results = self._without(results, refusals)
        if not len(results):
            return
        self._accounts.delivered += self._write(output.topic, out)
        if output.unmatched is not None:
            alone = (results["outcome"] == "unmatched").to_numpy()
            lefts = rows_where(results, alone)
            if len(lefts):
                self._write_copies(output.unmatched, out.where(alone), lambda i: f"the row about {about(lefts[i])}")

    def _without(self, results: pl.DataFrame, refusals: list[Refusal]) -> pl.DataFrame:
        """Returns the results without the refused ones, which become dead letters."""
        if not refusals:
            return results
        write_refused(self._spec, self._output, results, refusals, self._write_copies)
        self._accounts.refuse(refusal.reason for refusal in refusals)
        return results.filter(pl.Series(not_refused(len(results), refusals)))

    def _write_copies(self, topic: str, copies: Outgoing, what: Callable[[int], str]) -> None:
        """Writes copies to a side topic: parts that it would refuse are left out, and a header says so."""
        limits = self._limits[topic]
        self._write(topic, copies.restamped(limits, wall_ms()).shortened(limits, what))


def about(row: pl.DataFrame) -> str:
    """Returns what a row is about, the same in each run of its batch: a left record, or an unjoined right one."""
    side = "right" if row["left_offset"][0] is None else "left"
    return f"{side} {row[f'{side}_partition'][0]}:{row[f'{side}_offset'][0]}"
