"""Imports point one way, and what is pure imports nothing that opens a file, a socket or a session."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "kafkaio": set(),
    "settings": {"kafkaio"},
    "sparkio": {"kafkaio"},
    "httpapi": {"settings"},
    "datadelay": {"kafkaio", "settings", "sparkio", "httpapi"},
    "storage": {"kafkaio", "settings", "httpapi"},
    "joins": {"kafkaio", "sparkio", "datadelay", "storage"},
    "dedup": {"kafkaio", "sparkio"},
    "deploy": {"kafkaio", "settings", "sparkio", "httpapi", "datadelay", "storage", "joins", "dedup"},
}
"""kafkaio <- settings <- httpapi <- datadelay, storage <- joins <- deploy; kafkaio <- sparkio <- dedup <- deploy."""

PURE = [
    "settings.keys",
    "deploy.sparkconf",
    "deploy.jobfile.values",
    "settings.errors",
    "kafkaio.secrets",
    "kafkaio.receipt",
    "kafkaio.topiclog",
    "kafkaio.blocksearch",
    "kafkaio.clock",
    "kafkaio.eventtime",
    "kafkaio.duck",
    "kafkaio.errors",
    "kafkaio.exitcode",
    "sparkio.crossing",
    "kafkaio.fairshare",
    "kafkaio.finalerror",
    "kafkaio.headers",
    "kafkaio.producible",
    "kafkaio.times",
    "datadelay.progress",
    "datadelay.publish",
    "datadelay.model",
    "datadelay.collector.reports",
    "datadelay.errors",
    "joins.errors",
    "joins.spec",
    "joins.lookup.feed",
    "joins.lookup.rightrow",
    "httpapi.server.limits",
    "storage.model",
    "storage.errors",
    "storage.codecs.codec",
    "storage.codecs.arrowcodec",
    "storage.backends.entries",
    "storage.backends.stored",
    "storage.codecs.encodings",
    "joins.lookup.batch",
    "joins.lookup.gate",
    "joins.lookup.spec",
    "joins.lookup.start",
    "joins.lookup.unjoined",
    "joins.lookup.verdicts",
    "joins.window.admission",
    "joins.window.listing",
    "joins.window.lockstep",
    "joins.window.plan",
    "joins.window.readable",
    "joins.window.target",
    "joins.window.state",
    "joins.window.bounds",
    "joins.window.facts",
    "joins.window.evidence",
    "joins.window.passage",
    "joins.window.records",
    "joins.window.chunks",
    "joins.window.slices",
    "joins.window.match",
    "joins.window.window",
    "joins.window.batch",
    "joins.window.restore",
    "joins.window.bolt",
    "joins.window.ticket",
    "joins.window.start",
    "joins.window.guard",
    "joins.window.intake",
    "joins.testing.deadlock",
    "joins.testing.history",
    "joins.testing.log",
    "joins.testing.oracle",
    "joins.testing.play",
    "joins.testing.simulation",
    "joins.testing.strategies",
]

PURE_LIBRARIES = {"numpy", "pyarrow", "polars"}
ALSO = {
    "kafkaio.duck": {"duckdb"},
    "settings.keys": {"pydantic", "pydantic_core"},
    "datadelay.model": {"pydantic"},
    "deploy.jobfile.values": {"pydantic"},
    "joins.testing": {"hypothesis"},
}
"""What a pure module may use besides: DuckDB reads JSON, in memory."""

OPENING = {"socket", "subprocess", "urllib", "http", "asyncio", "multiprocessing", "shutil", "tempfile"}
"""Parts of the standard library with which a pure module would reach out of itself."""


def modules() -> dict[str, Path]:
    """Every module of the packages by its name."""
    found = {}
    for package in MAY_IMPORT:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def imports(name: str) -> set[str]:
    """What a module imports, wherever in it; `from package import module` counts as the module."""
    return set(_imports(ast.parse(MODULES[name].read_text())))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write imports out in full"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (one if one in MODULES else str(node.module) for one in inner)


def is_ours(name: str) -> bool:
    return name.split(".")[0] in MAY_IMPORT


def test_the_walk_sees_the_packages():
    """It would pass on an empty folder."""
    assert set(PURE) <= set(MODULES)
    assert {"numpy", "polars"} <= {one.split(".")[0] for one in imports("joins.window.match")}
    assert "joins.window.slices" in imports("joins.window.match")


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_one_way(name: str):
    """A layer knows only those below it, tests and benchmarks are known to none."""
    package = name.split(".")[0]
    ours = {one for one in imports(name) if is_ours(one)}

    assert {one.split(".")[0] for one in ours} <= MAY_IMPORT[package] | {package}
    assert not {one for one in imports(name) if one.split(".")[0] in ("tests", "benchmarks")}


@pytest.mark.parametrize("name", PURE)
def test_what_is_pure_imports_only_what_is_pure(name: str):
    """The standard library's harmless part, numpy, pyarrow, polars, and other pure modules."""
    allowed = PURE_LIBRARIES | next((more for prefix, more in ALSO.items() if name.startswith(prefix)), set())
    found = imports(name)
    ours = {one for one in found if is_ours(one)}
    others = {one.split(".")[0] for one in found - ours}

    assert ours <= set(PURE)
    assert others <= allowed | set(sys.stdlib_module_names)
    assert not others & OPENING


def test_the_window_does_not_know_how_it_is_tested():
    """`joins.testing` drives the window; the window, Spark's edge and the broker's know nothing of it."""
    knowing = {name for name in MODULES if any(one.startswith("joins.testing") for one in imports(name))}

    assert {name for name in knowing if not name.startswith("joins.testing")} <= {
        name for name in MODULES if name.startswith("deploy")
    }


def test_spark_is_known_only_at_the_edges():
    """Whoever wants to read or test the join needs no Spark."""
    knowing = {name for name in MODULES if any(one.split(".")[0] == "pyspark" for one in imports(name))}

    assert {name for name in knowing if not name.startswith("deploy")} <= {
        "joins.lookup",
        "joins.lookup.feedsource",
        "joins.lookup.frame",
        "joins.lookup.source",
        "joins.window",
        "joins.window.source",
        "joins.window.stage",
        "dedup.spark",
        "dedup.topicsource",
    }


def test_only_kafkaio_talks_to_kafka():
    """One room knows librdkafka's properties, errors and traps; deploy's broker and demo are for development."""
    knowing = {name for name in MODULES if any(one.split(".")[0] == "confluent_kafka" for one in imports(name))}

    assert not {name for name in knowing if not name.startswith(("kafkaio", "deploy"))}
