"""What only the embedded back end promises: several processes, kill -9, space, a full store."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from teacup.storage.backends.lmdb.store import LmdbStore
from teacup.storage.backends.opening import open_backend
from teacup.storage.errors import StorageConfigInvalid, StorageUnavailable
from teacup.storage.model import Item, Keep, Namespace, Status
from tests.teacup.storage.backends import lmdb_process
from tests.teacup.storage.backends.lmdb_process import NOW, SPACE, numbered
from tests.teacup.storage.backends.model_machine import statuses
from tests.teacup.storage.stores import opened

ROOT = Path(__file__).parents[5]
LATER = NOW + 3_700_000
"""When everything that these tests write has expired."""
ALL = Namespace("all", Keep.ALL, 3)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lmdb://{tmp_path / 'store'}"


@contextmanager
def lmdb_store(url: str, *spaces: Namespace) -> Iterator[LmdbStore]:
    with opened(lambda *names: open_backend(url, names), *spaces) as store:
        assert isinstance(store, LmdbStore)
        yield store


@contextmanager
def writer(url: str, first: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that writes items one by one."""
    command = [sys.executable, "-m", lmdb_process.__name__, url, str(first), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def wide(first: int, count: int) -> list[Item]:
    """Makes items of a page each."""
    return [Item(number.to_bytes(8), NOW, b"", bytes(3_000), NOW + 3_600_000) for number in range(first, first + count)]


def test_several_processes_write_one_store(url: str):
    """And this one reads, while it has the store open, what they have written."""
    with lmdb_store(url, SPACE) as store:
        with writer(url, 0, 200) as first, writer(url, 1_000, 200) as second:
            acknowledged = [int(line) for process in (first, second) for line in process.communicate()[0].split()]
        found = store.read(SPACE, [numbered(number).key for number in acknowledged], NOW)

    assert sorted(acknowledged) == [*range(200), *range(1_000, 1_200)]
    assert [result.items for result in found] == [(numbered(number),) for number in acknowledged]


def test_nothing_acknowledged_is_lost_when_a_writer_is_killed(url: str):
    """kill -9 in the middle of writing; the store opens, is whole, and takes further writes at once."""
    with lmdb_store(url, SPACE) as store:
        for first in (0, 1_000_000, 2_000_000):
            with writer(url, first, 1_000_000) as process:
                assert process.stdout is not None
                acknowledged = [int(process.stdout.readline()) for _ in range(150)]
                process.kill()
                acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]

            found = store.read(SPACE, [numbered(number).key for number in acknowledged], NOW)
            assert [result.items for result in found] == [(numbered(number),) for number in acknowledged]
            assert statuses(store.write(SPACE, [numbered(first + 999_999)], NOW)) == [Status.OK]


def test_a_store_with_changing_content_does_not_grow(url: str, tmp_path: Path):
    """Writes purge what has expired, so that the file stays as large as what lives at a time."""
    sizes = []
    with lmdb_store(url, SPACE) as store:
        for turn in range(12):
            now = NOW + turn * 60_000
            for first in range(0, 2_000, 500):
                keys = [os.urandom(8) for _ in range(500)]
                store.write(SPACE, [Item(key, now + first, b"", bytes(300), now + 60_000) for key in keys], now)
            sizes.append((tmp_path / "store" / "data.mdb").stat().st_size)

    assert sizes[-1] < 1.5 * sizes[3]


def test_purge_frees_a_bounded_number_of_keys(url: str):
    """And only what has expired; then nothing is left to do."""
    with lmdb_store(url, SPACE) as store:
        for first in range(0, 2_000, 100):
            store.write(SPACE, [numbered(number) for number in range(first, first + 100)], NOW)

        nothing = store.purge(NOW, 10_000)
        some = store.purge(LATER, 500)
        rest = store.purge(LATER, 10_000)
        found = store.read(SPACE, [numbered(number).key for number in range(2_000)], NOW)

    assert nothing == 0
    assert 500 <= some < 800
    assert some + rest == 2_000
    assert set(statuses(found)) == {Status.NOT_FOUND}
    assert not store_keeps(url)


def store_keeps(url: str) -> bool:
    """Tells whether anything at all is left, also of the index."""
    with lmdb_store(url, SPACE) as store, store._env.begin() as txn:
        opened_space = store._opened[SPACE]
        return any(txn.stat(database)["entries"] for database in (opened_space.items, opened_space.expiries))


