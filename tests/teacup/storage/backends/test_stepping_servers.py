"""The clock of a Redis or Aerospike server itself steps by two hours: it is named, and what was stored is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from teacup.base.now import wall_ms
from teacup.storage.backends.opening import open_backend
from teacup.storage.errors import StorageUnavailable
from teacup.storage.model import Item, Keep, Status
from tests.support.aerospike_server import NAMESPACE, NEEDS_ASD, AerospikeProcess, aerospike_process
from tests.support.clocks import HOUR_MS, STEP_MS
from tests.support.redis_server import redis_process
from tests.support.stepping import SteppingClock
from tests.teacup.storage.stores import namespace

pytestmark = pytest.mark.slow


@contextmanager
def server(kind: str, folder: Path, clock: SteppingClock) -> Iterator[tuple[str, AerospikeProcess | None]]:
    """The URL of a store whose server has this clock; and the server of Aerospike."""
    if kind == "redis":
        with redis_process(folder, clock.environment) as process:
            yield process.url(), None
    else:
        with aerospike_process(folder, environment=clock.environment) as node:
            yield node.url, node


@pytest.mark.parametrize("off_ms", [-STEP_MS, STEP_MS])
@pytest.mark.parametrize("kind", ["redis", pytest.param("aerospike", marks=NEEDS_ASD)])
def test_a_server_whose_clock_steps_is_named_and_keeps_what_it_acknowledged(
    tmp_path: Path, kind: str, off_ms: int
) -> None:
    """Its state is refused meanwhile. Aerospike takes writes, and frees them two hours early: not before their end."""
    clock, space = SteppingClock(tmp_path), namespace(Keep.ALL, 9, HOUR_MS)

    def item(key: bytes) -> Item:
        at_ms = wall_ms()
        return Item(key, at_ms, b"", b"v", at_ms + HOUR_MS)

    with server(kind, tmp_path / "server", clock) as (url, node):
        store = open_backend(url, [space])
        try:
            generation = store.state(space, wall_ms()).generation
            taken = [b"before"]
            assert store.write(space, [item(b"before")], wall_ms())[0].status is Status.OK
            clock.set(off_ms // 1_000)
            with pytest.raises(StorageUnavailable, match=r"clock differs by -?7\d\d\d s"):
                store.state(space, wall_ms())
            (outcome,) = store.write(space, [item(b"during")], wall_ms())
            assert outcome.status is (Status.IN_DOUBT if node is None else Status.OK)
            if node is not None:
                taken.append(b"during")
            clock.set(0)
            state = store.state(space, wall_ms())
            found = store.read(space, taken, wall_ms())
            if node is not None:
                with node.client() as client:
                    _, about = client.exists((NAMESPACE, space.name, bytearray(taken[-1])))
                assert about["ttl"] * 1_000 > HOUR_MS - 60_000
        finally:
            store.close()

    assert [result.status for result in found] == [Status.OK] * len(taken)
    assert state.generation == generation
