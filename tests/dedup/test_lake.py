"""Recent results from Parquet files."""

from __future__ import annotations

import os

import polars as pl
import pytest

from dedup.errors import ResultsUnreadable
from dedup.replay_range import LoadLimits
from dedup.results import LakeResults


def put(folder, name, ids, times=None, modified_s=1_000):
    """Writes a file of results."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(
        {"id": ids, "time": times or [0] * len(ids)}, schema={"id": pl.String, "time": pl.Int64}
    ).write_parquet(path)
    os.utime(path, (modified_s, modified_s))


def ids_of(results, bounds):
    return sorted(row_id.decode() for piece in results.load(bounds) for row_id in piece.ids.to_list())


def test_ids_come_from_all_files_but_hidden_ones(tmp_path):
    """What a failed attempt left is not a result; nulls count as foreign; a second load brings what is new."""
    put(tmp_path, "day=1/a.parquet", ["a", None])
    put(tmp_path, "_temporary/0/b.parquet", ["never"])
    results = LakeResults(str(tmp_path), "id")

    first = list(results.load(LoadLimits(None, 100)))
    put(tmp_path, "day=2/c.parquet", ["c"])

    assert [piece.ids.to_list() for piece in first] == [[b"a"]]
    assert first[0].foreign == 1
    assert ids_of(results, LoadLimits(None, 100)) == ["c"]


def test_the_newest_files_are_read_within_the_limit_and_the_time(tmp_path):
    """The newest first; with a time column, rows before the time are left out."""
    for number in range(5):
        put(tmp_path, f"{number}.parquet", [f"{number}a", f"{number}b"], [number, number], modified_s=1_000 + number)

    assert ids_of(LakeResults(str(tmp_path), "id"), LoadLimits(None, 3)) == ["3a", "3b", "4a", "4b"]
    assert ids_of(LakeResults(str(tmp_path), "id", "time"), LoadLimits(4, 100)) == ["4a", "4b"]


def test_a_long_load_shows_how_far_it_is(tmp_path, monkeypatch, caplog):
    """Every few seconds; here after every piece."""
    for number in range(3):
        put(tmp_path, f"{number}.parquet", ["a", "b"], modified_s=1_000 + number)
    monkeypatch.setattr("dedup.results.SAY_EVERY_S", -1.0)
    caplog.set_level("INFO", logger="teacup")

    ids_of(LakeResults(str(tmp_path), "id"), LoadLimits(None, 100))

    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert said == ["6 rows in 3 files", "2 of 6 rows", "4 of 6 rows", "6 of 6 rows"]


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path):
    """As before a job's first batch."""
    assert ids_of(LakeResults(str(tmp_path / "none"), "id"), LoadLimits(None, 3)) == []


@pytest.mark.parametrize("name", ["_spark_metadata/0", "_delta_log/0.json", ".hoodie/x", "metadata/v1.metadata.json"])
def test_a_table_with_a_log_of_its_own_is_refused(tmp_path, name):
    """A file that no log names was left by a failed attempt: its rows would be taken for written, and be lost."""
    put(tmp_path, "left-behind.parquet", ["a"])
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).touch()

    with pytest.raises(ResultsUnreadable, match=name.partition("/")[0]):
        LakeResults(str(tmp_path), "id")


def test_ids_that_are_numbers_are_refused(tmp_path):
    """Their bytes differ from Spark's: nothing would ever be recognised."""
    pl.DataFrame({"id": [1, 2]}).write_parquet(tmp_path / "a.parquet")

    with pytest.raises(ResultsUnreadable, match=r"'id' of .*a.parquet is int64"):
        ids_of(LakeResults(str(tmp_path), "id"), LoadLimits(None, 100))


def test_ids_from_a_dictionary_are_text(tmp_path):
    """As some writers store repeated values."""
    pl.DataFrame({"id": ["a", "b"]}, schema={"id": pl.Categorical}).write_parquet(tmp_path / "a.parquet")

    assert ids_of(LakeResults(str(tmp_path), "id"), LoadLimits(None, 100)) == ["a", "b"]


def test_a_torn_file_and_a_missing_column_are_named(tmp_path):
    """A killed writer leaves the one, a typing error causes the other."""
    put(tmp_path, "whole.parquet", ["a"])
    with pytest.raises(ResultsUnreadable, match=r"whole\.parquet .* column 'event', only id, time"):
        ids_of(LakeResults(str(tmp_path), "event"), LoadLimits(None, 100))
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:40])

    with pytest.raises(ResultsUnreadable, match=r"torn\.parquet is not .*complete"):
        ids_of(LakeResults(str(tmp_path), "id"), LoadLimits(None, 100))
