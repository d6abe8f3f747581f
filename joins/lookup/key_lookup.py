"""Looks up keys: parallel pooled requests, with retries while the store fails. The edge to both APIs.

`BothApis` asks both APIs how far right is stored, and in which store.

`RightStore` lives in a worker process. An attempt looks up all keys first, and then reads from which time on the
namespace keeps records. In this order, nothing from that time on can have expired before the answers came. Each look-up
names the generation that it relies on, because several servers may answer, one of them from a store that has lost data.
If any part of an attempt fails, or the API's clock is ahead, the whole attempt is repeated with growing pauses, until
`unreachable_for_s`. Each pause logs why.

If an API refuses the job, waiting does not help: the error says what to correct (`refused`, `delay_refused`). Feeders
use the same clients and errors.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from datadelay.client import DelayClient
from datadelay.errors import DelayAccessDenied, DelayCallFailed, DelayError, DelayNotFound, DelayWrongServer
from datadelay.model import Delay
from joins.errors import CallRefused, ClockBehind, NoRetention, StoreChanged, StoreUnreachable
from joins.lookup.batch import WANTED, StoredRight
from joins.lookup.gate import CLOCK_TOLERANCE_MS
from joins.lookup.right_items import RIGHT_ROW, from_items, is_delete
from joins.right_source import DelayApi, StoreAddress
from joins.spec import JoinSpec
from teacup.base.now import wall_ms
from teacup.base.times import LATEST_MS, iso
from teacup.storage.client import StorageClient
from teacup.storage.codecs.json import NamespaceBody
from teacup.storage.errors import (
    AccessDenied,
    GenerationChanged,
    NamespaceUnknown,
    RequestInvalid,
    StorageError,
    WrongServer,
)
from teacup.storage.model import Keep, Status

log = logging.getLogger("teacup.joins.lookup.key_lookup")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

REFUSED = (AccessDenied, NamespaceUnknown, RequestInvalid, WrongServer)
"""Errors of the storage API that no retry can fix."""

DELAY_REFUSED = (DelayAccessDenied, DelayWrongServer)
"""Errors of the Data Delay API that no retry can fix."""

_REMEDY = (
    "the store was wiped or replaced, or may have lost something. If the storage API was merely started with another "
    "store, start it with the right one, never with a copy of it; otherwise feed again, and start a new checkpoint at "
    "a time (`start: TIME`)"
)


class RightStore:
    """The namespace of one join, used for many batches."""

    def __init__(self, spec: JoinSpec, client: StorageClient) -> None:
        self._spec, self._client = spec, client
        self._generation = ""  # as seen by the last attempt
        self._pool = ThreadPoolExecutor(spec.right.store.storage.requests_at_once, thread_name_prefix="lookup")

    def close(self) -> None:
        """Cancels pending requests and closes the client."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def look_up(self, wanted: pl.DataFrame, generations: Collection[str]) -> StoredRight:
        """Returns what a store of one of these generations holds of `wanted`. Retries while the store fails.

        wanted   a column `key` (binary) and, if right has versions, `time` (`batch.WANTED`)

        Raises `StoreUnreachable`, `StoreChanged`, `CallRefused`, `NoRetention`.
        """
        began_s, pause_s = time.monotonic(), FIRST_PAUSE_S
        limit_s = self._spec.right.store.storage.unreachable_for_s
        while True:
            try:
                return self._attempt(wanted, generations)
            except REFUSED as error:
                raise refused(self._spec.name, error) from error
            except (StorageError, StoreChanged, ClockBehind) as error:
                waited_s = time.monotonic() - began_s
                where = (
                    f"namespace {self._spec.right.store.storage.namespace!r} of {self._spec.right.store.storage.url}"
                )
                if waited_s + pause_s > limit_s:
                    if isinstance(error, StoreChanged):
                        raise
                    raise StoreUnreachable(
                        f"{where} gave no usable answer for {waited_s:.0f} s ({error}); {_remedy(error)}, then this "
                        "job continues from its checkpoint"
                    ) from error
                log.warning(
                    "%s waits for %s: %s (for %.0f s now; the batch fails after %.0f s)",
                    self._spec.name,
                    where,
                    error,
                    waited_s,
                    limit_s,
                )
            time.sleep(pause_s * random.uniform(0.8, 1.2))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _attempt(self, wanted: pl.DataFrame, generations: Collection[str]) -> StoredRight:
        step, name = self._spec.right.store.storage.keys_per_request, self._spec.right.store.storage.namespace
        relied_on = self._generation or self._client.namespace(name).generation
        self._generation = ""
        parts = [wanted.slice(start, step) for start in range(0, len(wanted), step)]
        try:
            read = partial(read_right, self._spec, self._client, generation=relied_on)
            answers = list(self._pool.map(read, parts))
        except GenerationChanged as error:
            raise StoreChanged(f"{error}: {_REMEDY}") from error
        frames = zip(*answers, strict=True) if answers else zip(NOTHING, strict=True)
        right, *versions = (pl.concat(each, rechunk=True) for each in frames)
        right = right.drop("late")
        namespace = self._client.namespace(name)
        if namespace.generation != relied_on or (generations and relied_on not in generations):
            raise StoreChanged(
                f"namespace {name!r} has generation {namespace.generation} now, the checkpoint relies on "
                f"{' or '.join(sorted(generations)) or relied_on}: {_REMEDY}"
            )
        if (reason := store_ahead(namespace, wall_ms())) is not None:
            raise ClockBehind(reason)
        self._generation = relied_on
        check_keep(self._spec, namespace)
        return StoredRight(right, retained_from(namespace), namespace.keep is Keep.LATEST, *versions)


