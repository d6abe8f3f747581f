"""Safeguards of the delivery, taken out one at a time: what canaries patch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teacup.kafka.delivery import delivery, receipt
from teacup.kafka.delivery.fencing import FencedProducer, read_receipt
from teacup.kafka.delivery.receipt import NOTHING_IN, Batch, Receipt
from teacup.kafka.delivery.transactional import TransactionalWriter
from teacup.kafka.write.producer import ConnectionWatch
from tests.teacup.kafka.delivery.simulatedcluster import Cluster


def receipt_read_before_fencing(patched: pytest.MonkeyPatch) -> None:
    def obvious(self, kafka, bucket, clients, handled=None):
        self.receipt, self._group = read_receipt(kafka, bucket, clients)
        FencedProducer.__init__(self, kafka, bucket, clients)
        self.kept = self.begun = self.perhaps_sent_twice = False
        self.handled = handled
        self.connections = ConnectionWatch(self.writer.connections_lost)

    patched.setattr(TransactionalWriter, "__init__", obvious)


def digest_ignored(patched: pytest.MonkeyPatch) -> None:
    def without(found: Receipt | None, batch: Batch, who: str) -> receipt.WrittenSoFar:
        return receipt.written_so_far(found and replace(found, digest=batch.digest), batch, who)

    patched.setattr(delivery, "written_so_far", without)


def done_ignored(patched: pytest.MonkeyPatch) -> None:
    def without(found: Receipt | None, batch: Batch, who: str) -> receipt.WrittenSoFar:
        was = receipt.written_so_far(found, batch, who)
        return NOTHING_IN if was.done else was

    patched.setattr(delivery, "written_so_far", without)


def generation_ignored(patched: pytest.MonkeyPatch) -> None:
    def without(found: Receipt | None, batch: Batch, who: str) -> receipt.WrittenSoFar:
        if found is not None and found.generation != batch.generation and batch.number == 1:
            return NOTHING_IN
        return receipt.written_so_far(found, batch, who)

    patched.setattr(delivery, "written_so_far", without)


def nobody_is_fenced(patched: pytest.MonkeyPatch) -> None:
    def as_before(self: Cluster, name: str) -> int:
        return self.epochs.setdefault(name, 0)

    patched.setattr(Cluster, "init", as_before)
