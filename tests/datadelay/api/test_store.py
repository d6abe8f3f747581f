"""What is stored: restarts, retention, migrations, and files that cannot be used."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, text

from datadelay.api.databases import SqliteFile
from datadelay.api.schema import metadata, migrate
from datadelay.errors import ConfigInvalid, StoreUnavailable
from datadelay.model import Submission
from datadelay.publish import rewind
from tests.support.delay_process import open_store, put
from tests.support.times import NOON_MS

Make = Callable[..., Submission]


def sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'delay.db'}"


def engine_of(database: str) -> Engine:
    return create_engine(database.replace("postgresql:", "postgresql+psycopg:"))


def test_remembers_everything_over_a_restart(database: str, submission: Make) -> None:
    """Including what is not shown: positions, the floor, holds, rewinds."""
    with open_store(database) as store:
        put(store, submission(store_generation="s", caught_up=True, topic="plain"), NOON_MS)
        put(store, submission(topic="held"), NOON_MS)
        put(store, submission(topic="held", position=3, listed_ms=NOON_MS + 1), NOON_MS + 1)
        put(store, submission(None, position=None, topic="unknown"), NOON_MS)
        put(store, submission(topic="rewound"), NOON_MS)
        store.change("feeder", "rewound", lambda before: rewind(before or pytest.fail("gone"), now_ms=NOON_MS), 0)
        before = store.all()

    with open_store(database) as store:
        after = store.all()

    assert [entry.last.topic for entry in after] == ["held", "plain", "rewound", "unknown"]
    assert after == before


def test_drops_points_beyond_the_retention_and_beyond_the_count(database: str, submission: Make) -> None:
    """A history is bounded in time and in number."""
    with open_store(database, retention_ms=10_000, max_points=5) as store:
        for n in range(8):
            put(store, submission(NOON_MS + n, position=10 + n, listed_ms=NOON_MS + n), NOON_MS + n)
        counted = store.history("feeder", "impressions", limit=100, before=None, since_ms=None)
        later = NOON_MS + 20_000
        put(store, submission(later, position=99, listed_ms=later), later)
        aged = store.history("feeder", "impressions", limit=100, before=None, since_ms=None)

    assert [point.at_ms - NOON_MS for point in counted] == [7, 6, 5, 4, 3]
    assert [point.at_ms - NOON_MS for point in aged] == [20_000]


def test_changes_nothing_when_the_decision_fails(database: str, submission: Make) -> None:
    """Neither in memory nor in the database."""
    with open_store(database) as store:
        before = put(store, submission(), NOON_MS)
        with pytest.raises(ZeroDivisionError):
            store.change("feeder", "impressions", lambda _: 1 / 0, NOON_MS)  # type: ignore[arg-type,return-value]

        assert store.get("feeder", "impressions") == before
        assert len(store.history("feeder", "impressions", limit=9, before=None, since_ms=None)) == 1


def test_memory_does_not_run_ahead_of_a_commit_that_failed(database: str, submission: Make) -> None:
    """For example, with a full disk: what was not committed is not published."""
    with open_store(database) as store:
        before = put(store, submission(), NOON_MS)
        breaker = engine_of(database)
        with breaker.begin() as connection:
            connection.execute(text("DROP TABLE history"))
        breaker.dispose()

        with pytest.raises(StoreUnavailable, match="history"):
            put(store, submission(position=11, listed_ms=NOON_MS + 1), NOON_MS + 1)

        assert store.get("feeder", "impressions") == before
    with pytest.raises(StoreUnavailable, match="history"), open_store(database) as store:
        store.history("feeder", "impressions", limit=1, before=None, since_ms=None)


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_once_the_file_is_gone(tmp_path: Path, submission: Make, replaced: bool) -> None:
    """It can be written still, and would be lost with the process. What was published stays readable."""
    with open_store(sqlite(tmp_path)) as store:
        before = put(store, submission(), NOON_MS)
        store.check()
        (tmp_path / "delay.db").rename(tmp_path / "away.db")
        if replaced:
            (tmp_path / "delay.db").touch()

        for _ in range(2):  # a repetition, too
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                put(store, submission(position=11, listed_ms=NOON_MS + 1), NOON_MS + 1)
        with pytest.raises(StoreUnavailable, match="start it again"):
            store.forget("feeder", "impressions")
        with pytest.raises(StoreUnavailable, match="start it again"):
            store.check()

        assert store.get("feeder", "impressions") == before


def test_canary_without_a_look_at_its_file_it_acknowledges_what_is_lost(
    tmp_path: Path, submission: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The safeguard is switched off: the submission is accepted, and after a restart it is not there."""
    monkeypatch.setattr(SqliteFile, "check_kept", lambda self: None)
    with open_store(sqlite(tmp_path)) as store:
        for file in tmp_path.glob("delay.db*"):
            file.unlink()
        put(store, submission(), NOON_MS)

    with open_store(sqlite(tmp_path)) as store:
        assert store.all() == []


def test_on_a_full_disk_it_is_not_ready(tmp_path: Path) -> None:
    """Though a small change still fits into the file that there is."""
    with open_store(sqlite(tmp_path)) as store:
        store.check()
        most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, most[1]))
        try:
            with pytest.raises(StoreUnavailable, match="disk is full"):
                store.check()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, most)
        store.check()


def test_refuses_a_second_server_on_the_same_file(tmp_path: Path) -> None:
    """Each would publish from its own memory."""
    with open_store(sqlite(tmp_path)), pytest.raises(StoreUnavailable, match="another server uses it"):
        open_store(sqlite(tmp_path))
    open_store(sqlite(tmp_path)).close()


def test_refuses_files_that_it_does_not_understand(tmp_path: Path) -> None:
    """They are neither overwritten nor guessed at; and the lock is released."""
    (tmp_path / "delay.db").write_bytes(b"this is no database, but long enough to be taken for one" * 100)

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"delay\.db.*not a database"):
            open_store(sqlite(tmp_path))
    with pytest.raises(StoreUnavailable, match="cannot create"):
        open_store(sqlite(tmp_path / "missing"))


def test_a_relative_path_that_was_meant_to_be_absolute_is_an_error_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual mistake with URLs of SQLite: one slash too few. A folder that exists is taken as it is."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigInvalid, match=r"no folder 'var/lib' .*: sqlite:////var/lib/delay\.db"):
        open_store("sqlite:///var/lib/delay.db")
    open_store("sqlite:///delay.db").close()


def test_refuses_a_database_of_a_newer_version(database: str) -> None:
    """After a downgrade of the software."""
    open_store(database).close()
    engine = engine_of(database)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()

    with pytest.raises(StoreUnavailable, match="newer version"):
        open_store(database)


def test_the_migrations_make_the_schema_of_the_code(database: str) -> None:
    """A column that was added to only one of the two is noticed here."""
    engine = engine_of(database)

    migrate(engine, "of the test")

    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_commits_reach_the_disk_before_they_are_acknowledged(tmp_path: Path) -> None:
    """synchronous=FULL in WAL mode syncs at every commit; NORMAL would not."""
    with open_store(sqlite(tmp_path)) as store, store._database.engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