def _remedy(error: Exception) -> str:
    return "set the clock" if isinstance(error, ClockBehind) else "start the storage API"


NOTHING = (pl.DataFrame(schema=RIGHT_ROW), WANTED, WANTED)


def read_right(
    spec: JoinSpec, client: StorageClient, wanted: pl.DataFrame, generation: str | None = None
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Returns what a store of this generation holds of `wanted` (as in `RightStore.look_up`).

    These are the right records (`right_items.RIGHT_ROW`) and, of versions, those of `wanted` that were deleted, and
    those of which nothing is known. Raises `StorageError`, `RightRowUnreadable`.
    """
    times = wanted["time"].to_arrow() if "time" in wanted.columns else None
    answered = client.read_columns(spec.right.store.storage.namespace, wanted["key"].to_arrow(), generation, times)
    versions, deleted, unknown = pl.DataFrame(answered.items), WANTED, WANTED
    if spec.right.of_versions:
        over = is_delete(versions["value"])
        refused = pl.DataFrame(answered.rejected).filter(pl.col("status") == Status.NO_LONGER_STORED.value)
        asked = wanted if times is not None else wanted.with_columns(time=pl.lit(LATEST_MS))
        deleted, unknown = asked[versions["index"].filter(over)], asked[refused["index"]]
        versions = versions.filter(~over).unique(("version", "tag"), maintain_order=True)
    own = wanted["key"].gather(versions["index"])
    keyed = not spec.right.key_of.is_kafkas
    return from_items(own, versions["version"], versions["tag"], versions["value"], keyed=keyed), deleted, unknown


def check_keep(spec: JoinSpec, namespace: NamespaceBody) -> None:
    """Raises `CallRefused` if the namespace keeps versions and the join wants none, or the reverse."""
    if (namespace.keep is Keep.VERSIONS) == spec.right.of_versions:
        return
    if spec.right.of_versions:
        raise CallRefused(
            f"namespace {namespace.name!r} has `keep: {namespace.keep}`, and `join.before: unlimited` asks what right "
            "was at left's time: feed a namespace with `keep: versions`"
        )
    raise CallRefused(
        f"namespace {namespace.name!r} keeps versions, what right was and when: join it with `join: {{before: "
        "unlimited, policy: last}`; or feed a namespace with `keep: all`"
    )


def store_ahead(namespace: NamespaceBody, now_ms: int) -> str | None:
    """Says why the API's clock or ours must be wrong: live items would count as expired. None if it may be right."""
    ahead_ms = 0 if namespace.now_ms is None else namespace.now_ms - now_ms
    if ahead_ms <= CLOCK_TOLERANCE_MS:
        return None
    return (
        f"the clock of the storage API is {ahead_ms / 1_000:.0f} s ahead of the clock of this machine ({iso(now_ms)}), "
        "and may take live right records for expired: set the one that is wrong"
    )


def retained_from(namespace: NamespaceBody) -> int:
    """Returns the time from which right records are kept. Raises `NoRetention` if the namespace promises none."""
    if namespace.retained_from is None:
        raise NoRetention(
            f"namespace {namespace.name!r} promises no retention: a missing right record could have expired unseen; "
            "configure one of another name with `retention` at the storage API, and feed that"
        )
    return namespace.retained_from


def storage_client(at: StoreAddress, *, attempts: int, give_up_after_s: float, **more: Any) -> StorageClient:
    """Returns a client with at most `attempts` in `give_up_after_s`; `more` is passed to `StorageClient`."""
    return StorageClient(
        at.url,
        at.token,
        connect_timeout_s=at.connect_timeout_s,
        read_timeout_s=at.read_timeout_s,
        attempts=attempts,
        give_up_after_s=give_up_after_s,
        verify=at.ca_bundle or True,
        **more,
    )


def delay_client(at: DelayApi) -> DelayClient:
    """Returns a client with one retry: callers that wait for the delay ask again anyway."""
    return DelayClient(
        at.url,
        at.token,
        connect_timeout_s=at.connect_timeout_s,
        read_timeout_s=at.read_timeout_s,
        retries=1,
        verify=at.ca_bundle or True,
    )


def refused(name: str, error: StorageError) -> CallRefused:
    """Returns the error for a job that the storage API refused. It says what to correct."""
    if isinstance(error, WrongServer):
        return CallRefused(f"no storage API for {name!r}: {error}; correct `storage.url`")
    return CallRefused(
        f"the storage API refuses {name!r}: {error}; correct `storage` (url, namespace, token), or what the API is "
        "configured to allow"
    )


def delay_refused(name: str, error: DelayError) -> CallRefused:
    """Returns the error for a job that the Data Delay API refused. It says what to correct."""
    if isinstance(error, DelayWrongServer):
        return CallRefused(f"no Data Delay API for {name!r}: {error}; correct `delay.url`")
    return CallRefused(f"the Data Delay API refuses {name!r}: {error}; correct `delay.token`")


STORE_POLL_EVERY_S = 1.0


class NotKnown(Exception):
    """How far right is stored is unknown; the message says why. Handled within `joins.lookup`."""


ApiAnswers = tuple[Delay, str] | NotKnown
"""The delay and the store's generation, or why they are not known."""


@dataclass(slots=True)
class BothApis:
    """One process's connections to both APIs."""

    spec: JoinSpec
    delays: DelayClient
    storage: StorageClient
    store_ms: int | None = None  # the storage API's clock at the last request
    _store: str = ""
    _polled_at_s: float = 0.0

    @classmethod
    def connected(cls, spec: JoinSpec) -> BothApis:
        """Creates a client for each API, without calling either."""
        return cls(spec, delay_client(spec.right.store.delay), lookup_client(spec))

    def ask(self) -> tuple[Delay, str]:
        """Returns the delay and the store's generation; raises `NotKnown` if either is unavailable.

        Raises `CallRefused`, and `NoRetention` if the namespace promises no retention.
        """
        delay = self.spec.right.store.delay
        try:
            delay_read = self.delays.read(delay.consumer, self.spec.right.topic)
        except DelayNotFound as error:
            raise NotKnown(f"the Data Delay API knows no such consumer yet: {error}") from error
        except DELAY_REFUSED as error:
            raise delay_refused(self.spec.name, error) from error
        except DelayCallFailed as error:
            raise NotKnown(f"the Data Delay API does not answer: {error}") from error
        try:
            return delay_read, self._store_generation()
        except REFUSED as error:
            raise refused(self.spec.name, error) from error
        except StorageError as error:
            raise NotKnown(f"the storage API does not answer: {error}") from error

    def _store_generation(self) -> str:
        if not self._store or time.monotonic() - self._polled_at_s > STORE_POLL_EVERY_S:
            namespace = self.storage.namespace(self.spec.right.store.storage.namespace)
            retained_from(namespace)  # fail now rather than at the first look-up
            check_keep(self.spec, namespace)
            self._store, self.store_ms = namespace.generation, namespace.now_ms
            self._polled_at_s = time.monotonic()
        return self._store

    def close(self) -> None:
        """Closes both clients."""
        self.delays.close()
        self.storage.close()


def lookup_client(spec: JoinSpec) -> StorageClient:
    """Returns a client with few attempts, because the caller itself retries and logs what it waits for."""
    at = spec.right.store.storage
    return storage_client(at, attempts=3, give_up_after_s=5.0, items_per_request=at.keys_per_request)
