"""Which lines of the JVM's standard error are shown."""

from __future__ import annotations

from teacup.spark.planner.connection import shown

LATE = """Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/site-packages/pyspark/sql/streaming/python_streaming_source_runner.py", line 313, in <module>
    with get_sock_file_to_executor(timeout=None) as sock_file:
         ^^^^^^^^^^^^^^
pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: refused
"""
OTHER = LATE.replace("[CANNOT_OPEN_SOCKET] Can not open socket: refused", "[BROKEN] broken")
OF_JVM = ("2026-11-27 20:26:15 WARN A: lost\n", '{"level": "warning"}\n')


def test_the_traceback_of_a_planner_that_came_too_late_is_not_shown() -> None:
    """Another one is; so is what the JVM says meanwhile."""
    begin, *rest = LATE.splitlines(keepends=True)

    assert list(shown([OF_JVM[0], begin, OF_JVM[1], *rest, "last\n"])) == [*OF_JVM, "last\n"]
    assert "".join(shown(OTHER.splitlines(keepends=True))) == OTHER


def test_a_traceback_that_is_cut_off_is_shown() -> None:
    """The JVM has ended."""
    part = LATE.splitlines(keepends=True)[:3]

    assert list(shown(part)) == part


def test_what_every_jvm_says_is_not_shown() -> None:
    """Spark asks for a module that is no part of Java yet; the driver of S3 has no logger of its own."""
    nothing = ["WARNING: Using incubator modules: jdk.incubator.vector\n", "SLF4J: Failed to load class\n"]

    assert list(shown([*nothing, "other\n"])) == ["other\n"]
