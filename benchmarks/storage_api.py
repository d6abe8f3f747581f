"""How many keys per second does the storage API read and write, with its embedded store?

    python -m benchmarks.storage_api [--seconds 4] [--processes 2] [--workers 2] [--records 200000]

The server as users run it (LMDB on the disk, tokens, limits) and a pool of client processes on the same cores; requests
of 1,000 keys of 16 bytes with 150-byte values, chosen at random from what is stored, all found. Reads and writes as a
join and a feeder make them (columns); reads as plain data in Arrow and in JSON, for the ratio; the latency of reads at
half the promised rate, counted from when a read was due; and reads again with ten times as many records stored. The
server's CPU time per request is printed as well, because it hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from benchmarks.servers import TOKEN, running_server
from teacup.base.now import wall_ms
from teacup.storage.api.config import WRITE_TOKEN_VARIABLE
from teacup.storage.client import StorageClient
from teacup.storage.codecs.codec import Codec
from teacup.storage.codecs.json import JsonCodec

PROMISED_READ_PER_S = 150_000
PROMISED_WRITTEN_PER_S = 80_000
PROMISED_P99_MS = 50
PROMISED_LOSS = 0.2
NAMESPACE = "right"
KEYS = 1_000
VALUE_BYTES = 150
SERVE = """
import sys
from teacup.storage.api.serve import StorageServeConfig, serve
port, store, workers = sys.argv[1:]
namespace = {"name": "right", "keep": "all", "bound": 4}
serve(StorageServeConfig(store=store, port=int(port), workers=int(workers), namespaces=[namespace]))
"""


def keys_of(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Makes keys of 16 bytes, spread over the store: keys that arrive together are not adjacent in it."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words = np.stack([mixed.byteswap(), numbers.astype(np.uint64)], axis=1)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(numbers), [None, pa.py_buffer(words.tobytes())])


def items_of(numbers: npt.NDArray[np.int64], expires_at_ms: int) -> pa.Table:
    values = np.random.default_rng(int(numbers[0])).integers(0, 256, (len(numbers), VALUE_BYTES), np.uint8)
    value = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(VALUE_BYTES), len(numbers), [None, pa.py_buffer(values.tobytes())]
    )
    expiries = np.full(len(numbers), expires_at_ms)
    return pa.table({"key": keys_of(numbers), "version": numbers, "value": value, "expires_at_ms": expiries})


@dataclass(frozen=True)
class Work:
    """What a client process does until the deadline, or once for its share of `first` to `last`.

    kind       read, plain, json, write
    every_s    the seconds between due requests; 0: each follows the previous one at once
    """

    kind: str
    url: str
    number: int
    processes: int
    seconds: float
    first: int
    last: int
    every_s: float = 0.0


def client_process(work: Work) -> tuple[int, list[float]]:
    """Sends requests; returns the number of keys, and the seconds of each request from when it was due."""
    codec: Codec | None = JsonCodec() if work.kind == "json" else None
    choose = np.random.default_rng(work.number)
    expires_at_ms = wall_ms() + 3_600_000
    taken_s: list[float] = []
    with StorageClient(work.url, TOKEN, codec=codec) as client:
        tables: Iterator[pa.Table] = (
            items_of(np.arange(first, min(first + KEYS, work.last)), expires_at_ms)
            for first in range(work.first + work.number * KEYS, work.last, work.processes * KEYS)
        )
        batches = [keys_of(choose.integers(work.first, work.last, KEYS)) for _ in range(50)]
        plain = [batch.to_pylist() for batch in batches]
        calls: dict[str, Callable[[int], object]] = {
            "read": lambda n: client.read_columns(NAMESPACE, batches[n % 50]).items.num_rows,
            "plain": lambda n: len(client.read(NAMESPACE, plain[n % 50])),
            "json": lambda n: len(client.read(NAMESPACE, plain[n % 50])),
            "write": lambda _: KEYS - client.write_table(NAMESPACE, next(tables)).num_rows,
        }
        call = calls[work.kind]
        begun_s = time.perf_counter()
        while (now_s := time.perf_counter()) < begun_s + work.seconds:
            due_s = begun_s + (len(taken_s) + work.number / work.processes) * work.every_s if work.every_s else now_s
            time.sleep(max(0.0, due_s - now_s))
            try:
                done = call(len(taken_s))
            except StopIteration:
                break
            if done != KEYS:
                raise RuntimeError(f"{work.kind}: {done} of {KEYS} keys")
            taken_s.append(time.perf_counter() - due_s)
    return KEYS * len(taken_s), taken_s


class Bench:
    """Measures a server with a pool of client processes."""

    def __init__(self, url: str, server: psutil.Process, processes: int) -> None:
        self._url = url
        self._server = server
        self._processes = processes
        self._pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
        self.run("read", 0.0, 0, KEYS, printed=False)  # imports

    def run(
        self, kind: str, seconds: float, first: int, last: int, keys_per_s: float = 0.0, printed: bool = True
    ) -> tuple[float, float]:
        """Returns the keys per second, and the 99th percentile in milliseconds."""
        every_s = KEYS * self._processes / keys_per_s if keys_per_s else 0.0
        works = [
            Work(kind, self._url, number, self._processes, seconds, first, last, every_s)
            for number in range(self._processes)
        ]
        cpu_s, begun_s = self._cpu_s(), time.perf_counter()
        answers = list(self._pool.map(client_process, works))
        wall_s, cpu_s = time.perf_counter() - begun_s, self._cpu_s() - cpu_s
        taken_ms = 1000 * np.array([request_s for _, taken_s in answers for request_s in taken_s] or [0.0])
        per_s = sum(keys for keys, _ in answers) / wall_s
        p50, p99 = np.percentile(taken_ms, [50, 99])
        if printed:
            print(
                f"{kind:6} {per_s:9,.0f} keys/s  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  "
                f"{1000 * cpu_s / len(taken_ms):5.2f} ms of the server's CPU per request",
                flush=True,
            )
        return per_s, float(p99)

    def _cpu_s(self) -> float:
        processes = [self._server, *self._server.children(recursive=True)]
        return float(sum(sum(process.cpu_times()[:2]) for process in processes))

    def close(self) -> None:
        self._pool.shutdown()


@contextmanager
def running_storage_api(workers: int) -> Iterator[tuple[str, psutil.Process]]:
    """Starts a storage API; yields its URL and its process once it answers."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"lmdb://{Path(folder) / 'store'}"
        with running_server(SERVE, WRITE_TOKEN_VARIABLE, store, str(workers)) as (port, process):
            url = f"http://127.0.0.1:{port}"
            with StorageClient(url, TOKEN, attempts=30) as client:
                client.namespace(NAMESPACE)
            yield url, process


