"""Opens the back end that a URL names. Creates namespaces that the store does not have yet, and refuses contradictions.

lmdb:///var/lib/teacup/storage?map_size=32GiB&sync=yes    the folder; map_size: how large it may grow
aerospike://host:3000,other:3000/namespace                Aerospike's hosts, and its namespace
redis://user:password@host:6379/0?sync=no                 Redis, or Valkey; rediss: with TLS. The database's number
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from teacup.base.config.keys import instead
from teacup.base.fields import without_password
from teacup.base.now import wall_ms
from teacup.storage.backends.aerospike.store import AerospikeStore
from teacup.storage.backends.lmdb.store import DEFAULT_MAP_BYTES, LmdbStore
from teacup.storage.errors import StorageConfigInvalid, StorageError
from teacup.storage.model import Backend, Namespace

ClockMs = Callable[[], int]
Opener = Callable[[ClockMs], Backend]

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_YES_NO = {"yes": True, "no": False}
_UNREADABLE = (
    "store: this URL cannot be read; percent-encode what is special in user, password and path: %40 for @, %2F for "
    "/, %3A for :, %23 for #, %3F for ?, %5B for ["
)
_TLS_FILES = ("ca_bundle", "tls_certificate", "tls_key")


def open_backend(url: str, namespaces: Sequence[Namespace], clock_ms: ClockMs = wall_ms) -> Backend:
    """Opens the back end of `url` for these namespaces.

    clock_ms   the clock that those of the store's servers are compared with

    Raises `StorageConfigInvalid` (the URL, or a namespace that contradicts what is stored) and `StorageUnavailable`.
    """
    backend = parsed(url)(clock_ms)
    refused: list[StorageError] = []
    try:
        for namespace in namespaces:
            try:
                backend.declare(namespace)
            except StorageError as error:
                refused.append(error)  # so that the other namespaces, too, record what is found
        if refused:
            raise refused[0]
    except BaseException:
        backend.close()
        raise
    return backend


def has_clocks(url: str) -> bool:
    """Returns whether the store has servers, whose clocks are compared with ours."""
    return _parts(url).scheme != "lmdb"


def parsed(url: str) -> Opener:
    """Returns a function that opens the back end of `url`. Connects to nothing. Raises `StorageConfigInvalid`."""
    parts = _parts(url)
    url = without_password(url)  # for messages
    if parts.scheme not in _SCHEMES:
        schemes = ", ".join(f"{scheme}:" for scheme in _SCHEMES)
        raise StorageConfigInvalid(f"store {url!r}: back ends are {schemes}; e.g. lmdb:///var/lib/teacup/storage")
    return _SCHEMES[parts.scheme](url, parts)


def _parts(url: str) -> SplitResult:
    """Raises `StorageConfigInvalid` without showing the URL, as the wrong part may be the password."""
    try:
        parts = urlsplit(url)
        if "," not in parts.netloc:  # Aerospike may have several hosts
            parts.port  # noqa: B018 - raises ValueError
    except ValueError:
        raise StorageConfigInvalid(_UNREADABLE) from None
    if parts.fragment or "@" in parts.query:
        raise StorageConfigInvalid(_UNREADABLE)
    return parts


def _lmdb(url: str, parts: SplitResult) -> Opener:
    options = _options(url, parts, {"map_size", "sync"})
    if parts.netloc or not parts.path.strip("/"):
        raise StorageConfigInvalid(
            f"store {url!r}: name a folder with three slashes, as lmdb:///var/lib/teacup/storage"
        )
    size = options.get("map_size")
    map_bytes = DEFAULT_MAP_BYTES if size is None else _bytes(url, size)
    sync = _sync(url, options, "no")
    return lambda _: LmdbStore(Path(parts.path), map_bytes=map_bytes, sync=sync)


def _aerospike(url: str, parts: SplitResult) -> Opener:
    _options(url, parts, set())
    namespace = parts.path.strip("/")
    hosts = [re.fullmatch(r"([^:]+|\[.+\]):([0-9]{1,5})", host) for host in parts.netloc.split(",")]
    if not namespace or "/" in namespace or None in hosts:
        raise StorageConfigInvalid(f"store {url!r}: write aerospike://host:3000,other:3000/namespace")
    named = [(match[1].strip("[]"), int(match[2])) for match in hosts if match is not None]
    return lambda clock_ms: AerospikeStore(named, namespace, clock_ms=clock_ms)


def _redis(url: str, parts: SplitResult) -> Opener:
    from teacup.storage.backends.redis.server import RedisAt
    from teacup.storage.backends.redis.store import RedisStore  # an extra of its own

    options = _options(url, parts, {"sync", "timeout_s", *_TLS_FILES})
    database = parts.path.strip("/") or "0"
    if not parts.hostname or "," in parts.netloc or not database.isdecimal():
        raise StorageConfigInvalid(f"store {url!r}: write redis://host:6379/0, 0 being the database")
    files = {name: Path(options[name]) for name in _TLS_FILES if name in options}
    if files and parts.scheme != "rediss":
        raise StorageConfigInvalid(f"store {url!r}: {sorted(files)} are for TLS: write rediss:")
    for name, file in files.items():
        if not file.is_file():
            raise StorageConfigInvalid(f"store {url!r}: {name} {str(file)!r} is not a file")
    at = RedisAt(
        parts.hostname,
        parts.port or 6379,
        int(database),
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
        timeout_s=_timeout_s(url, options.get("timeout_s", "5")),
        **files,
    )
    sync = _sync(url, options, "yes")
    return lambda clock_ms: RedisStore(at, sync=sync, clock_ms=clock_ms)


_SCHEMES: Mapping[str, Callable[[str, SplitResult], Opener]] = {
    "lmdb": _lmdb,
    "aerospike": _aerospike,
    "redis": _redis,
    "rediss": _redis,
}


def _sync(url: str, options: Mapping[str, str], default: str) -> bool:
    sync = options.get("sync", default)
    if sync not in _YES_NO:
        raise StorageConfigInvalid(f"store {url!r}: sync is yes or no, not {sync!r}")
    return _YES_NO[sync]


def _timeout_s(url: str, seconds: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", seconds) or not 0 < float(seconds) < 3_600:
        raise StorageConfigInvalid(
            f"store {url!r}: timeout_s {seconds!r} is not a number of seconds; write timeout_s=5"
        )
    return float(seconds)


def _options(url: str, parts: SplitResult, allowed: set[str]) -> Mapping[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    unknown = sorted({name for name, _ in pairs} - allowed)
    if unknown:
        what = "; ".join(f"unknown option {name!r}: {instead(name, sorted(allowed))}" for name in unknown)
        raise StorageConfigInvalid(f"store {url!r}: {what}")
    return dict(pairs)


def _bytes(url: str, size: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]*)([KMGT]iB)?", size)
    if match is None:
        raise StorageConfigInvalid(f"store {url!r}: map_size {size!r} is not understood; write 16GiB or 17179869184")
    return int(match[1]) * _UNITS[match[2] or ""]
