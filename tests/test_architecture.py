"""Imports point one way, and what is pure imports nothing that opens a file, a socket or a session."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from graphlib import TopologicalSorter
from importlib import import_module

from teacup.base.errors import ExitCode
from tests.support.packages import MAY_IMPORT, ROOT, docstring, imports, is_ours, modules, parts_of, pure, tree

PURE_LIBRARIES = {"msgspec", "numpy", "pyarrow", "polars", "pydantic", "pydantic_core"}
ALSO = {
    "deploy.inspection.audit.verify.database": {"duckdb"},
    "joins.testing.strategies": {"hypothesis"},
}
"""What else a pure module may use: DuckDB reads JSON, in memory, with a connection for each thread, and compares tables
on a connection that it is given."""

OUTSIDE = {
    *("asyncio", "concurrent", "multiprocessing", "queue", "signal", "subprocess", "threading"),
    *("fcntl", "logging", "os", "shutil", "tempfile"),
    *("http", "select", "selectors", "socket", "ssl", "urllib"),
    *("random", "secrets", "time"),
}
"""Parts of the standard library with which a pure module would reach out of itself, or look at a clock."""


FILES = {"open", "print", "input", "mkdir", "unlink", "read_text", "write_text", "read_bytes", "write_bytes"}
"""Calls that do so without an import."""

READS = {"teacup.kafka.native.library": {"read_bytes"}}
"""Pure modules that read files of the package itself, once: the C sources, whose digest is in the library's name."""


def test_the_walk_sees_the_packages():
    """It would pass on an empty folder."""
    assert {
        "teacup.kafka.delivery.receipt",
        "datadelay.watermark",
        "joins.window.match",
        "dedup.restart.deduplicator",
    } <= pure()
    assert {"numpy", "polars"} <= {imported.split(".")[0] for imported in imports("joins.window.match")}
    assert "joins.window.slices" in imports("joins.window.match")


def test_imports_point_one_way():
    """A layer knows only those below it, tests and benchmarks are known to none."""
    upwards = [
        f"{name} imports {imported}"
        for name in modules()
        for package in [name.split(".")[0]]
        for imported in imports(name)
        if (is_ours(imported) and imported.split(".")[0] not in MAY_IMPORT[package] | {package})
        or imported.split(".")[0] in ("tests", "benchmarks")
    ]

    assert upwards == []


def test_the_parts_of_a_package_import_each_other_one_way():
    """Whoever reads a part needs only those below it; a circle would make one part of several."""
    for package in MAY_IMPORT:
        TopologicalSorter(parts_of(package)).prepare()  # raises with the circle


def test_what_is_pure_imports_only_what_is_pure():
    """The standard library's harmless part, numpy, pyarrow, polars, and other pure modules."""
    found = {name: impurities(name) for name in pure()}

    assert {name: reasons for name, reasons in found.items() if reasons} == {}


def impurities(name: str) -> set[str]:
    """What a pure module must not import, and calls that it must not make."""
    allowed = PURE_LIBRARIES | next((more for prefix, more in ALSO.items() if name.startswith(prefix)), set())
    allowed |= set(sys.stdlib_module_names) - OUTSIDE
    ours = {imported for imported in imports(name) if is_ours(imported)}
    others = {imported.split(".")[0] for imported in imports(name) - ours}
    called = {ast.unparse(node.func).split(".")[-1] for node in ast.walk(tree(name)) if isinstance(node, ast.Call)}
    return (ours - pure()) | (others - allowed) | ((called & FILES) - READS.get(name, set()))


def test_only_modules_are_called_pure():
    """A function in a module that is not pure cannot be held to it."""
    called_so = [
        f"{name}.{node.name}"
        for name in modules()
        if name not in pure()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and "Pure." in (ast.get_docstring(node) or "")
    ]

    assert called_so == []