def main() -> None:
    """Starts a server, fills it, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--records", type=int, default=200_000)
    options = parser.parse_args()
    seconds, few, many = options.seconds, options.records, 10 * options.records
    with running_storage_api(options.workers) as (url, server):
        bench = Bench(url, server, options.processes)
        try:
            written, _ = bench.run("write", 600.0, 0, few)
            read, _ = bench.run("read", seconds, 0, few)
            plain, _ = bench.run("plain", seconds, 0, few)
            as_json, _ = bench.run("json", seconds, 0, few)
            print("reads at half the promised rate:")
            _, p99_ms = bench.run("read", seconds, 0, few, PROMISED_READ_PER_S / 2)
            print(f"{many:,} records stored:")
            bench.run("write", 600.0, few, many)
            read_many, _ = bench.run("read", seconds, 0, many)
        finally:
            bench.close()
    loss = 1 - read_many / read
    print(f"read: {read / PROMISED_READ_PER_S:.2f} of the promised {PROMISED_READ_PER_S:,} keys/s")
    print(f"written: {written / PROMISED_WRITTEN_PER_S:.2f} of the promised {PROMISED_WRITTEN_PER_S:,} keys/s")
    print(f"p99 at half load: {p99_ms:.1f} ms of the allowed {PROMISED_P99_MS} ms")
    print(f"Arrow to JSON: {plain / as_json:.1f} as plain data, {read / as_json:.1f} in columns")
    print(f"ten times more records: {loss:.0%} of the read rate lost, {PROMISED_LOSS:.0%} allowed")
    figures = {"read_per_s": read, "written_per_s": written, "json_per_s": as_json, "read_of_many_per_s": read_many}
    print(json.dumps({name: round(value) for name, value in figures.items()} | {"p99_ms": round(p99_ms, 1)}))


if __name__ == "__main__":
    main()
