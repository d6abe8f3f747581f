"""Both HTTP servers under attack: their memory and their log stay bounded, and their other clients hardly notice.

By themselves they hold out against requests, whoever sends them. Against connections, and what is not yet a request,
they need a proxy in front; slow tests attack them through the real one.

The other clients' latency is compared with that of a server beside, which is not attacked: on a loaded machine both are
slow. Every attack lasts half a second, in which most of the others' calls are quick, or (slow tests) some seconds, in
which all but a hundredth of them are.
"""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attack.attackers import Attackers, attackers
from tests.attack.attacks import OF_BOTH, OF_CONNECTIONS, OF_STORAGE, Attack
from tests.attack.targets import Target, behind_a_proxy, delay_target, storage_target

MEMORY_MAX_BYTES = 300 << 20
LATENCY_MAX_S = 0.250
LOG_MAX_BYTES = 16_384


@dataclass(frozen=True)
class Effort:
    """How long an attack lasts, in seconds and in calls of others; and the part of these that may be slow."""

    attack_s: float
    fewest: int
    slow: float


BRIEF = Effort(0.5, 20, 0.25)
LONG = Effort(2.0, 200, 0.01)  # of fewer than a hundred, the slowest percent is a single call
EFFORTS = [pytest.param(BRIEF, id="brief"), pytest.param(LONG, id="long", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def offenders() -> Iterator[Attackers]:
    """Starts the attackers of all attacks."""
    with attackers() as running:
        yield running


@pytest.fixture(scope="module")
def storages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Target]]:
    """Starts the server that is attacked, and the one beside."""
    folder = tmp_path_factory.mktemp("storage")
    with storage_target(folder / "attacked") as attacked, storage_target(folder / "beside") as beside:
        yield attacked, beside


@pytest.fixture(scope="module")
def delays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Target]]:
    """Starts the server that is attacked, and the one beside."""
    folder = tmp_path_factory.mktemp("delay")
    with delay_target(folder / "attacked") as attacked, delay_target(folder / "beside") as beside:
        yield attacked, beside


@pytest.mark.parametrize("effort", EFFORTS)
def test_the_storage_api_holds(storages: tuple[Target, Target], offenders: Attackers, effort: Effort) -> None:
    """With default limits."""
    assert_holds(*storages, offenders, [*OF_BOTH, *OF_STORAGE], effort)


@pytest.mark.parametrize("effort", EFFORTS)
def test_the_data_delay_api_holds(delays: tuple[Target, Target], offenders: Attackers, effort: Effort) -> None:
    """With default limits."""
    assert_holds(*delays, offenders, OF_BOTH, effort)


@pytest.mark.slow
@pytest.mark.parametrize("attacks", [[*OF_BOTH, *OF_STORAGE], OF_CONNECTIONS], ids=["requests", "connections"])
def test_the_storage_api_holds_behind_the_proxy(
    storages: tuple[Target, Target], offenders: Attackers, attacks: list[Attack], tmp_path: Path
) -> None:
    """Against everything."""
    with storage_target(tmp_path / "attacked") as attacked, behind_a_proxy(attacked) as proxied:
        assert_holds(proxied, storages[1], offenders, attacks, LONG)


@pytest.mark.slow
@pytest.mark.parametrize("attacks", [OF_BOTH, OF_CONNECTIONS], ids=["requests", "connections"])
def test_the_data_delay_api_holds_behind_the_proxy(
    delays: tuple[Target, Target], offenders: Attackers, attacks: list[Attack], tmp_path: Path
) -> None:
    """Against everything."""
    with delay_target(tmp_path / "attacked") as attacked, behind_a_proxy(attacked) as proxied:
        assert_holds(proxied, delays[1], offenders, attacks, LONG)


def assert_holds(
    attacked: Target, beside: Target, offenders: Attackers, attacks: Sequence[Attack], effort: Effort
) -> None:
    """Asserts that memory, log, and other clients' calls stay within bounds under each attack, but for the load."""
    findings = [finding for attack in attacks for finding in found(attacked, beside, offenders, attack, effort)]

    assert findings == []


def found(attacked: Target, beside: Target, offenders: Attackers, attack: Attack, effort: Effort) -> list[str]:
    """Returns what is beyond its bound under this attack."""
    for process in attacked.processes:
        forget_peak(process)
    logged_before = attacked.log.stat().st_size
    with offenders.at_work(attacked.victim, attack):
        attacked_s, beside_s = slowest_s(attacked, beside, effort)

    assert [process.poll() for process in attacked.processes] == [None] * len(attacked.processes), attack.__name__
    peak = max(map(peak_bytes, attacked.processes))
    logged = attacked.log.stat().st_size - logged_before
    said = (
        f"{attack.__name__}: {peak >> 20} MiB, {logged} bytes logged, {1 - effort.slow:.0%} of calls within "
        f"{1e3 * attacked_s:.0f} ms, of the server beside within {1e3 * beside_s:.0f} ms"
    )
    print(said)
    within = peak < MEMORY_MAX_BYTES and logged < LOG_MAX_BYTES and attacked_s < LATENCY_MAX_S + 2 * beside_s
    return [] if within else [said]


def slowest_s(attacked: Target, beside: Target, effort: Effort) -> tuple[float, float]:
    """Returns what the slow part of the calls of both exceeds; they take turns."""
    ends_s = time.monotonic() + effort.attack_s
    latencies: list[tuple[float, float]] = []
    while time.monotonic() < ends_s or len(latencies) < effort.fewest:
        latencies.append((usual_call_s(attacked), usual_call_s(beside)))
    of_attacked, of_beside = zip(*latencies, strict=True)
    return exceeded_by(of_attacked, effort.slow), exceeded_by(of_beside, effort.slow)


def usual_call_s(target: Target) -> float:
    """Returns the seconds that a call of another client takes, with its connection."""
    begun_s = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", target.victim.port, timeout=60)
    path, token = target.usual
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, answer.status
    return time.perf_counter() - begun_s


def exceeded_by(values: Sequence[float], part: float) -> float:
    """Returns the value that this part of them exceeds."""
    return sorted(values)[-1 - int(len(values) * part)]


def forget_peak(process: subprocess.Popen[bytes]) -> None:
    """Resets the kernel's record of the largest resident size."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def peak_bytes(process: subprocess.Popen[bytes]) -> int:
    """Returns the largest resident size."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return 1024 * int(peak)
