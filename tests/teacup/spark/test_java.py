"""Spark's home without the zipped sources of PySpark; which processes are ended once a query is planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from teacup.spark.java import spark_home, use_spark_home


def test_the_home_has_what_starts_a_jvm_and_no_zipped_sources(tmp_path: Path) -> None:
    """Because of the zip at the front of the path, every Python process of a start compiled PySpark again."""
    home = spark_home(tmp_path)

    assert (home / "bin" / "spark-submit").is_file()
    assert any((home / "jars").glob("spark-core_*.jar"))
    assert not any((home / "jars").glob("spark-mllib_*.jar"))
    assert not (home / "python").exists()
    assert spark_home(tmp_path) == home


@pytest.mark.parametrize("becomes", ["nothing", "dangling link", "folder"])
@pytest.mark.parametrize("named", ["bin", "jars/spark-core_*.jar"])
def test_a_home_without_one_of_its_parts_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, named: str, becomes: str
) -> None:
    """As by what cleans temporary folders: a JVM with some of Spark's classes would fail anywhere."""
    monkeypatch.setenv("TEACUP_CACHE", str(tmp_path))
    home = spark_home(tmp_path / "spark-home")
    (part,) = home.glob(named)
    part.unlink()
    if becomes == "dangling link":
        part.symlink_to(tmp_path / "gone")
    elif becomes == "folder":
        part.mkdir()
    env: dict[str, str] = {}

    use_spark_home(env)

    assert Path(env["SPARK_HOME"]) != home
    assert any(Path(env["SPARK_HOME"]).glob(named))
    assert f"{home} is not used, as {part}" in caplog.text


def test_a_home_that_spark_writes_into_is_not_the_cached_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the same parts; `local-cluster` leaves a folder `work` there."""
    monkeypatch.setenv("TEACUP_CACHE", str(tmp_path))
    cached: dict[str, str] = {}
    own: dict[str, str] = {}

    use_spark_home(cached)
    use_spark_home(own, shared=False)

    assert Path(cached["SPARK_HOME"]).is_relative_to(tmp_path)
    assert not Path(own["SPARK_HOME"]).is_relative_to(tmp_path / "spark-home")
    assert (Path(own["SPARK_HOME"]) / "bin" / "spark-submit").is_file()


def test_a_home_that_the_user_named_is_kept() -> None:
    """Somebody's own Spark is used as it is."""
    env = {"SPARK_HOME": "/opt/spark"}

    use_spark_home(env)

    assert env == {"SPARK_HOME": "/opt/spark"}
