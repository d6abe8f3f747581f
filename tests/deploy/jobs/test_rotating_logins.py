"""Logins that change while a job runs, on a real broker that ends connections whose token has expired."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.deploy.jobs.guarded_join import join
from tests.support.accesstable import granted
from tests.support.guarded import Guarded, write_token
from tests.support.jobhere import JobsHere, Running
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce

pytestmark = pytest.mark.slow

LIVES_S = 20.0
"""A token; it is replaced when half of that is over."""


def granted_join(guarded: Guarded, user: dict[str, str], name: str, folder: Path) -> dict[str, Any]:
    """A join that goes on until it is stopped, with what the documents grant it."""
    content = join(guarded, user, folder) | {"trigger": {"every": "0s"}}
    names = {f"{key}.topic": content[key]["topic"] for key in ("left", "right", "output")}
    names |= {f"topics.{key}": topic for key, topic in content["topics"].items()}
    guarded.grant(name, granted("window-join", content["name"], names))
    return content


@contextmanager
def renewed(file: Path, user: str) -> Iterator[None]:
    """The token is replaced, again and again."""
    done = threading.Event()

    def renew() -> None:
        while not done.wait(LIVES_S / 2):
            write_token(file, user, LIVES_S)

    thread = threading.Thread(target=renew)
    write_token(file, user, LIVES_S)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def comes_through(guarded: Guarded, content: dict[str, Any], running: Running, rows: int, what: str) -> None:
    """A new left record does."""
    for side in ("left", "right"):
        produce(guarded.plain, content[side]["topic"], [Put(0, b"k0", wall_ms() - 30_000)])
    out = content["output"]["topic"]
    running.until(lambda: len(records(guarded.plain, out)) == rows, what)


def test_a_token_in_a_file_is_renewed_while_a_job_runs(here: JobsHere, guarded: Guarded, tmp_path: Path) -> None:
    """The job outlives three of them, and takes records after each."""
    file, name = tmp_path / "token", f"user-{time.time_ns()}"
    content = granted_join(guarded, guarded.token_in(file), name, tmp_path)
    with renewed(file, name), here.running(content) as running:
        out = content["output"]["topic"]
        running.until(lambda: len(records(guarded.plain, out)) == 20, "the first rows")
        for number in range(3):
            expired_s = time.monotonic() + LIVES_S
            running.until(lambda until_s=expired_s: time.monotonic() > until_s, "a token expires")
            comes_through(guarded, content, running, 21 + number, "a row after a token has expired")

        assert running.stop() == ExitCode.DONE


def test_a_token_that_nobody_renews_is_said(
    here: JobsHere, guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start, and it is not shown."""
    file, name = tmp_path / "token", f"user-{time.time_ns()}"
    content = granted_join(guarded, guarded.token_in(file), name, tmp_path)
    write_token(file, name, -5.0)

    code = here.run(content).code

    assert code == ExitCode.UNREACHABLE
    assert "the token has expired" in caplog.text
    assert file.read_text().strip() not in caplog.text


def test_a_certificate_is_replaced_while_a_job_runs(
    here: JobsHere, guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job goes on with the one that it has, and says so; its next start has the new one."""
    user = guarded.certified()
    name = Path(user["ssl.certificate.location"]).stem
    content = granted_join(guarded, user, name, tmp_path)
    with here.running(content) as running:
        out = content["output"]["topic"]
        running.until(lambda: len(records(guarded.plain, out)) == 20, "the first rows")
        guarded.certified(name)
        running.until(lambda: "Restart the job before" in caplog.text, "it is said")
        comes_through(guarded, content, running, 21, "a row after the change")
        assert running.stop() == ExitCode.DONE

    for side in ("left", "right"):
        produce(guarded.plain, content[side]["topic"], [Put(0, b"k0", wall_ms() - 30_000)])
    assert here.run({**content, "trigger": "available_now"}).code == ExitCode.DONE
    assert len(records(guarded.plain, out)) == 22
