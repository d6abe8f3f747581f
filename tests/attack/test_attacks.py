"""Both HTTP servers under attack: their memory and their log stay bounded, and their other clients hardly notice.

Every attack lasts a few seconds. The other clients' latency is compared with that of a server beside, which is not
attacked: on a loaded machine both are slow.
"""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.attack.attackers import Attackers, attackers
from tests.attack.attacks import OF_BOTH, OF_STORAGE, Attack
from tests.attack.targets import Target, delay_target, storage_target

ATTACK_S = 2.0
MEMORY_MAX_BYTES = 300 << 20
LATENCY_MAX_S = 0.250
LOG_MAX_BYTES = 16_384
FEWEST = 200  # of fewer than a hundred, the slowest percent is a single call


@pytest.fixture(scope="module")
def offenders() -> Iterator[Attackers]:
    """Of all attacks."""
    with attackers() as running:
        yield running


@pytest.fixture(scope="module")
def storages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Target]]:
    """The one that is attacked, and the one beside."""
    folder = tmp_path_factory.mktemp("storage")
    with storage_target(folder / "attacked") as attacked, storage_target(folder / "beside") as beside:
        yield attacked, beside


@pytest.fixture(scope="module")
def delays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Target]]:
    """The one that is attacked, and the one beside."""
    folder = tmp_path_factory.mktemp("delay")
    with delay_target(folder / "attacked") as attacked, delay_target(folder / "beside") as beside:
        yield attacked, beside


@pytest.mark.parametrize("attack", [*OF_BOTH, *OF_STORAGE], ids=lambda attack: attack.__name__)
def test_the_storage_api_holds(storages: tuple[Target, Target], offenders: Attackers, attack: Attack) -> None:
    """With default limits."""
    assert_holds(*storages, offenders, attack)


@pytest.mark.parametrize("attack", OF_BOTH, ids=lambda attack: attack.__name__)
def test_the_data_delay_api_holds(delays: tuple[Target, Target], offenders: Attackers, attack: Attack) -> None:
    """With default limits."""
    assert_holds(*delays, offenders, attack)


def assert_holds(attacked: Target, beside: Target, offenders: Attackers, attack: Attack) -> None:
    """Memory and log below their bounds; the slowest percent of the other clients' calls too, but for the load."""
    forget_peak(attacked.process)
    logged_before = attacked.log.stat().st_size
    with offenders.at_work(attacked.victim, attack):
        attacked_s, beside_s = slowest_s(attacked, beside)

    assert attacked.process.poll() is None
    peak = peak_bytes(attacked.process)
    logged = attacked.log.stat().st_size - logged_before
    print(f"{peak >> 20} MiB, 99 %: {1e3 * attacked_s:.0f} ms, of the server beside {1e3 * beside_s:.0f} ms")
    assert peak < MEMORY_MAX_BYTES
    assert logged < LOG_MAX_BYTES, attacked.log.read_text()[-1_000:]
    assert attacked_s < LATENCY_MAX_S + 2 * beside_s


def slowest_s(attacked: Target, beside: Target) -> tuple[float, float]:
    """The slowest percent of the calls of both, which take turns."""
    ends_s = time.monotonic() + ATTACK_S
    latencies: list[tuple[float, float]] = []
    while time.monotonic() < ends_s or len(latencies) < FEWEST:
        latencies.append((usual_call_s(attacked), usual_call_s(beside)))
    of_attacked, of_beside = zip(*latencies, strict=True)
    return percentile_99(of_attacked), percentile_99(of_beside)


def usual_call_s(target: Target) -> float:
    """The seconds that a call of another client takes, with its connection."""
    begun_s = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", target.victim.port, timeout=20)
    path, token = target.usual
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, answer.status
    return time.perf_counter() - begun_s


def percentile_99(values: Sequence[float]) -> float:
    """The value that a hundredth of them exceed."""
    return sorted(values)[-1 - len(values) // 100]


def forget_peak(process: subprocess.Popen[bytes]) -> None:
    """The kernel's record of the largest resident size starts over."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def peak_bytes(process: subprocess.Popen[bytes]) -> int:
    """The largest resident size."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return 1024 * int(peak)