def test_the_errors_of_a_package_are_one_tree_that_its_docstring_draws():
    """Each class below the one that it is derived from; the root says with which exit code a command ends."""
    drawing = [name for name in modules() if "+- " in docstring(name)]

    assert drawing
    for name in drawing:
        classes = [node for node in tree(name).body if isinstance(node, ast.ClassDef)]
        assert drawn_tree(docstring(name)) == {node.name: ast.unparse(node.bases[0]) for node in classes}, name
        root = getattr(import_module(name), classes[0].name)
        assert isinstance(root.exit_code, ExitCode), name


def drawn_tree(text: str) -> dict[str, str]:
    """The classes in a drawing, the second paragraph of a docstring, each with the one above it."""
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for indent, drawn_class in re.findall(r"^([ |]*(?:\+- )?)(\w+)(?:  .*)?$", text.split("\n\n")[1], re.MULTILINE):
        above = [(column, parent) for column, parent in above if column < len(indent)]
        drawn[drawn_class] = above[-1][1] if above else "CommandError"
        above.append((len(indent), drawn_class))
    return drawn


def test_errors_with_an_exit_code_are_in_the_tree_of_their_package():
    """In `errors.py`, which draws it."""
    coded = {
        f"{name}.{node.name}"
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ClassDef) and any(keyword.arg == "exit_code" for keyword in node.keywords)
    }

    assert {name for name in coded if name.split(".")[-2] != "errors"} == set()


def test_the_window_does_not_know_how_it_is_tested():
    """`joins.testing` drives the window; the window, Spark's edge and the broker's know nothing of it."""
    knowing = {name for name in modules() if any(imported.startswith("joins.testing") for imported in imports(name))}

    assert {name for name in knowing if not name.startswith("joins.testing")} <= {
        name for name in modules() if name.startswith("deploy")
    }


def test_where_right_is_kept_is_a_value_and_its_type_is_asked_for_once():
    """Whatever else differs is a value of `Log` and `Store`, or of the kind of the join."""
    asked = [
        f"{name}: {ast.unparse(node)}"
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call) and re.match(r"isinstance\(.*(\bStore\b|\bLog\b|\.source\b)", ast.unparse(node))
    ]

    assert asked == ["joins.spec: isinstance(self.source, Store)"]


def test_nothing_in_production_knows_what_is_for_development():
    """Only the command that starts the broker knows it; the demos are in no package that is shipped."""
    known = {name for name in modules() for imported in imports(name) if imported.startswith("deploy.broker")}

    assert {name for name in known if not name.startswith("deploy.broker")} == {"deploy.cli.services"}
    assert not [name for name in modules() if any(imported.split(".")[0] == "dev" for imported in imports(name))]


def test_what_runs_a_job_and_what_looks_at_one_know_nothing_of_each_other(capsys):
    """They meet in the rooms below them; of those there are few arrows."""
    arrows = {
        (room, other)
        for room, others in parts_of("deploy").items()
        for other in others
        if modules()[f"deploy.{room}"].stem == modules()[f"deploy.{other}"].stem == "__init__"
    }
    with capsys.disabled():
        print(f"\n{len(arrows)} arrows between the rooms of deploy")

    assert not {("jobs", "inspection"), ("inspection", "jobs")} & arrows
    assert not [room for room, other in arrows if other == "inspection" and room != "cli"]
    assert len(arrows) <= 45


def test_nothing_in_deploy_shadows_the_standard_library():
    """`spark-submit deploy/submit.py` puts `deploy` first on `sys.path`."""
    beside_the_script = {path.stem for path in (ROOT / "deploy").iterdir()}

    assert "submit" in beside_the_script
    assert not beside_the_script & sys.stdlib_module_names


def test_only_the_strategies_need_hypothesis():
    """The command runs without it."""
    knowing = {name for name in modules() if any(imported.split(".")[0] == "hypothesis" for imported in imports(name))}
    needed, waiting = set(), {"deploy.cli.app"}
    while waiting:
        needed |= waiting
        waiting = {imported for name in waiting for imported in imports(name) if imported in modules()} - needed

    assert knowing == {"joins.testing.strategies"}
    assert not needed & knowing


