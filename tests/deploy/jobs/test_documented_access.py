"""What docs/deploy.md says that brokers must grant, granted to users who log in by SASL_SSL: neither less nor more.

Of each kind of job and each command: without any one operation it ends with 12 and names it; with the row of the table
it works, nothing else is denied, and all of it is asked for. What was asked the broker's authorizer logs. The APIs of
the lookup join are reached by https with a CA of their own and tokens.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from typer.testing import CliRunner

from datadelay.collector.run import collect
from deploy.cli.app import app
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.base.times import iso
from teacup.kafka.grants import Grant
from tests.support import delay_server
from tests.support.accesstable import granted
from tests.support.guarded import Guarded, name_of
from tests.support.jobhere import JobsHere
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN, server_here

pytestmark = pytest.mark.slow

Attempt = Callable[[dict[str, str]], tuple[int, str]]
NOT_NEEDED = "teacup-reader"
"""The group that consumers look for; the documents say so."""
NAMESPACES = [{"name": "right", "keep": "all", "bound": 100, "retention": "1h"}]


@dataclass
class Trial:
    """Tries rows of the table."""

    guarded: Guarded
    here: JobsHere
    folder: Path
    caplog: pytest.LogCaptureFixture

    def of(
        self,
        who: str,
        job: str,
        names: dict[str, str],
        attempt: Attempt,
        *,
        whole: bool = False,
        alike: Collection[str] = (),
        idle: Collection[str] = (),
    ) -> None:
        """Tries one row.

        whole   only the whole row; alike: names of which nothing is taken away; idle: of which not all is asked for
        """
        row = granted(who, job, names)
        user = self.guarded.user("secure")
        if not whole:
            self.guarded.grant(name_of(user), row)
        for grant, operation in () if whole else each(row):
            if grant.name in alike:
                continue
            self.guarded.revoke(name_of(user), grant, operation)
            code, said = attempt(user)
            assert code == ExitCode.ACCESS, (who, str(grant), operation, code, said)
            resource = grant.resource.replace("-", " ")
            named = rf"(lacks|needs) .*?{operation}[^;]* {resource}\w* [^;]*'{re.escape(grant.name)}'"
            assert re.search(named, said), (who, str(grant), operation, said)
            self.guarded.grant(name_of(user), [replace(grant, operations=(operation,))])
        exact = self.guarded.user("secure")
        self.guarded.grant(name_of(exact), row)
        code, said = attempt(exact)
        assert code == ExitCode.DONE, (who, code, said)
        decided = [*self.guarded.asked(name_of(exact))]
        assert {name for allowed, _, name, _ in decided if not allowed} <= {NOT_NEEDED}, (who, decided)
        used = {(resource, name, operation) for allowed, resource, name, operation in decided if allowed}
        unused = [
            (str(grant), operation)
            for grant, operation in each(row)
            if grant.name not in idle
            and not any(
                resource == grant.resource
                and (name.startswith(grant.name) if grant.prefixed else name == grant.name)
                and asked == operation.upper()
                for resource, name, asked in used
            )
        ]
        assert not unused, (who, unused)

    def run(self, content: Callable[[dict[str, str]], dict[str, Any]]) -> Attempt:
        """A job that runs until all is read."""

        def attempt(user: dict[str, str]) -> tuple[int, str]:
            self.caplog.clear()
            code = self.here.run(content(user)).code
            assert code is not None
            return code, "\n".join(self.caplog.messages)

        return attempt

    def command(self, content: Callable[[dict[str, str]], dict[str, Any]], command: str, *options: str) -> Attempt:
        """A command about a job."""

        def attempt(user: dict[str, str]) -> tuple[int, str]:
            path = self.folder / "command.yaml"
            path.write_text(yaml.safe_dump(content(user)))
            done = CliRunner().invoke(app, [command, str(path), *options])
            return done.exit_code, done.output

        return attempt


def each(row: list[Grant]) -> Iterator[tuple[Grant, str]]:
    """Each operation of each grant."""
    return ((grant, operation) for grant in row for operation in grant.operations)


@pytest.fixture
def trial(guarded: Guarded, here: JobsHere, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Trial:
    return Trial(guarded, here, tmp_path, caplog)


def of_keys(guarded: Guarded, *keys: str, partitions: int) -> dict[str, str]:
    """New topics, by keys of a job file."""
    return dict(zip(keys, guarded.topics(*(key.replace(".", "-") for key in keys), partitions=partitions), strict=True))


def puts(begin_ms: int, alone: bytes, partitions: int, count: int = 40) -> list[Put]:
    """Keys that the other side has, too; one that it lacks; and a value that is no JSON."""
    found = [Put(i % partitions, b"k%d" % (i % 6), begin_ms + 1_000 * i, b"{}") for i in range(count)]
    return [*found, Put(0, alone, begin_ms + 1_000 * count, b"{}"), Put(0, b"k0", begin_ms + 1_000 * count, b"{")]


def test_window_join_and_its_commands(trial: Trial, guarded: Guarded, tmp_path: Path) -> None:
    """On the direct and the shuffled path."""
    sides = ("topics.dead_letter", "topics.unmatched", "topics.unjoined")
    names = of_keys(guarded, "left.topic", "right.topic", "output.topic", *sides, partitions=2)
    begin_ms = wall_ms() - 600_000
    for side in ("left", "right"):
        produce(guarded.plain, names[f"{side}.topic"], puts(begin_ms, side.encode(), 2))

    def job(user: dict[str, str], **changes: Any) -> dict[str, Any]:
        return {
            "name": "guarded-window",
            "kind": "window-join",
            "kafka": user,
            "left": {"topic": names["left.topic"], "format": "json"},
            "right": {"topic": names["right.topic"], "format": "json"},
            "join": {"before": "5s"},
            "output": {"topic": names["output.topic"]},
            "topics": {key.removeprefix("topics."): topic for key, topic in names.items() if key in sides},
            "checkpoint": str(tmp_path / "checkpoint"),
            "window_folder": str(tmp_path / "windows"),
            "trigger": "available_now",
            **changes,
        }

    name, written = "guarded-window", [names[key] for key in sides]
    few = {**{key: topic for key, topic in names.items() if not key.startswith("topics.")}}
    times = ("--from", iso(begin_ms), "--to", iso(begin_ms + 100_000))
    trial.of("window-join", name, names, trial.run(job), alike=(name, *written[1:]))
    assert len(records(guarded.plain, names["output.topic"])) == 41
    trial.of("teacup audit", name, names, trial.command(job, "audit", *times), alike=written[1:])
    explain = trial.command(job, "explain", "--left", "0:3")
    trial.of("teacup explain", name, names, explain, alike=written, idle=written)
    for side in ("left", "right"):
        produce(guarded.plain, names[f"{side}.topic"], puts(begin_ms + 60_000, side.encode(), 2, 10))
    trial.of("teacup status of a join", name, few, trial.command(job, "status", "--json"))
    back = ("rewind", "--to", iso(begin_ms + 10_000))
    trial.of("teacup rewind", name, few, trial.command(job, *back, "--written", "keep"))
    assert trial.run(job)(guarded.plain)[0] == ExitCode.DONE

    (into,) = guarded.topics("into", partitions=2)
    beside = {**few, "output.topic": into, "topics.dead_letter": names["topics.dead_letter"]}
    backfill = trial.command(job, *back, "--until", iso(begin_ms + 30_000), "--into", into)
    idle = [names["topics.dead_letter"], "guarded-window.backfill"]
    trial.of("window-join", "guarded-window.backfill", beside, backfill, whole=True, idle=idle)

    for lost in (tmp_path / "windows", *tmp_path.rglob("facts")):
        shutil.rmtree(lost, ignore_errors=True)
    right = (names["right.topic"],)  # the last batch may have read nothing of it

    def moved(user: dict[str, str]) -> dict[str, Any]:
        return job(user, checkpoint=str(tmp_path / "moved"), join={"before": "6s"})

    move = trial.command(moved, "move", "--from", str(tmp_path / "checkpoint"))
    trial.of("teacup move", name, few, move, alike=right, idle=right)

    def shuffled(user: dict[str, str]) -> dict[str, Any]:
        return job(user, name="shuffled", checkpoint=str(tmp_path / "s"), join={"before": "5s", "path": "shuffled"})

    trial.of("window-join", "shuffled", names, trial.run(shuffled), whole=True)


def test_lookup_join_feeder_and_collector(
    trial: Trial, guarded: Guarded, here: JobsHere, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both APIs by https, with a CA that only the job files name."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    tls: dict[str, Any] = {"tls_certificate": tmp_path / "server.pem", "tls_key": tmp_path / "server.key"}
    sides = ("topics.dead_letter", "topics.unmatched", "topics.unjoined")
    names = of_keys(guarded, "left.topic", "right.topic", "output.topic", *sides, "dead", partitions=1)
    begin_ms = wall_ms() - 600_000
    for side in ("left", "right"):
        produce(guarded.plain, names[f"{side}.topic"], puts(begin_ms, side.encode(), 1))
    written = [names[key] for key in sides]
    fed = {"right.topic": names["right.topic"], "topics.dead_letter": names["dead"]}
    asked = {"topic": names["right.topic"], "positions.group": "guarded-feeder"}
    inputs = {key: names[key] for key in ("left.topic", "output.topic", *sides)}
    with ExitStack() as running:
        url = running.enter_context(server_here(tmp_path / "storage", namespaces=NAMESPACES, **tls))
        delays = running.enter_context(delay_server.running_server(tmp_path, **tls))
        ca = {"ca_bundle": str(tmp_path / "ca.pem")}
        storage = {"url": url.replace("http:", "https:"), "namespace": "right", "token": TOKEN, **ca}
        delay = {"url": delays.url.replace("http:", "https:"), **ca}

        def feeder(user: dict[str, str]) -> dict[str, Any]:
            return {
                **{"name": "guarded-feeder", "kind": "feeder", "kafka": user, "trigger": "available_now"},
                **{"right": {"topic": names["right.topic"], "disorder": "0s", "format": "json"}, "storage": storage},
                **{"topics": {"dead_letter": names["dead"]}, "checkpoint": str(tmp_path / "feeder")},
            }

        def lookup(user: dict[str, str]) -> dict[str, Any]:
            return {
                **{"name": "guarded-lookup", "kind": "lookup-join", "kafka": user, "trigger": "available_now"},
                "left": {"topic": names["left.topic"], "disorder": "0s", "format": "json"},
                "right": {"topic": names["right.topic"], "disorder": "0s", "format": "json"},
                "storage": storage,
                "delay": {**delay, "consumer": "guarded-feeder", "token": delays.secrets["reader"]},
                **{"join": {"before": "5s"}, "producer_delay": "1s", "output": {"topic": names["output.topic"]}},
                "topics": {key.removeprefix("topics."): names[key] for key in sides},
                "checkpoint": str(tmp_path / "lookup"),
            }

        def collected(user: dict[str, str]) -> tuple[int, str]:
            caplog.clear()
            delays.clock.now_ms = wall_ms() + 1_000
            topic = {"topic": names["right.topic"], "producer_delay": "1s", "disorder": "0s"}
            positions = {"from": "group", "group": "guarded-feeder"}
            path = tmp_path / "collector.yaml"
            content = {
                **{"api": {**delay, "token": delays.secrets["writer"]}, "kafka": user},
                "lock_file": str(tmp_path / "lock"),
                "consumers": [{"consumer": "guarded-feeder", "positions": positions, "topics": [topic]}],
            }
            path.write_text(yaml.safe_dump(content))
            return collect(path), "\n".join(caplog.messages)

        def judged(user: dict[str, str]) -> tuple[int, str]:
            caplog.clear()
            code = here.unjoined(lookup(user)).code
            assert code is not None
            return code, "\n".join(caplog.messages)

        trial.of("feeder", "guarded-feeder", fed, trial.run(feeder))
        produce(guarded.plain, names["right.topic"], [Put(0, b"k1", begin_ms + 50_000, b"{}")])
        status = trial.command(feeder, "status", "--json")
        trial.of("teacup status of a feeder", "guarded-feeder", {"right.topic": names["right.topic"]}, status)
        trial.of("teacup delay collect", "", asked, collected)
        assert trial.run(feeder)(guarded.plain)[0] == ExitCode.DONE
        assert collected(guarded.plain)[0] == ExitCode.DONE
        alike = ("guarded-lookup", *written[1:])
        trial.of("lookup-join", "guarded-lookup", inputs, trial.run(lookup), alike=alike, idle=written[2:])
        assert len(records(guarded.plain, names["output.topic"])) == 41
        trial.of("teacup unjoined", "guarded-lookup", names, judged)
        assert len(records(guarded.plain, names["topics.unjoined"])) > 0
        times = ("--from", iso(begin_ms), "--to", iso(begin_ms + 100_000))
        trial.of("teacup audit", "guarded-lookup", names, trial.command(lookup, "audit", *times), alike=written[1:])
        back = ("rewind", "--to", iso(begin_ms + 10_000), "--written", "keep")
        trial.of("teacup rewind", "guarded-lookup", inputs, trial.command(lookup, *back))


def test_deduplication_and_offsets(trial: Trial, guarded: Guarded, tmp_path: Path) -> None:
    """The offsets of a time, and those of a group set to it."""
    names = of_keys(guarded, "source.topic", "output.topic", partitions=1)
    begin_ms = wall_ms() - 600_000
    produce(guarded.plain, names["source.topic"], puts(begin_ms, b"x", 1))

    def dedup(user: dict[str, str]) -> dict[str, Any]:
        return {
            **{"name": "guarded-dedup", "kind": "dedup", "kafka": user, "trigger": "available_now", "id": "key"},
            **{"source": {"topic": names["source.topic"]}, "output": {"topic": names["output.topic"]}},
            "checkpoint": str(tmp_path / "dedup"),
        }

    def offsets(command: str, *more: str) -> Attempt:
        def attempt(user: dict[str, str]) -> tuple[int, str]:
            (tmp_path / "kafka.yaml").write_text(yaml.safe_dump(user))
            options = ["--topic", names["source.topic"], "--time", iso(begin_ms + 10_000), *more]
            done = CliRunner().invoke(app, ["offsets", command, *options, "--kafka-config", f"{tmp_path}/kafka.yaml"])
            return done.exit_code, done.output

        return attempt

    trial.of("dedup", "guarded-dedup", names, trial.run(dedup), idle=(names["output.topic"],))
    assert len(records(guarded.plain, names["output.topic"])) == 7
    trial.of("teacup status of dedup", "guarded-dedup", names, trial.command(dedup, "status", "--json"))
    asked = {"--topic": names["source.topic"], "--group": "guarded-group"}
    trial.of("teacup offsets at", "", asked, offsets("at"))
    undo = ("--group", "guarded-group", "--apply", "--save-undo", str(tmp_path / "undo.json"))
    trial.of("teacup offsets set", "", asked, offsets("set", *undo))
