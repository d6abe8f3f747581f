"""Recent results from a Kafka topic: one or many partitions, written by us and by others.

It loads the records from the first one with a time >= `since_ms` on, and the last `tail` records of the topic whatever
their times, because a batch whose records were all late was written last; at most the last `limit`. `tail` and `limit`
are shared by the partitions as evenly as possible. The broker's index says where a time begins, unchecked: every record
before its answer has a smaller time, whatever else is there (a record from the future only makes it answer earlier, so
that more is read). A search over single records could not promise that: one old record that it meets hides all before
it.

If a batch is given (`LoadLimits.batch`), only its records count. Records behind an open transaction cannot be read
yet. It waits for the transaction, because results of ours may be behind it. Records of aborted transactions are not
results, even if the job itself reads uncommitted records: rows taken for their duplicates would be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from dedup.identity import Identity
from dedup.replayrange import LoadLimits
from dedup.results.protocol import Loaded
from kafkaio.brokerlog import BrokerLog
from kafkaio.client import committed_only
from kafkaio.every import Every
from kafkaio.fairshare import fair_shares
from kafkaio.opentransaction import wait_until_readable
from kafkaio.rangereader import RangeReader
from kafkaio.topiclog import Ends

log = logging.getLogger("teacup.dedup.results.kafka")

TRANSACTION_TIMEOUT_S = 120.0
SAY_EVERY_S = 5.0


class KafkaResults:
    """Implements `dedup.results.protocol.RecentResults`. Raises `KafkaUnavailable` and other errors of `kafkaio`.

    tail   this many last records are loaded whatever their times, within the limit
    """

    def __init__(
        self,
        topic: str,
        kafka: Mapping[str, str],
        identity: Identity | None = None,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
        *,
        tail: int = 0,
    ) -> None:
        self._topic, self._tail = topic, tail
        self._identity = identity or Identity()
        self._timeout_s = transaction_timeout_s
        self._log = BrokerLog(topic, committed_only(kafka))
        self._reader = RangeReader(topic, committed_only(kafka))
        self._positions: dict[int, int] = {}

    def check(self) -> None:
        self._log.ends()

    def load(self, bounds: LoadLimits) -> Iterator[Loaded]:
        ends = wait_until_readable(self._log, self._log.ends(), self._timeout_s)
        starts = self._positions or self._first_starts(ends, bounds)
        # Retention may have deleted what was read before.
        spans = {p: (max(starts.get(p, end.start), end.start), end.stable) for p, end in ends.items()}
        total = sum(max(end - start, 0) for start, end in spans.values())
        read, report = 0, Every(SAY_EVERY_S)
        log.info("loads recent results of %s: %d records", self._topic, total)
        for p, (start, end) in spans.items():
            for batch in self._reader.read(p, start, end):
                ids = self._identity.of_records(batch, bounds.batch)
                foreign = ids.null_count()
                read += len(ids)
                yield Loaded(ids.drop_nulls() if foreign else ids, foreign)
                if report.due():
                    log.info("loads recent results of %s: %d of %d records", self._topic, read, total)
        self._positions = {p: end for p, (_, end) in spans.items()}

    def close(self) -> None:
        self._log.close()
        self._reader.close()

    def _first_starts(self, ends: Mapping[int, Ends], bounds: LoadLimits) -> dict[int, int]:
        starts = {p: end.start for p, end in ends.items()}
        if bounds.since_ms is not None:
            found = self._log.estimate(dict.fromkeys(ends, bounds.since_ms))
            tails = fair_shares({p: end.stable - end.start for p, end in ends.items()}, self._tail)
            starts = {p: max(min(found[p], end.stable - tails[p]), end.start) for p, end in ends.items()}
        sizes = {p: end.stable - starts[p] for p, end in ends.items()}
        shares = fair_shares(sizes, bounds.limit)
        if sum(sizes.values()) > bounds.limit:
            log.warning(
                "%s holds %d records that may be results of a replay, of which the last %d are loaded: duplicates "
                "are written if the batch that is run again wrote more, or others have written that much since: then "
                "raise the limit",
                self._topic,
                sum(sizes.values()),
                bounds.limit,
            )
        return {p: max(starts[p], end.stable - shares[p]) for p, end in ends.items()}
