"""Safeguards taken out one at a time: each time, a test that `make test` runs must fail.

    make mutations                all of them, in ten minutes
    make mutations ONLY=expiry    those whose name contains a word
    python -m tests.mutations --check    only whether each safeguard is found in its file, and its tests exist

Works on a copy of the repository, from which the tests import the packages. A safeguard that is not found in its file
any more, or of which no test ran, counts as unnoticed: this list is then to be corrected.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from teacup.kafka.native import library
from tests.support.profiles import UNSHRUNK

ROOT = Path(__file__).parents[1]
TESTS_FAILED = 1  # pytest's exit code
LONGEST_S = 600


@dataclass(frozen=True, slots=True)
class Mutation:
    """name: what is no longer done; old -> new in `file`; tests: where it must be noticed, as pytest selects them"""

    name: str
    file: str
    old: str
    new: str
    tests: str


PROPERTIES = "tests/joins/window/test_join_properties.py"
RECEIPT = "teacup/kafka/delivery/receipt.py"
DELIVERY = "teacup/kafka/delivery/delivery.py"
FENCING = "teacup/kafka/delivery/fencing.py"
GROUPS = "tests/teacup/kafka/delivery/test_delivery_groups.py"
LOSSES = "teacup/kafka/log/losses.py"
AUDIT = "tests/deploy/inspection/audit/test_compare.py"

MUTATIONS = (
    Mutation(
        "left waits for right's `after`",
        "joins/batch/rules.py",
        "complete_ms = earliest_left(spec.right, right_ms) if",
        "complete_ms = right_ms if",
        "tests/joins/batch/test_rules.py",
    ),
    Mutation(
        "left is held back at the limit",
        "joins/read/range_gate.py",
        "beyond = times >= self.limit_ms if self.limit_ms < LATEST_MS else None",
        "beyond = None",
        PROPERTIES,
    ),
    Mutation(
        "the expiry leaves `before`",
        "joins/batch/rules.py",
        "max(earliest_right(right, watermark(watermarks_ms)), known_ms)",
        "max(watermark(watermarks_ms), known_ms)",
        "tests/joins/batch/test_rules.py",
    ),
    Mutation(
        "a block's median proves the watermark, not its newest record",
        "joins/read/range_gate.py",
        "medians[:, self.outliers].max()",
        "blocks.max()",
        "tests/joins/read/test_watermark_tracker.py",
    ),
    Mutation(
        "a watermark never goes back",
        "datadelay/watermark.py",
        "return max(min(watermark_ms, default=UNKNOWN), before_ms)",
        "return min(watermark_ms, default=UNKNOWN)",
        "tests/datadelay/test_watermark.py",
    ),
    Mutation(
        "an open transaction holds",
        "teacup/kafka/log/topic_log.py",
        "return self.stable == self.high",
        "return True",
        "tests/datadelay",
    ),
    Mutation(
        "joined right records are marked",
        "joins/window/window.py",
        "    def _mark(self",
        "    def _mark(self, *_: object) -> None:\n        return\n\n    def _marked(self",
        PROPERTIES,
    ),
    Mutation(
        "each bucket has a window of its own",
        "joins/window/bolt.py",
        "key = (ticket.generation, ticket.name_of_part)",
        'key = (ticket.generation, "0")',
        "tests/joins/window/test_wrong_partitions.py",
    ),
    Mutation(
        "records of different partitions do not match on the direct path",
        "joins/window/match.py",
        'partitions=probing["partition"].to_numpy()[by_hash] if apart else None,',
        "partitions=None,",
        "tests/joins/window/test_match.py",
    ),
    Mutation(
        "a slice's checksum",
        "joins/window/slice_files.py",
        'if content.size != head.get("length") or _checksum(head, content) != head.get("crc"):',
        'if content.size != head.get("length"):',
        "tests/joins/window/test_slice_files.py",
    ),
    Mutation(
        "a receipt's digest",
        RECEIPT,
        "if receipt.digest != batch.digest:",
        "if False:",
        "tests/teacup/kafka/delivery/test_receipt.py tests/teacup/kafka/delivery/test_delivery_simulated.py",
    ),
    Mutation(
        "a receipt's generation",
        RECEIPT,
        "if receipt.generation != batch.generation:",
        "if False:",
        "tests/teacup/kafka/delivery/test_receipt.py tests/teacup/kafka/delivery/test_delivery_simulated.py",
    ),
    Mutation(
        "a batch that is in is not written again",
        RECEIPT,
        "return WrittenSoFar(receipt.rows, receipt.done, receipt.sent, receipt.reached)",
        "return NOTHING_IN",
        "tests/teacup/kafka/delivery/test_receipt.py tests/teacup/kafka/delivery/test_delivery_simulated.py",
    ),
    Mutation(
        "acknowledged records are counted",
        "teacup/kafka/write/writer.py",
        "if self.sent != expected or self.acknowledged != expected:",
        "if False:",
        "tests/teacup/kafka/delivery",
    ),
    Mutation(
        "a producer is not reused after a commit that was perhaps sent twice",
        DELIVERY,
        "if transactions.perhaps_sent_twice:",
        "if False:",
        "tests/teacup/kafka/delivery",
    ),
    Mutation(
        "each bucket of a task has a receipt of its own",
        FENCING,
        'is the receipt."""\n        return self.transactional_id',
        'is the receipt."""\n        return self.transactional_id.rpartition(\'/\')[0]',
        GROUPS,
    ),
    Mutation(
        "a producer is not reused after another process had its bucket",
        DELIVERY,
        "if made.handled != before or made.connections.has_lost_one:",
        "if made.connections.has_lost_one:",
        GROUPS,
    ),
    Mutation(
        "a feeder's positions are not set by hand",
        "datadelay/positions/group.py",
        "    store = store_in(note)",
        "    store = None",
        "tests/datadelay/test_offsets_command.py",
    ),
    Mutation(
        "positions that name no store are no claim about it",
        "datadelay/publish.py",
        "submission = _without_claim(before.last, submission)",
        "pass",
        "tests/datadelay/api/test_publish_rules.py",
    ),
    Mutation(
        "what lies before a start is looked at",
        "teacup/kafka/log/time_search.py",
        "if at >= answer.time_ms]",
        "if False]",
        "tests/joins/plan/start/test_positions.py",
    ),
    Mutation(
        "left that was deleted unread is not looked for",
        "joins/plan/log_checks.py",
        "Bound(end, future_ms=EARLIEST_MS)",
        "Bound(end)",
        "tests/joins/window/test_deleted.py",
    ),
    Mutation(
        "positions are renewed",
        "teacup/kafka/log/groups.py",
        ", pause_s)",
        ")",
        "tests/teacup/kafka/log/test_latest_offsets.py",
    ),
    Mutation(
        "a bucket that is added says which batch is its first",
        "joins/plan/log_checks.py",
        ", since=state.number + 1\n",
        "\n",
        "tests/joins/lookup/test_lookup_held.py",
    ),
    Mutation(
        "deleted records stop the job",
        LOSSES,
        "if lost and not self.continues:",
        "if False:",
        "tests/teacup/kafka/log/test_losses.py tests/joins/plan/test_log_checks.py",
    ),
    Mutation(
        "a truncated partition stops the job",
        LOSSES,
        "if position > ends.high:",
        "if False:",
        "tests/teacup/kafka/log/test_losses.py tests/joins/plan/test_log_checks.py",
    ),
    Mutation(
        "a recreated topic stops the job",
        LOSSES,
        "if topic_id != known_id:",
        "if False:",
        "tests/teacup/kafka/log/test_losses.py tests/joins/plan/test_log_checks.py",
    ),
    Mutation(
        "results delivered and refused add up",
        "deploy/output/accounts.py",
        "if self.results != self.delivered + refused + self.left_out:",
        "if False:",
        "tests/deploy/output",
    ),
    Mutation(
        "left records read and rows delivered add up",
        "deploy/output/accounts.py",
        "if (read, joined) != (self.lefts, self.received):",
        "if False:",
        "tests/deploy/output",
    ),
    Mutation(
        "a task's second attempt loads the output",
        "dedup/restart/deduplicator.py",
        "if attempt.earlier:",
        "if False:",
        "tests/dedup/restart/test_deduplicator.py",
    ),
    Mutation(
        "what an attempt delivered is seen",
        "dedup/restart/deduplicator.py",
        "self._seen.take_over(self._under_way)",
        "pass",
        "tests/dedup/restart/test_deduplicator.py",
    ),
    Mutation(
        "a time from the future is invalid",
        "teacup/kafka/records/record.py",
        "pc.less_equal(times, ceilings)",
        "pc.less_equal(times, pa.scalar(2**62, pa.int64()))",
        f"tests/teacup/kafka/records/test_record.py {PROPERTIES}",
    ),
    Mutation(
        "an older item does not replace a newer one",
        "teacup/storage/backends/entries.py",
        "return (_CONFLICT, None) if newer else (_OK, pack(item))",
        "return _OK, pack(item)",
        "tests/teacup/storage/backends",
    ),
    Mutation(
        "what a clock takes for expired is recorded",
        "teacup/storage/backends/namespaces.py",
        "return self if is_noted else replace(self, horizon=moment.gone_below)",
        "return self",
        "tests/teacup/storage/backends/test_clocks.py",
    ),
    Mutation(
        "a jump of the storage API's clock does not count",
        "teacup/http/server/serving.py",
        "return reading.steady_ms",
        "return reading.wall_ms",
        "tests/teacup/http/server/test_steady_clock.py",
    ),
    Mutation(
        "the clock of a Redis server is compared before anything is recorded",
        "teacup/storage/backends/redis/witnesses.py",
        "if not wrong and clock is None:",
        "if not wrong:",
        "tests/teacup/storage/backends/test_clocks.py",
    ),
    Mutation(
        "an audit finds a left record without a row",
        "deploy/inspection/audit/verify/joined.py",
        "j.t, 'it has no row'\n            FROM verified j",
        "j.t, 'it has no row'\n            FROM (SELECT * FROM verified WHERE false) j",
        AUDIT,
    ),
    Mutation(
        "an audit finds a row that is there twice",
        "deploy/inspection/audit/verify/joined.py",
        'else "nth_of_left > 1"',
        'else "false"',
        AUDIT,
    ),
    Mutation(
        "an audit decides a tie of two equally near records",
        "deploy/inspection/audit/verify/joined.py",
        "j.t - b.t <= f.t - j.t",
        "j.t - b.t < f.t - j.t",
        AUDIT,
    ),
    Mutation(
        "an audit decides a tie by the smallest position",
        "deploy/inspection/audit/verify/joined.py",
        "min(pos) AS first",
        "max(pos) AS first",
        AUDIT,
    ),
    Mutation(
        "an audit compares what rows say",
        "deploy/inspection/audit/verify/contents.py",
        'altered = matched & right_there & ~says(head.then(right).then(ends[""]))',
        "altered = matched & ~matched",
        AUDIT,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a word of the name")
    parser.add_argument("--check", action="store_true", help="run no test")
    asked = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if asked.only in mutation.name]
    if asked.check:
        faults = [f"{mutation.name}: {fault}" for mutation in chosen if (fault := misplaced(mutation, ROOT))]
        print("\n".join(faults) or f"{len(chosen)} safeguards are where this list says", flush=True)
        return 1 if faults or not chosen else 0
    with tempfile.TemporaryDirectory(prefix="teacup-mutations-") as folder:
        copy = _copied(Path(folder, "teacup"))
        unnoticed = [mutation.name for mutation in chosen if not _is_noticed(mutation, copy)]
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} missing safeguards are noticed", flush=True)
    return 1 if unnoticed or not chosen else 0


