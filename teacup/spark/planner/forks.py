"""Planners of many queries, forked from one process that has imported what they need.

Spark starts a Python process for each query that reads from a Python source, and leaves no choice of how: its command
is the program that it takes for Python, `-m`, and the name of a module of Spark's. Thirty of them, each with its own
copy of Arrow and of our code, take 3 GB. So the program is a script that passes the request on:

    JVM --starts--> script --the environment, standard output and error--> server --fork--> planner --connects--> JVM

The script ends at once. It starts Spark's own daemons, which look at each new query, with what their forks need already
imported, and any other module as Python would. The planner is what Spark would have started: it ends when its
connection to the JVM does. The server ends when its standard input does.

This is only for a session with several queries on one machine; a planner of its own starts no slower.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_NEEDED = (
    *(_RUNNER, "pyspark.worker_util", "pyspark.cloudpickle"),
    *("joins.plan.source", "joins.streaming"),
)
_SCRIPT = """#!/bin/sh
# Starts what Spark asks Python for; planners are forked: see teacup/spark/planner/forks.py
case "$2" in
{runner}) exec "{python}" -I -S "{file}" "{address}" ;;
pyspark.daemon) exec "{python}" -m {module} "$2" "$3" ;;
*) exec "{python}" "$@" ;;
esac
"""


class PlannerForks:
    """The server, until `close`. `python`: the script that replaces Python."""

    def __init__(self) -> None:
        """Starts the server."""
        # Not at the top, as the script's own process imports as little as possible.
        import subprocess

        from teacup.base.scratch import ScratchFolder

        self._folder = ScratchFolder("planners")
        address, script = self._folder.path / "socket", self._folder.path / "python"
        places = {"python": sys.executable, "file": __file__, "module": __name__, "address": address, "runner": _RUNNER}
        script.write_text(_SCRIPT.format(**places))
        script.chmod(0o700)
        self.python = str(script)
        env = {**os.environ, "PYTHONSAFEPATH": "1"}  # a folder `joins` where the job was started is not ours
        command = [sys.executable, "-m", __name__, "serve", str(address)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, env=env, process_group=0)

    def close(self) -> None:
        """Ends the server; planners end with their queries."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()
        self._folder.close()


def ask(address: str) -> None:
    """Has the server fork a planner with the environment and the outputs of this process."""
    lines = b"\0".join(name + b"=" + value for name, value in os.environb.items())
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [len(lines).to_bytes(8, "big")], [1, 2])
        server.sendall(lines)


def serve(address: str) -> None:
    """Forks planners until standard input ends."""
    import gc
    import select
    from importlib import import_module

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)  # first, so that whoever asks meanwhile waits
    listening.listen(socket.SOMAXCONN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets planners that have ended
    import_module("teacup.base.process").use_arrow_without_pandas()
    for module in _NEEDED:
        import_module(module)
    gc.collect()
    gc.freeze()  # a collection would write to the memory that planners share
    waiting = select.poll()
    waiting.register(0, select.POLLIN | select.POLLHUP)
    waiting.register(listening, select.POLLIN)
    while not any(ready == 0 for ready, _ in waiting.poll()):
        asking, _ = listening.accept()
        with asking:
            size, outputs, _, _ = socket.recv_fds(asking, 8, 2)
            lines = _received(asking, int.from_bytes(size, "big"))
            if os.fork() == 0:
                listening.close()
                asking.close()
                _become_planner(lines, outputs)
            for output in outputs:
                os.close(output)


def run_daemon(module: str) -> None:
    """Runs PySpark's daemon with this module imported, for its forks."""
    import gc
    from importlib import import_module

    import_module(module)
    from pyspark import daemon

    sys.argv = [daemon.__file__, module]
    gc.collect()
    gc.freeze()
    daemon.manager()


def _received(asking: socket.socket, size: int) -> bytes:
    with asking.makefile("rb") as file:
        return file.read(size)


def _become_planner(lines: bytes, outputs: list[int]) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for opened, place in zip((nothing, *outputs), (0, 1, 2), strict=True):
            os.dup2(opened, place)
            os.close(opened)
        os.environb.clear()
        for name, _, value in (line.partition(b"=") for line in lines.split(b"\0")):
            os.environb[name] = value
        from pyspark.sql.streaming.python_streaming_source_runner import main
        from pyspark.worker_util import get_sock_file_to_executor

        with get_sock_file_to_executor(timeout=None) as file:
            main(file, file)
        code = 0
    except SystemExit:
        pass  # it has told the JVM why
    except BaseException as error:  # noqa: BLE001 - reported as Python does; none of the server's code runs on
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    elif sys.argv[1] == "pyspark.daemon":
        run_daemon(sys.argv[2])
    else:
        ask(sys.argv[1])
