"""How many mixed reads per second does the Data Delay API answer while collectors submit?

    python -m benchmarks.delay_api [--seconds 5] [--topics 20] [--connections 16]

One server process as users run it (SQLite on the disk, tokens, limits) and one client process on the same cores; the
client speaks HTTP/1.1 over kept connections with its own code, so that it costs little. The mix is that of a gate, a
page and Prometheus: of 100 reads 80 are of one delay, 12 of a history of 100 points, 6 of the list of all, 2 of
/metrics; ten submissions per second run beside them. Two ratios: to the promised 1,000 per second, and to /livez of the
same server through the same client, which is the limit of the framework. The server's CPU time per request is printed
as well, because it hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.servers import TOKEN, running_server
from datadelay.api.config import WRITE_TOKEN_VARIABLE
from datadelay.client import DelayClient
from datadelay.model import PartitionReport, Submission
from teacup.base.now import wall_ms

PROMISED_PER_S = 1_000
CONSUMER = "feeder"
PARTITIONS = 100
HISTORY = 100
SERVE = """
import sys
from datadelay.api.app import DelayServeConfig, serve
port, database = sys.argv[1:]
serve(DelayServeConfig(database=database, port=int(port), requests_per_s=10**6, burst=10**6))
"""


@contextmanager
def running_delay_api(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """Starts a Data Delay API with its database in `folder`; yields its port and its process once it answers."""
    with running_server(SERVE, WRITE_TOKEN_VARIABLE, f"sqlite:///{folder / 'delay.db'}") as (port, process):
        with DelayClient(f"http://127.0.0.1:{port}", TOKEN, retries=12) as client:
            client.list()
        yield port, process


def submission(topic: str, time_ms: int, position: int) -> Submission:
    """Returns what a collector submits for a topic of a hundred partitions that is five seconds behind."""
    value_ms = time_ms - 5_000
    partitions = tuple(PartitionReport(number, position, value_ms + number) for number in range(PARTITIONS))
    return Submission(
        consumer=CONSUMER,
        topic=topic,
        listed_ms=time_ms,
        consumed_until_ms=value_ms,
        partitions=partitions,
        generation="first",
    )


def request(path: str) -> bytes:
    """Returns a complete request, ready to be sent."""
    return f"GET {path} HTTP/1.1\r\nHost: delay\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


def mix(topics: Sequence[str], choose: random.Random) -> bytes:
    """Returns a read, chosen by the weights of the mix."""
    delay = f"/v1/delays/{CONSUMER}/{choose.choice(topics)}"
    paths = [delay, f"{delay}/history?limit={HISTORY}", "/v1/delays", "/metrics"]
    return request(choose.choices(paths, weights=(80, 12, 6, 2))[0])


async def read_until(port: int, requests: Sequence[bytes], deadline_s: float, taken_s: list[float]) -> int:
    """Sends the requests in turn over one connection, until the deadline; returns the bytes received."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received, number = 0, 0
    while (begin_s := time.perf_counter()) < deadline_s:
        writer.write(requests[number % len(requests)])
        number += 1
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"unexpected answer: {head[:200]!r}")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n", 1)[0])
        received += len(head) + len(await reader.readexactly(length))
        taken_s.append(time.perf_counter() - begin_s)
    writer.close()
    return received


async def submit_beside(url: str, topics: Sequence[str], deadline_s: float) -> int:
    """Makes ten submissions per second, as the collectors of cron do; returns their number."""
    position = 10_000
    with DelayClient(url, TOKEN) as client:
        while time.perf_counter() < deadline_s:
            position += 1
            now_ms = wall_ms()
            topic = topics[position % len(topics)]
            await asyncio.to_thread(client.submit, submission(topic, now_ms, position))
            await asyncio.sleep(0.1)
    return position - 10_000


async def measure(
    name: str,
    server: psutil.Process,
    port: int,
    plans: Sequence[Sequence[bytes]],
    topics: Sequence[str],
    seconds: float,
) -> float:
    """Measures requests per second, with one connection per plan."""
    taken_s: list[float] = []
    cpu_s = sum(server.cpu_times()[:2])
    begin_s = time.perf_counter()
    deadline_s = begin_s + seconds
    submitted, *received = await asyncio.gather(
        submit_beside(f"http://127.0.0.1:{port}", topics, deadline_s),
        *(read_until(port, plan, deadline_s, taken_s) for plan in plans),
    )
    per_s = len(taken_s) / (time.perf_counter() - begin_s)
    cpu_s = sum(server.cpu_times()[:2]) - cpu_s
    taken_s.sort()
    p50, p99 = (1000 * taken_s[int(len(taken_s) * part)] for part in (0.5, 0.99))
    print(
        f"{name:12} {per_s:8,.0f} requests/s  {1e6 * cpu_s / len(taken_s):5.0f} us of CPU each  "
        f"p50 {p50:5.1f} ms  p99 {p99:5.1f} ms  "
        f"{sum(received) / len(taken_s) / 1000:6.1f} kB per answer  {submitted} submissions beside"
    )
    return per_s


def main() -> None:
    """Starts a server, fills it, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    topics = [f"topic-{number}" for number in range(options.topics)]
    choose = random.Random(1)
    with tempfile.TemporaryDirectory() as folder, running_delay_api(Path(folder)) as (port, process):
        fill(f"http://127.0.0.1:{port}", topics)
        bare = [[request("/livez")]] * options.connections
        mixed = [[mix(topics, choose) for _ in range(2_000)] for _ in range(options.connections)]
        bare_per_s = asyncio.run(measure("/livez", process, port, bare, topics, options.seconds))
        mixed_per_s = asyncio.run(measure("mixed reads", process, port, mixed, topics, options.seconds))
    print(
        f"ratio to the promised {PROMISED_PER_S:,}: {mixed_per_s / PROMISED_PER_S:.2f}; "
        f"to /livez: {mixed_per_s / bare_per_s:.2f}"
    )
    print(json.dumps({"mixed_reads_per_s": round(mixed_per_s), "livez_per_s": round(bare_per_s)}))


def fill(url: str, topics: Sequence[str]) -> None:
    """Gives every topic a history of a hundred points."""
    begin_ms = wall_ms() - 3_600_000
    with DelayClient(url, TOKEN) as client:
        for topic in topics:
            for number in range(HISTORY):
                client.submit(submission(topic, begin_ms + number * 30_000, number))


if __name__ == "__main__":
    main()