def test_purge_leaves_what_was_written_again_or_lives_longer(url: str):
    """A key is named by the index for each of its items."""
    short, long = Item(b"k", 1, b"", b"short", NOW + 1_000), Item(b"k", 2, b"", b"long", NOW + 100_000)
    with lmdb_store(url, SPACE, ALL) as store:
        for space in (SPACE, ALL):
            store.write(space, [short, long], NOW)
            store.purge(NOW + 60_000, 10_000)

            assert store.read(space, [b"k"], NOW)[0].items == (long,)

        store.purge(NOW + 200_000, 10_000)
    assert not store_keeps(url)


@pytest.mark.parametrize("batch", [1, 7, 200])
def test_a_full_store_answers_and_recovers_when_items_expire(url: str, batch: int):
    """`retryable` with the remedy, in requests of any size; reads continue, and expired items make room again."""
    with lmdb_store(f"{url}?map_size=8MiB", SPACE) as store:
        outcomes = []
        first = 0
        while not outcomes or outcomes[0].status is Status.OK:
            outcomes = store.write(SPACE, wide(first, batch), NOW)
            first += batch
        found = store.read(SPACE, [wide(0, 1)[0].key], NOW)
        again = store.write(SPACE, wide(first, batch), NOW)

        after = [store.write(SPACE, [numbered(number)], LATER - 200_000)[0] for number in range(3)]
        late = [store.write(SPACE, [later(number)], LATER)[0].status for number in range(60)]

    assert set(statuses(outcomes)) == {Status.RETRYABLE}
    assert "map_size" in str(outcomes[0].reason)
    assert set(statuses(again)) == {Status.RETRYABLE}
    assert statuses(found) == [Status.OK]
    assert {outcome.status for outcome in after} <= {Status.OK, Status.RETRYABLE}
    assert late[-1] is Status.OK


def test_a_store_that_is_full_is_not_ready(url: str):
    """Nor is one on a full disk, while its own file still has room; both answer reads."""
    with lmdb_store(f"{url}?map_size=8MiB", SPACE) as store:
        store.write(SPACE, wide(0, 1), NOW)
        store.check(SPACE, NOW)
        most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, most[1]))
        try:
            with pytest.raises(StorageUnavailable, match=r"disk of .* is full"):
                store.check(SPACE, NOW)
            with pytest.raises(StorageUnavailable, match=r"disk of .* is full"):
                store.write(SPACE, wide(1, 200), NOW)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, most)
        store.check(SPACE, NOW)

        first = 1
        while store.write(SPACE, wide(first, 1), NOW)[0].status is Status.OK:
            first += 1
        with pytest.raises(StorageUnavailable, match="map_size"):
            store.check(SPACE, NOW)
        found = store.read(SPACE, [wide(0, 1)[0].key], NOW)

    assert statuses(found) == [Status.OK]


def later(number: int) -> Item:
    return Item(number.to_bytes(8), LATER, b"", bytes(3_000), LATER + 60_000)


def test_a_larger_map_size_makes_room(url: str):
    """The remedy that a full store names."""
    with lmdb_store(f"{url}?map_size=8MiB", SPACE) as store:
        first = 0
        while store.write(SPACE, wide(first, 100), NOW)[0].status is Status.OK:
            first += 100

    with lmdb_store(f"{url}?map_size=16MiB", SPACE) as store:
        outcomes = store.write(SPACE, wide(first, 100), NOW)

    assert set(statuses(outcomes)) == {Status.OK}


def test_a_wiped_store_has_another_generation(url: str, tmp_path: Path):
    """The next opening recreates it."""
    with lmdb_store(url, SPACE) as store:
        before = store.state(SPACE, NOW)
    shutil.rmtree(tmp_path / "store")

    with lmdb_store(url, SPACE) as store:
        after = store.state(SPACE, NOW)

    assert before.generation != after.generation


def test_a_store_that_is_removed_under_the_server_is_noticed(url: str, tmp_path: Path):
    """Rather than writing into a file that nobody will ever find."""
    with lmdb_store(url, SPACE) as store:
        shutil.rmtree(tmp_path / "store")
        with pytest.raises(StorageUnavailable):
            store.write(SPACE, [numbered(1)], NOW)

        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "data.mdb").write_bytes(b"")
        with pytest.raises(StorageUnavailable, match="was replaced: start"):
            store.read(SPACE, [b"k"], NOW)


