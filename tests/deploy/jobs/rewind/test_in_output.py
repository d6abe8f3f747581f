"""Which left records have a row in an output, and when that is not known."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.errors import ForeignRow
from deploy.jobfile.load import load_job
from deploy.jobs.rewind import in_output
from deploy.jobs.rewind.in_output import rows_in_output
from joins.errors import DataLoss
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.write.writer import TopicWriter
from tests.support.provenance import header

GENERATIONS = ("first", "second")
DEADLINE_S = 30.0


@pytest.fixture
def job(window_job, tmp_path):
    """A job with an output of one partition."""
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(window_job(1)))
    return load_job(path)


def put(job, *rows):
    """Rows, each of (generation, batch, left offset)."""
    tags = [BatchTag.of(job.spec.name, generation, batch) for generation, batch, _ in rows]
    headers = [[header(f"0:{row[2]}", batch=tag)] for row, tag in zip(rows, tags, strict=True)]
    put_headers(job, *headers)


def put_headers(job, *headers):
    """Records with these headers."""
    with closing(TopicWriter(dict(job.spec.kafka))) as writer:
        writer.write(job.output.topic, [b"k"] * len(headers), [b"v"] * len(headers), headers=list(headers))
        writer.flush()


def kept(job, first):
    found = rows_in_output(job, {0: first}, GENERATIONS, time_ms=0)
    return [first + int(at) for _, bits in found.partitions.values() for at in np.unpackbits(bits).nonzero()[0]]


def test_records_from_the_first_on_with_a_row_of_any_generation_are_found(job):
    put(job, *[("first", 1, offset) for offset in range(6)], ("first", 2, 9), ("second", 1, 7))

    found = kept(job, 3)

    assert found == [3, 4, 5, 7, 9]


def test_rows_of_others_are_refused_if_they_are_about_these_records(job):
    put(job, ("first", 1, 3), ("unknown", 1, 2))

    assert kept(job, 3) == [3]
    with pytest.raises(ForeignRow, match="about left record 0:2 is of origin"):
        kept(job, 2)


def test_a_header_that_cannot_be_read_is_refused(job):
    """The row may be one of these, by another version; a record without the header is another program's."""
    put(job, ("first", 1, 3))
    put_headers(job, [("other", b"1")])
    assert kept(job, 3) == [3]
    put_headers(job, [("teacup", b"2 0:4 - ab:1")])

    with pytest.raises(ForeignRow, match=r"-0 offset \d+ has a header 'teacup' that this version does not write"):
        kept(job, 3)


def test_without_a_look_at_whose_rows_they_are_a_row_would_be_missing(job, monkeypatch):
    """Another job's row would count as ours."""
    put(job, ("first", 1, 3), ("unknown", 1, 2))
    monkeypatch.setattr(in_output._RowsOfRecords, "_check_known", lambda *_: None)

    found = kept(job, 2)

    assert found == [2, 3]


def test_rows_that_retention_may_have_deleted_are_not_taken_for_missing(job, kafka):
    """The first row that is left is of batch 2. Record 5 is of batch 3 or later, record 3 of batch 2."""
    put(job, *[("first", 1 + offset // 2, offset) for offset in range(10)])
    admin = AdminClient(kafka)
    for deleted in admin.delete_records([TopicPartition(job.output.topic, 0, 3)]).values():
        deleted.result(DEADLINE_S)

    assert kept(job, 7) == [7, 8, 9]
    with pytest.raises(DataLoss, match="they would count as missing"):
        kept(job, 4)
