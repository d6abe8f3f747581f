"""What a lookup join would meet in the store, and at the gate in front of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from configfile.durations import written
from datadelay.model import Delay
from deploy.check.findings import Finding, error, ok, warning
from joins.admission.keysample import ENOUGH, Sample
from joins.lookup.gate import STORE, judge
from joins.lookup.spec import LookupSpec
from kafkaio.exitcode import ExitCode
from kafkaio.times import iso
from storage.model import Keep
from storage.wire import NamespaceBody


def of_retention(namespace: NamespaceBody, needed_ms: int) -> Finding:
    """Says whether right records live as long as the join needs them."""
    kept_ms = namespace.retention_ms or 0
    text = f"namespace {namespace.name!r} keeps records for {written(kept_ms)}"
    if kept_ms >= needed_ms:
        return ok("storage", text)
    return error(
        "storage",
        f"{text}, and the join needs {written(needed_ms)}: use a namespace of another name, as no retention can be "
        "raised",
        ExitCode.DATA_LOSS,
    )


def of_keep(namespace: NamespaceBody) -> Iterator[Finding]:
    """Says whether a right record replaces another one of its key."""
    if namespace.keep is Keep.LATEST:
        yield warning(
            "storage.keep",
            f"namespace {namespace.name!r} keeps only the latest right record of a key (`keep: latest`): if keys "
            "repeat within the window, the one that a left record looks for may have been replaced; feed a namespace "
            "with `keep: all`",
        )


def of_window(spec: LookupSpec, retained_from_ms: int, unread: Sample) -> Iterator[Finding]:
    """Says whether the windows of the left records that are read next are still stored."""
    wanted = sorted(
        at - spec.before_ms
        for p, keys in unread.keys.items()
        for key, at in zip(keys, unread.times[p], strict=True)
        if key is not None and at is not None
    )
    if not wanted:
        return
    gone = sum(at < retained_from_ms for at in wanted)
    kept = f"right records are kept from {iso(retained_from_ms)} on"
    if not gone:
        yield ok("storage.retained", f"{kept}; the next left records look for them from {iso(wanted[0])} on")
        return
    text = f"{kept}, and {gone} of the next {len(wanted)} left records look for them from {iso(wanted[0])} on"
    if spec.on_expired == "unmatched":
        yield warning("storage.retained", f"{text}: they will be unmatched, with the reason no_longer_stored")
        return
    yield error(
        "storage.retained",
        f"{text}: feed a namespace of another name from as far back, and start a new checkpoint; or start later "
        "(`start: TIME`); or have such left records written unmatched (`on_expired: unmatched`)",
        ExitCode.DATA_LOSS,
    )


def of_stored_keys(namespace: str, asked: int, found: int) -> Iterator[Finding]:
    """Says whether the store knows any key of the left records that are read next."""
    text = f"of {asked} keys of the next left records {found} are stored in namespace {namespace!r}"
    if found:
        yield ok("storage.keys", text)
    elif asked >= ENOUGH:
        yield warning(
            "storage.keys",
            f"{text}: perhaps their right records are not fed yet; otherwise feeder and join have different keys "
            "(`right.key`, `left.key`), or different namespaces",
        )


def of_gate(spec: LookupSpec, delay: Delay, store: str | None, pinned: Mapping[str, object]) -> Finding:
    """Says whether left may go.

    store    the generation of the store; None: not known
    pinned   the generations that the checkpoint began with; empty for a new one
    """
    if store is None:
        store = delay.store_generation or ""
        pinned = {name: value for name, value in pinned.items() if name != STORE}
    verdict = judge(delay, store, pinned, spec.accepted_generations)
    if verdict.shut:
        return error("delay", f"left would wait for ever: {verdict.waits_for}", ExitCode.CHECKPOINT)
    if verdict.waits_for is not None:
        return warning("delay", f"left would wait: {verdict.waits_for}")
    return ok("delay", f"{delay.consumer!r} has stored {delay.topic!r} up to {iso(verdict.frontier_ms)}")
