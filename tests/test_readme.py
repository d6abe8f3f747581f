"""What the documents ask people to do works: the property test as it is, the README's commands, every link."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_property_test_of_the_documents_passes(tmp_path: Path) -> None:
    """Copied and pasted into a file of its own."""
    page = (ROOT / "docs" / "window-join.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "test_mine.py").write_text(block)
    (tmp_path / "conftest.py").write_text("from tests.support import profiles\n\nprofiles.load()\n")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_what_the_documents_import_is_public() -> None:
    """It is in the list of the package's docstring."""
    fenced = "".join(
        "".join(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)) for page in DOCUMENTS
    )
    ours = re.findall(r"^from ((?:joins|dedup|datadelay|teacup)[\w.]*) import (.+)$", fenced, re.MULTILINE)

    private = [
        f"{module}.{name}"
        for module, names in ours
        for name in names.split(", ")
        if not {module, f"{module}.{name}"}
        & set(re.findall(r"`([\w.]+)`", import_module(module.split(".")[0]).__doc__ or ""))
    ]

    assert len(ours) > 3
    assert private == []


def test_the_files_that_the_documents_name_exist() -> None:
    """Modules, tests, examples and pages: from the root, or of tests from their folder."""
    named = {
        (page.name, path)
        for page in DOCUMENTS
        for path in re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|yaml|md))\b", page.read_text("utf-8"))
    }

    assert len(named) > 50
    assert {
        (page, path) for page, path in named if not any((ROOT / up / path).exists() for up in ("", "tests"))
    } == set()


def test_the_commands_of_the_readme_work() -> None:
    """In the root of the repository; the environment is this one."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    commands = [line for line in "".join(blocks).splitlines() if line not in ("make venv", ". .venv/bin/activate")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-ec", "\n".join(commands)],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert commands
    assert done.returncode == 0, done.stderr
    assert "is valid" in done.stdout


def test_the_file_of_the_readme_is_the_example() -> None:
    """Word for word, but for its comment."""
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)

    assert (ROOT / "deploy" / "examples" / "window-join-minimal.yaml").read_text().endswith(f"\n{shown}")


def test_the_readme_names_its_two_commands() -> None:
    """And they are targets of the Makefile."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    for command in ("demo", "test"):
        assert f"    make {command} " in README
        assert command in targets


def test_the_index_names_every_document() -> None:
    """A page that nothing leads to is not read."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    assert [path.name for path in DOCUMENTS if path.name != "README.md" and f"]({path.name})" not in index] == []


def anchors(document: Path) -> set[str]:
    """What links to a document may name after the `#`: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    """Every relative link names a file that exists, and a heading in it."""
    links = [
        (page, link, anchor)
        for page in DOCUMENTS
        for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))
    ]

    broken = []
    for page, link, anchor in links:
        path = page.parent / link if link else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(f"{page.name}: {link}#{anchor}")

    assert len(links) > 100
    assert broken == []
