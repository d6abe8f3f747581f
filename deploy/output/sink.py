"""Delivers the rows of one ticket: those that are not in the output yet, in parts, with accounts that must add up."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from deploy.job import Output
from deploy.output.accounts import Accounts
from deploy.output.delivered import DeliveredBatch
from deploy.output.deliveries import batch_tag, forget_output_limits, output_bucket, output_limits
from deploy.output.routing import Router, about
from deploy.output.writing import Writing
from joins.flavour import flavour_of
from joins.items import Begin, C
from joins.spec import JoinSpec
from kafkaio.delivery.receipt import Standing


class BucketSink:
    """Delivers the rows of one ticket; commits only if its accounts add up."""

    def __init__(self, spec: JoinSpec, output: Output, begin: Begin, writing: Writing) -> None:
        self._spec, self._output, self._writing = spec, output, writing
        self._accounts = Accounts(str(output_bucket(spec, output, begin)))
        self._reached = ""
        self._found: Standing | None = None  # before this attempt wrote anything
        tag = None if output.exactly_once else batch_tag(spec, begin)
        self._router = Router(spec, output, output_limits(spec, output), tag, writing.write, self._accounts)

    def take(self, rows: pl.DataFrame) -> None:
        """Writes the rows that are not in the output yet."""
        before = self._accounts.received
        self._accounts.receive(rows)
        self._reached = about(rows[-1])
        standing = self._writing.standing()
        if self._found is None:
            self._found = standing
        if standing.done:
            return
        skip = max(standing.rows - before, 0)
        if 0 < skip <= len(rows):
            standing.check_reached(about(rows[skip - 1]), self._accounts.bucket)
        if skip >= len(rows):
            return
        had_results = self._accounts.results
        self._router.route(rows[skip:])
        # After rows for side topics, all of right may have to be read, or a store to answer, before a result follows.
        gap = self._accounts.results == had_results and (had_results == 0 or not flavour_of(self._spec).repeats_exactly)
        if self._writing.part_is_full(gap=gap):
            self._commit(done=False)

    def close(self, summary: C) -> DeliveredBatch[C]:
        """Checks the accounts and makes the last rows durable."""
        accounts = self._accounts
        accounts.check_joined(summary.lefts_read, sum(summary.rows.values()))
        found = self._found or self._writing.standing()
        if found.done:
            found.check_reached(summary.ended, accounts.bucket)
        elif accounts.received < found.rows:
            found.check_reached("no record", accounts.bucket)
        self._reached = summary.ended
        sent = dict(self._commit(done=True))
        return DeliveredBatch(summary, sent, accounts.refused, accounts.received if found.done else found.rows)

    def abandon(self) -> None:
        """Gives up after a failure: nothing more is committed."""
        self._writing.abandon()
        forget_output_limits(self._spec, self._output)

    def _commit(self, *, done: bool) -> Mapping[str, int]:
        self._accounts.check_written()
        return self._writing.commit(self._accounts.received, done=done, reached=self._reached)
