"""DuckDB beside forks: of Spark's workers, and of the JVM that a job starts."""

from __future__ import annotations

import subprocess
import sys
import threading

from teacup.kafka.records.json_text import connection


def test_a_child_that_another_thread_forks_does_not_crash() -> None:
    """As PySpark starts its JVM, with a function that runs in the child before the program does."""
    program = (
        "import subprocess, threading\n"
        "from teacup.kafka.records.json_text import connection\n"
        "connection()\n"
        "codes = []\n"
        "def start():\n"
        "    codes.append(subprocess.call(['true'], preexec_fn=lambda: None))\n"
        "thread = threading.Thread(target=start)\n"
        "thread.start()\n"
        "thread.join()\n"
        "print(codes)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout == "[0]\n", done.stderr


def test_each_thread_has_a_connection_of_its_own() -> None:
    """And always the same one."""
    others = []
    thread = threading.Thread(target=lambda: others.append(connection()))
    thread.start()
    thread.join()

    assert connection() is connection()
    assert others[0] is not connection()


def test_a_process_ends_in_silence_while_a_daemon_thread_is_alive() -> None:
    """As the driver, with a thread of py4j: DuckDB listed what it took for leaks, 35 lines."""
    program = (
        "import threading, time\n"
        "from teacup.kafka.records.json_text import connection\n"
        "def wait():\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        "threading.Thread(target=wait, daemon=True).start()\n"
        "connection()\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
