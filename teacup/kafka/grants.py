"""What a user needs at the brokers, and the `kafka-acls` commands that grant it. Pure.

The principal is the SASL user name if the properties have one. Only the brokers know which principal they see in a
client certificate or a token; then the command has a name to fill in.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TO_FILL_IN = "PRINCIPAL"


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """Operations on one resource.

    resource    "topic", "group" or "transactional-id", as `kafka-acls` calls it
    name        the resource's name; prefixed: the beginning of its name
    operations  as `kafka-acls` spells them
    """

    resource: str
    name: str
    operations: tuple[str, ...]
    prefixed: bool = False

    def __str__(self) -> str:
        kind = self.resource.replace("-", " ")
        where = f"{kind}s that begin with {self.name!r}" if self.prefixed else f"{kind} {self.name!r}"
        return f"{', '.join(self.operations)} on {where}"


def principal(kafka: Mapping[str, str]) -> str:
    """Returns the principal of these properties, as `kafka-acls` takes it."""
    user = kafka.get("sasl.username") or kafka.get("sasl.kerberos.principal", "").partition("/")[0].partition("@")[0]
    return f"User:{user or TO_FILL_IN}"


def refusal(missing: Iterable[Grant], kafka: Mapping[str, str]) -> str:
    """Returns in one line what is missing and the commands that grant it."""
    some = sorted(set(missing))
    return f"{principal(kafka)} lacks {'; '.join(map(str, some))}. To grant it: {' && '.join(commands(some, kafka))}"


def commands(missing: Iterable[Grant], kafka: Mapping[str, str]) -> list[str]:
    """Returns the commands: one for all resources of a kind that need the same operations."""
    alike: dict[tuple[str, tuple[str, ...], bool], list[str]] = {}
    for grant in sorted(set(missing)):
        alike.setdefault((grant.resource, grant.operations, grant.prefixed), []).append(grant.name)
    brokers = kafka.get("bootstrap.servers") or kafka.get("metadata.broker.list", "")
    begin = ["kafka-acls", "--bootstrap-server", brokers, "--add", "--allow-principal", principal(kafka)]
    return [
        shlex.join(
            [
                *begin,
                *(word for operation in operations for word in ("--operation", operation)),
                *(("--resource-pattern-type", "prefixed") if prefixed else ()),
                *(word for name in names for word in (f"--{resource}", name)),
            ]
        )
        for (resource, operations, prefixed), names in alike.items()
    ]
