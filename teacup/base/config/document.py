"""A configuration file, read and validated: `Document.read(path).as_model(Keys)`.

    a YAML file   stricter than YAML: a duplicate key is refused, where YAML would silently take the second one; a time
                  stays text, where YAML would drop its zone, and so do `on`, `no`, `010` and `12:30`, which YAML 1.1
                  reads as true, false, 8 and 750
    include       other files below this one (`teacup.base.config.included`); a message names the file of a value
    ${NAME}       and `${NAME:-default}`: from the environment, so that no file contains secrets
    ${file:PATH}  the content of a file (`teacup.base.config.secret_files`); relative to the file that names it
    key=value     from the command line: replaces a value of the file for one run. The key is dotted (`left.topic`), the
                  value is YAML. A fault in either is reported like the same fault in the file, at the place
                  `--set left.topic`

Variables are replaced after parsing and only in text values: a value can never change the structure, and keys, numbers
and comments stay as they are. Every missing variable is an error that names it and its key; so is text that looks like
a variable but is not (`${lower case}`). Messages never contain values of variables.
"""

from __future__ import annotations

import copy
import os
import re
import ssl
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ValidationError

from teacup.base.config.included import Merged, merged
from teacup.base.config.keys import Problems, Text, Where, dotted, lines, problems_of, split, worded
from teacup.base.config.secret_files import FORM, content_of
from teacup.base.errors import SettingsInvalid
from teacup.base.fields import is_secret

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_REPLACED = re.compile(f"{FORM.pattern}|{_VARIABLE.pattern}")
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_PLAIN = {
    "tag:yaml.org,2002:bool": re.compile("(?:true|True|TRUE|false|False|FALSE)$"),
    "tag:yaml.org,2002:int": re.compile("[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
}
"""What is true or false, and what is an integer, as in YAML 1.2."""

ModelOf = Callable[[Mapping[str, Any]], type[BaseModel] | None]
"""The model of a document, by its content; None if it has none."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Document:
    """A YAML file as data. It may contain secrets, so its repr shows only its source.

    raw      the mapping as it is in the file and on the command line
    values   the same with variables replaced
    faults   variables that could not be replaced, and assignments that could not be read
    given    places set by the command line, not by the file
    merged   the file with what it includes, and which file each value is from
    """

    source: Path
    raw: Mapping[str, Any]
    values: Mapping[str, Any]
    faults: Problems
    given: tuple[Where, ...] = ()
    merged: Merged = field(default=Merged({}, {}), repr=False)

    def __repr__(self) -> str:
        return f"Document({str(self.source)!r})"

    @classmethod
    def read(
        cls,
        path: Path,
        environ: Mapping[str, str] = os.environ,
        assignments: Sequence[str] = (),
        model_of: ModelOf = lambda _: None,
    ) -> Document:
        """Reads the document from a YAML file. Raises `SettingsInvalid` if it is not a mapping in YAML.

        assignments   `key=value` from the command line, which override the file
        """
        document = merged(path, load_yaml)
        raw, given, faults = assigned(document.values, assignments, model_of)
        values, unset = with_env(raw, environ, lambda where: (document.file_of(where) or path).parent)
        return cls(path, raw, values, [*faults, *unset], given, document)

    def as_model(self, model: type[M], also: Problems | None = None) -> M:
        """Returns its values as a model. Raises `SettingsInvalid` with every problem; `also`: what the caller found."""
        try:
            keys, wrong = model.model_validate(self.values), []
        except ValidationError as error:
            keys, wrong = None, problems_of(model, self.raw, error)
        problems = list(self.faults)
        for more in (wrong, [(where, worded(self.raw, where, what)) for where, what in also or []]):
            told = {where for where, _ in problems}
            problems += [(where, what) for where, what in more if where not in told]
        if keys is None or problems:
            raise self.refused(problems) from None  # pydantic's error quotes secrets
        return keys

    def refused(self, problems: Problems) -> SettingsInvalid:
        """Returns the error that reports these problems."""
        return SettingsInvalid(self.source, lines([(self._place(where), what) for where, what in problems]))

    def _place(self, where: Where) -> Where:
        """Returns the place as a message names it: `--set left.topic` if it is from the command line, with the file's
        name if it is included.
        """
        if any(where[: len(place)] == place for place in self.given):
            return (f"--set {dotted(where)}",)
        file = self.merged.file_of(where)
        return where if file in (None, self.source) else (f"{file}: {dotted(where)}",)


def load_yaml(path: Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file, unchanged. Raises `SettingsInvalid`."""
    try:
        # From the open file, not from its text: then PyYAML does not quote lines, which may contain a secret.
        with path.open(encoding="utf-8") as file:
            document = yaml.load(file, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        how = "; indent with spaces, not with tabs" if "'\\t'" in str(error.problem) else ""
        raise SettingsInvalid(path, [f"{at}not YAML: {error.problem}{how}"]) from error
    except OSError as error:
        raise SettingsInvalid(path, [f"cannot be read: {error.strerror or error}"]) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsInvalid(path, [f"not YAML: {error}"]) from error
    if not isinstance(document, dict):
        raise SettingsInvalid(path, [f"expected a mapping of settings, found {type(document).__name__}"])
    return document


def value_of(text: str) -> Any:
    """Returns the value of a text in YAML. Raises `yaml.YAMLError`."""
    return yaml.load(text, _StrictLoader)


def with_env(
    document: Mapping[str, Any], environ: Mapping[str, str], folder_of: Callable[[Where], Path] = lambda _: Path()
) -> tuple[dict[str, Any], Problems]:
    """Returns the document with variables replaced, and a problem for each variable that cannot be replaced.

    folder_of   what the path of a file at a place is relative to
    """
    problems: Problems = []

    def replaced(value: Any, where: tuple[str | int, ...]) -> Any:
        if isinstance(value, dict):
            return {key: replaced(inner, (*where, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [replaced(inner, (*where, index)) for index, inner in enumerate(value)]
        return _text(value, where, environ, folder_of, problems) if isinstance(value, str) else value

    return {key: replaced(value, (key,)) for key, value in document.items()}, problems


def _text(
    text: str, where: Where, environ: Mapping[str, str], folder_of: Callable[[Where], Path], problems: Problems
) -> str:
    if "${" in _REPLACED.sub("", text):
        problems.append((where, "contains `${` but no variable; write ${NAME}, ${NAME:-default} or ${file:PATH}"))
        return text
    later = len(where) > 1 and where[-2] == "kafka" and is_secret(str(where[-1]))

    def content(match: re.Match[str]) -> str:
        path = (folder_of(where) / match[1]).absolute()
        try:
            now = content_of(path)
        except ValueError as error:
            problems.append((where, str(error)))
            return match[0]
        return f"${{file:{path}}}" if later else now

    def variable(match: re.Match[str]) -> str:
        name, default = match[2], match[3]
        value = environ.get(name, default)
        if value is None:
            problems.append((where, f"the environment has no {name}; set it, or give a default: ${{{name}:-default}}"))
            return match[0]
        return value

    return _REPLACED.sub(lambda match: variable(match) if match[1] is None else content(match), text)


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
    first: [(tag, _PLAIN.get(tag, regexp)) for tag, regexp in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def assigned(
    document: Mapping[str, Any], texts: Sequence[str], model_of: ModelOf
) -> tuple[dict[str, Any], tuple[Where, ...], Problems]:
    """Returns the document with every `key=value`, the places that they set, and a problem for each invalid text."""
    pairs: list[tuple[str, Any]] = []
    problems: Problems = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not all(key.split(".")):
            problems.append(((f"--set {text}",), "write it as key=value, with a dot between levels: left.topic=clicks"))
            continue
        try:
            pairs.append((key, value_of(value)))
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", None) or "it cannot be read"
            problems.append(((f"--set {key}",), f"not YAML: {problem}"))
    changed = copy.deepcopy(dict(document))
    model = model_of(changed | dict(pairs))
    places = tuple(_put(changed, (key,) if model is None else split(model, key), value) for key, value in pairs)
    return changed, places, problems


def _put(document: dict[str, Any], where: Where, value: Any) -> Where:
    """Sets a value. Returns the first place that was not a mapping before, or the place of the value."""
    new = where
    for depth, step in enumerate(where[:-1], start=1):
        if not isinstance(document.get(str(step)), dict):
            document[str(step)] = {}
            new = min(new, where[:depth], key=len)
        document = document[str(step)]
    document[str(where[-1])] = value
    return new


def ca_bundle(path: str) -> str:
    """Returns the path if it is a file of certificates in PEM. Raises `ValueError`."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except OSError as error:
        raise ValueError(f"it cannot be read as certificates in PEM: {error.strerror or error}") from error
    return path


CaBundle = Annotated[Text, AfterValidator(ca_bundle)]
"""A file with the certificates that must have signed a server's; it is checked as soon as its key is read."""