def _copied(to: Path) -> Path:
    """What git tracks, as it is now, and the C library."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    built = str(library.path().relative_to(ROOT))
    for name in [*filter(None, listed.decode().split("\0")), built]:
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def misplaced(mutation: Mutation, root: Path) -> str:
    """Why the safeguard cannot be taken out of the repository in `root`, or not be tested; empty if it can."""
    file = root / mutation.file
    if not file.is_file():
        return f"there is no {mutation.file}"
    times = file.read_text().count(mutation.old)
    if times != 1:
        return f"found {times} times in {mutation.file}, not once: {mutation.old.strip()}"
    missing = [path for path in mutation.tests.split() if not (root / path).exists()]
    return f"there is no {', '.join(missing)}" if missing else ""


def _is_noticed(mutation: Mutation, copy: Path) -> bool:
    began_s = time.monotonic()
    verdict = misplaced(mutation, copy)
    if not verdict:
        file = copy / mutation.file
        text = file.read_text()
        file.write_text(text.replace(mutation.old, mutation.new))
        try:
            verdict = _tested(mutation, copy)
        finally:
            file.write_text(text)
    print(f"{mutation.name:<70} {time.monotonic() - began_s:5.0f} s  {verdict or 'noticed'}", flush=True)
    return not verdict


def _tested(mutation: Mutation, copy: Path) -> str:
    """Empty if a test fails, else why that does not show anything."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", *mutation.tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "TEACUP_PROFILE": UNSHRUNK}
    ran = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    if ran.returncode == TESTS_FAILED:
        return ""
    return f"UNNOTICED: pytest ended with {ran.returncode}; {ran.stdout.strip().splitlines()[-1:]}"


if __name__ == "__main__":
    sys.exit(main())
