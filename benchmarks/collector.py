"""How long does a run of the collector take over 1,000 partitions in 10 topics?

    python -m benchmarks.collector [--topics 10] [--partitions 100] [--runs 5]

A broker, a Data Delay API and a consumer group in the middle of every partition, on the same cores. Three things are
timed: the run itself (`datadelay.collector.run.run`, including submissions, the median of several), the command as cron
starts it (including Python's start), and the same observation of one partition after another, with connections kept
open, over a sample. Bytes are those that TCP received from the broker in one observation of everything: look-ups of
ends and positions, metadata and the record batches.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import yaml
from confluent_kafka import Producer

from benchmarks.commandline import broker_and_folder
from benchmarks.delay_api import running_delay_api
from benchmarks.servers import TOKEN
from benchmarks.workload import create_topics
from datadelay.collector.config import CollectorConfig
from datadelay.collector.observe import observe
from datadelay.collector.reports import Rules
from datadelay.collector.run import run
from datadelay.positions.group import ConsumerGroup
from teacup.base.now import wall_ms
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import GroupOffsets

PROMISED_S = 3.0
PROMISED_RATIO = 10
RECORDS = 200  # per partition, in two batches; the position is in the middle
SAMPLE = 60  # partitions observed one after another
GROUP = "feeder"
_TCP_BYTES_RECEIVED = 128  # its offset in Linux's struct tcp_info


def fill(kafka: dict[str, str], topics: list[str], partitions: int) -> None:
    """Creates the topics, writes to every partition, and puts the group in the middle of each."""
    create_topics(kafka["bootstrap.servers"], topics, partitions=partitions)
    producer = Producer({**kafka, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    now_ms = wall_ms()
    for half in range(2):
        for topic in topics:
            for number in range(partitions):
                for record in range(RECORDS // 2):
                    producer.produce(topic, b"v" * 150, partition=number, timestamp=now_ms - 1_000 + 10 * half + record)
            producer.poll(0)
        if producer.flush(120):
            raise RuntimeError("the broker did not take all records")
    group = GroupOffsets(GROUP, kafka)
    for topic in topics:
        group.commit({(topic, number): RECORDS // 2 for number in range(partitions)})


def received(port: int) -> int:
    """Returns how many bytes this process's open connections have received from a port."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.type == socket.SOCK_STREAM and connection.getpeername()[1] == port:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
                    total += struct.unpack_from("Q", info, _TCP_BYTES_RECEIVED)[0]
        except OSError:
            continue  # closed meanwhile, or not TCP
    return total


def bytes_of_one_observation(kafka: dict[str, str], topics: list[str], port: int) -> int:
    """Looks at everything once, with the connections left open until they have been counted."""
    before = received(port)
    positions = ConsumerGroup(GROUP, kafka)
    logs = [BrokerLog(topic, kafka) for topic in topics]
    for log in logs:
        observe(log, positions, Rules(), wall_ms)
    total = received(port) - before
    for log in logs:
        log.close()
    positions.close()
    return total


def one_after_another_s(kafka: dict[str, str], topics: list[str]) -> float:
    """Returns the seconds per partition when topics of one partition are observed (`observe`) one after the other.

    Connections are open: each topic was observed once before.
    """
    positions = ConsumerGroup(GROUP, kafka)
    logs = [BrokerLog(topic, kafka) for topic in topics]
    for attempt in range(2):
        begun = time.perf_counter()
        for log in logs:
            seen = observe(log, positions, Rules(), wall_ms)
            if not seen.partitions[0].unread_ms:
                raise RuntimeError(f"attempt {attempt}: no unread record was found in {log.topic}: {seen.partitions}")
        taken = time.perf_counter() - begun
    for log in logs:
        log.close()
    positions.close()
    return taken / len(logs)


def measure(kafka: dict[str, str], port: int, url: str, folder: Path, asked: argparse.Namespace) -> None:
    topics = [f"topic-{number}" for number in range(asked.topics)]
    count = asked.topics * asked.partitions
    begun = time.perf_counter()
    fill(kafka, topics, asked.partitions)
    print(f"made {count} partitions in {time.perf_counter() - begun:.1f} s")
    path = folder / "collector.yaml"
    consumer = {"consumer": "feeder", "positions": {"from": "group", "group": GROUP}}
    path.write_text(
        yaml.safe_dump(
            {
                "api": {"url": url, "token": TOKEN},
                "kafka": kafka,
                "lock_file": str(folder / "lock"),
                "consumers": [{**consumer, "topics": [{"topic": topic} for topic in topics]}],
            }
        )
    )
    config = CollectorConfig.load(path)
    times: list[float] = []
    for _ in range(asked.runs):
        begun = time.perf_counter()
        code = run(config)
        times.append(time.perf_counter() - begun)
        if code != 0:
            raise RuntimeError(f"the run ended with {code}")
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "deploy.cli", "delay", "collect", str(path)], check=True)
    command_s = time.perf_counter() - begun
    fetched = bytes_of_one_observation(kafka, topics, port)
    single = [f"single-{number}" for number in range(SAMPLE)]
    fill(kafka, single, 1)
    each_s = one_after_another_s(kafka, single)
    run_s = median(times)
    ratio = each_s * count / run_s
    print(f"a run              {run_s:8.2f} s     {count / run_s:8,.0f} partitions/s")
    print(f"all runs           {', '.join(f'{seconds:.2f}' for seconds in times)} s")
    print(f"the command        {command_s:8.2f} s     promised: below {PROMISED_S:g} s")
    print(f"received           {fetched / count:8,.0f} bytes per partition")
    print(f"one after another  {each_s * count:8.2f} s     {1 / each_s:8,.0f} partitions/s")
    print(f"ratio              {ratio:8.1f}       promised: {PROMISED_RATIO} or more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    with broker_and_folder() as (broker, folder), running_delay_api(folder) as (port, _):
        url = f"http://127.0.0.1:{port}"
        measure({"bootstrap.servers": broker.bootstrap}, broker.port, url, folder, asked)


if __name__ == "__main__":
    main()