def test_spark_is_known_only_at_the_edges():
    """Whoever wants to read or test the join needs no Spark."""
    knowing = {name for name in modules() if any(imported.split(".")[0] == "pyspark" for imported in imports(name))}

    assert {name for name in knowing if not name.startswith(("deploy", "teacup.spark"))} <= {
        "joins.fields",
        "joins.lookup.feed.source",
        "joins.lookup.stage",
        "joins.lookup.source",
        "joins.streaming",
        "joins.plan.reader",
        "joins.plan.source",
        "joins.window.shuffle.source",
        "dedup.restart.worker",
        "dedup.topic.source",
    }


def test_no_task_knows_the_planner():
    """What a task does is in a module `stage`; nothing that it loads, however far away, plans a batch.

    `joins.streaming` names the planner of each join kind, and loads it on first use.
    """
    needed, waiting = set(), {name for name in modules() if name.endswith(".stage")}
    while waiting:
        needed |= waiting
        waiting = {imported for name in waiting for imported in imports(name) if imported in modules()}
        waiting -= needed | {"joins.streaming"}

    assert {"joins.window.stage", "joins.window.bolt", "deploy.output.routing"} <= needed
    assert {name for name in needed if name.startswith("joins.plan")} == set()


def test_only_one_package_talks_to_kafka():
    """One room knows librdkafka's properties, errors and traps; deploy's broker and demo are for development."""
    knowing = {
        name for name in modules() if any(imported.split(".")[0] == "confluent_kafka" for imported in imports(name))
    }

    assert not {name for name in knowing if not name.startswith(("teacup.kafka", "deploy"))}


def test_the_page_of_the_architecture_has_the_table_of_packages():
    """From top to bottom, with what each may import; its picture shows all of them."""
    docs = ROOT / "docs"
    page, picture = (docs / "architecture.md").read_text(), (docs / "pictures" / "packages.svg").read_text()

    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.*) \|$", page.split("## Packages")[1].split("\n## ")[0], re.MULTILINE)

    assert {package: set(re.findall(r"`(\w+)`", imported)) for package, imported in rows} == MAY_IMPORT
    assert all(f">{package}</text>" in picture for package in MAY_IMPORT)


def test_the_page_of_the_architecture_has_the_folders_of_each_package_from_the_bottom_up():
    """All of them, where there are more than two."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    listed = {package: folders.split(", ") for package, folders in re.findall(r"^- `(\w+)`: (.+)$", page, re.MULTILINE)}
    known = {package: parts_of(package) for package in MAY_IMPORT}
    inner = {
        package: {part for part in parts if modules()[f"{package}.{part}"].stem == "__init__"}
        for package, parts in known.items()
    }

    assert {package: set(folders) for package, folders in listed.items()} == {
        package: folders for package, folders in inner.items() if len(folders) > 2
    }
    for package, folders in listed.items():
        for number, folder in enumerate(folders):
            assert known[package][folder] & inner[package] <= set(folders[:number])


def test_the_name_of_a_class_means_one_thing():
    """Whoever reads it, in a message or in an import, knows which class it is."""
    defined = [
        (node.name, name) for name in modules() for node in ast.walk(tree(name)) if isinstance(node, ast.ClassDef)
    ]
    often = {class_name for class_name, times in Counter(class_name for class_name, _ in defined).items() if times > 1}

    assert {(class_name, name) for class_name, name in defined if class_name in often} == set()


def test_the_house_is_of_a_size_that_a_reader_can_hold():
    """Few rooms, none of them crowded."""
    in_folder = Counter(name.rpartition(".")[0] for name, path in modules().items() if path.stem != "__init__")

    assert {folder: number for folder, number in in_folder.items() if number > 15} == {}
    assert sum(in_folder.values()) <= 353


def test_tests_do_not_import_from_each_other():
    """What several of them need stands beside them, or in `tests.support`."""
    importing = [
        f"{path.relative_to(ROOT)} imports from {node.module}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and re.search(r"(^|\.)test_\w+$", node.module or "")
    ]

    assert importing == []
