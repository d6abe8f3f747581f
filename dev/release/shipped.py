"""Which packages users install with Teacup and all its extras, in the versions that were tested here; their licences.

The environment of the developers has more; only what is reachable from `teacup-joins[...]` is shipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, PackageNotFoundError, distribution

OURS = "teacup-joins"
EXTRAS = ("testing", "serve", "postgresql", "redis", "registry", "otlp", "lineage")


@dataclass(frozen=True, slots=True)
class Shipped:
    """A package. licence: as its metadata says; empty if they do not."""

    version: str
    licence: str


def shipped() -> Mapping[str, Shipped]:
    """Returns the packages by name, sorted, without Teacup itself."""
    found: dict[str, Shipped] = {}
    left: list[tuple[str, tuple[str, ...]]] = [(OURS, EXTRAS)]
    seen = set()
    while left:
        name, extras = left.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform, or another Python
        if name != OURS:
            found[_normal(name)] = Shipped(installed.version, _licence(installed.metadata))
        left += _needed(installed.requires or (), extras)
    return dict(sorted(found.items()))


def _needed(requirements: Sequence[str], extras: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    from packaging.requirements import Requirement

    needed = []
    for text in requirements:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            needed.append((_normal(requirement.name), tuple(sorted(requirement.extras))))
    return needed


def _licence(about: PackageMetadata) -> str:
    """Returns the SPDX expression, or what older metadata have: classifiers, or the first line of a text."""
    classifiers = [text.rpartition(" :: ")[2] for text in about.get_all("Classifier", ()) if "License ::" in text]
    expression, text = (str(about[key]) if key in about else "" for key in ("License-Expression", "License"))
    return expression or "; ".join(classifiers) or text.partition("\n")[0]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    for name, package in shipped().items():
        print(f"{name}=={package.version}\t{package.licence}")
