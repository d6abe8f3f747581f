"""The processes of a job, and what they say of it."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress

import psutil

from tests.support.jobprocess import JobProcess
from tests.support.leftovers import of_session

JVM, DAEMON = "SparkSubmit", "-m\0teacup.spark.worker_daemon"
"""What is in the command lines; process numbers say nothing about who came first, as they start again from 1."""


def processes(job: JobProcess, what: str) -> dict[int, int]:
    """Those of the job with this in their command line; process number -> that of its parent."""
    found = {}
    for pid in of_session(job.process.pid):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            process = psutil.Process(pid)
            if what in "\0".join(process.cmdline()):
                found[pid] = process.ppid()
    return found


def first(job: JobProcess, what: str) -> int:
    """The process of which the others with this command line are forks."""
    found = processes(job, what)
    (pid,) = (pid for pid, parent in found.items() if parent not in found)
    return pid


def workers(job: JobProcess) -> list[int]:
    """Forks of the daemon."""
    found = processes(job, DAEMON)
    return [pid for pid, parent in found.items() if parent in found]


def ready(process: JobProcess, path: str = "readyz") -> tuple[int, str]:
    """What a probe says; 0 if nobody listens: the job has not come so far, or has ended."""
    found = re.search(r"metrics at (http://\S+?)/metrics", process.logged())
    if found is None:
        return 0, ""
    try:
        with urllib.request.urlopen(f"{found[1]}/{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ConnectionRefusedError):
            raise
        return 0, ""


def states(process: JobProcess) -> dict[str, str]:
    """The state of each job of a process that has several, as `/readyz` says."""
    lines = (line.partition(": ") for line in ready(process)[1].splitlines())
    return {name: says.partition(";")[0] for name, _, says in lines}


def said(process: JobProcess, job: str, text: str) -> Callable[[], bool]:
    """Whether one of its jobs has logged a text, each time that it is asked."""

    def found() -> bool:
        lines = [json.loads(line) for line in process.logged().splitlines() if line.startswith("{")]
        return any(line.get("job") == job and text in line.get("message", "") for line in lines)

    return found
