"""YAML settings with `${NAME}` and `${NAME:-default}` from the environment, so that no file contains secrets.

Substitution happens after parsing and only in text values: a value can never change the structure, and keys, numbers
and comments stay as they are. Every missing variable is an error that names it and its key; so is text that looks like
a variable but is not (`${lower case}`). Messages never contain values of variables.

It is stricter than YAML in two points. A duplicate key is refused, where YAML would silently take the second one. A
time stays text, where YAML would drop its zone.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from configfile.errors import SettingsInvalid
from configfile.problems import Problems

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


def load_yaml(path: Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file, unchanged. Raises `SettingsInvalid`."""
    try:
        # From the open file, not from its text: then PyYAML does not quote lines, which may contain a secret.
        with path.open(encoding="utf-8") as file:
            document = yaml.load(file, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise SettingsInvalid(path, [f"{at}not YAML: {error.problem}"]) from error
    except OSError as error:
        raise SettingsInvalid(path, [f"cannot be read: {error.strerror or error}"]) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsInvalid(path, [f"not YAML: {error}"]) from error
    if not isinstance(document, dict):
        raise SettingsInvalid(path, [f"expected a mapping of settings, found {type(document).__name__}"])
    return document


def value_of(text: str) -> Any:
    """Returns the value that a text in YAML means. Raises `yaml.YAMLError`."""
    return yaml.load(text, _StrictLoader)


def with_env(document: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], Problems]:
    """Returns the document with variables replaced, and a problem for each variable that cannot be replaced."""
    problems: Problems = []

    def replaced(value: Any, where: tuple[str | int, ...]) -> Any:
        if isinstance(value, dict):
            return {key: replaced(inner, (*where, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [replaced(inner, (*where, index)) for index, inner in enumerate(value)]
        return _text(value, where, environ, problems) if isinstance(value, str) else value

    return {key: replaced(value, (key,)) for key, value in document.items()}, problems


def _text(text: str, where: tuple[str | int, ...], environ: Mapping[str, str], problems: Problems) -> str:
    if "${" in _VARIABLE.sub("", text):
        problems.append((where, "contains `${` but no variable; write ${NAME} or ${NAME:-default}"))
        return text

    def value_of(found: re.Match[str]) -> str:
        name, default = found.groups()
        value = environ.get(name, default)
        if value is None:
            problems.append((where, f"the environment has no {name}; set it, or give a default: ${{{name}:-default}}"))
            return found[0]
        return value

    return _VARIABLE.sub(value_of, text)


class _StrictLoader(yaml.SafeLoader):
    """Loads safely, refuses duplicate keys, and leaves times as text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} occurs twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