def test_what_is_not_a_store_is_not_opened(tmp_path: Path):
    """The folder is named."""
    (tmp_path / "data.mdb").write_bytes(b"something else" * 1_000)

    with pytest.raises(StorageUnavailable, match=str(tmp_path)):
        open_backend(f"lmdb://{tmp_path}", [])


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mongodb://localhost", "lmdb:, aerospike:, redis:, rediss:"),
        ("/var/lib/store", "back ends are"),
        ("lmdb://var/lib/store", "three slashes"),
        ("lmdb:///", "three slashes"),
        ("lmdb:///x?map_size=big", "map_size 'big'"),
        ("lmdb:///x?map_size=0", "map_size '0'"),
        ("lmdb:///x?sync=maybe", "yes or no"),
        ("lmdb:///x?size=1", r"unknown option 'size': did you mean map_size\?"),
        ("aerospike://host/namespace", "host:3000"),
        ("aerospike://host:3000", "host:3000"),
        ("aerospike://host:3000/a?b=c", "unknown option 'b': allowed: none"),
        ("redis://host/name", "redis://host:6379/0"),
        ("redis://:6379/0", "redis://host:6379/0"),
        ("redis://host:1,other:2/0", "redis://host:6379/0"),
        ("redis://host:port/0", "cannot be read; percent-encode"),
        ("redis://host?timeout_s=soon", "timeout_s 'soon' is not a number of seconds; write timeout_s=5"),
        ("redis://host?timeout_s=nan", "timeout_s=5"),
        ("redis://host?timeout_s=0", "timeout_s=5"),
        ("redis://host?timeout=5", r"did you mean timeout_s\?"),
        ("redis://host?sync=always", "yes or no"),
        ("redis://host?ca_bundle=/x", r"\['ca_bundle'\] are for TLS: write rediss:"),
        ("rediss://host?ca_bundle=/nowhere/ca.pem", "ca_bundle '/nowhere/ca.pem' is not a file"),
    ],
)
def test_a_wrong_url_is_refused_before_anything_is_opened(url: str, words: str):
    """With what would be right."""
    with pytest.raises(StorageConfigInvalid, match=words):
        open_backend(url, [])


@pytest.mark.parametrize(
    "url",
    ["redis://me:secret@host/x", "mongodb://me:secret@host", "lmdb://me:secret@host/x", "aerospike://me:secret@h/n"],
)
def test_no_message_shows_a_password(url: str):
    """Though it names the URL."""
    with pytest.raises(StorageConfigInvalid, match=r"me:\*\*\*@") as raised:
        open_backend(url, [])

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "password", ["secret#x", "secret/x", "x?secret", "a[secret]", "a[secret", "secret\u2100", "é#secret"]
)
@pytest.mark.parametrize("scheme", ["redis", "rediss", "aerospike"])
def test_a_password_that_is_not_percent_encoded_is_not_shown_either(scheme: str, password: str):
    """It may be what cannot be read; what to do is said."""
    with pytest.raises(StorageConfigInvalid, match="percent-encode") as raised:
        open_backend(f"{scheme}://me:{password}@127.0.0.1:1/0", [])

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("sync", ["yes", "no"])
def test_a_store_that_was_open_when_the_machine_went_down_is_refused(url: str, tmp_path: Path, sync: str):
    """As a mark of another boot shows; with the remedy, and for either setting of sync."""
    open_backend(url, [SPACE]).close()
    (tmp_path / "store" / "unsynced" / "another-boot.1").touch()

    with pytest.raises(StorageUnavailable, match=r"machine went down .*Remove"):
        open_backend(f"{url}?sync={sync}", [SPACE])


def test_closing_leaves_no_mark_behind_and_opening_removes_those_of_killed_processes(url: str, tmp_path: Path):
    """But not those of living ones."""
    marks = tmp_path / "store" / "unsynced"
    with lmdb_store(url, SPACE), writer(url, 0, 1_000_000) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with_both = len(list(marks.iterdir()))
        process.kill()
        process.wait()
        killed = len(list(marks.iterdir()))
        with writer(url, 0, 1) as third:
            third.communicate()
        only_this = len(list(marks.iterdir()))

    assert (with_both, killed, only_this) == (2, 2, 1)
    assert not list(marks.iterdir())


def test_a_store_opened_to_wait_for_the_disk_has_no_mark(url: str, tmp_path: Path):
    """A power failure does not harm it."""
    with lmdb_store(f"{url}?sync=yes", SPACE) as store:
        assert statuses(store.write(SPACE, [numbered(1)], NOW)) == [Status.OK]

        assert not (tmp_path / "store" / "unsynced").exists()
