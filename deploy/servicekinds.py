"""The services, one line each: what their files are known by, and which command takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name

from configfile.keys import Keys


@dataclass(frozen=True, slots=True)
class Service:
    """One of the services, which have files of their own.

    keys_at   the keys of its file; importing them may need an extra
    """

    name: str
    command: str
    keys_at: str

    @property
    def keys(self) -> type[Keys]:
        """The keys of its file."""
        found: type[Keys] = resolve_name(self.keys_at)
        return found


SERVICES: Mapping[str, Service] = {
    "store": Service("the storage API", "teacup storage serve", "storage.api.config:StorageServeConfig"),
    "database": Service("the Data Delay API", "teacup delay serve", "datadelay.api.config:DelayServeConfig"),
    "consumers": Service("the collector", "teacup delay collect", "datadelay.collector.config:CollectorConfig"),
}
"""By a key that its file must have, and that no other file has."""


def service_of(document: Mapping[str, object]) -> Service | None:
    """Returns the service whose file this is; None for any other file."""
    return next((SERVICES[key] for key in SERVICES if key in document and "kind" not in document), None)
