"""The headers that Teacup adds to the records it writes, and the reasons that it gives in `teacup.reason`. Pure.

The docstring of each is its row in docs/reference.md: of a header its meaning, of a reason the outcome that it belongs
to, then when it is given. Rows name the same reasons in `reason`.
"""

from __future__ import annotations

PROVENANCE = "teacup"
"""Where the row or copy comes from, `1 LEFT RIGHT BATCH`: the positions of its records, and the batch that wrote it."""

PREFIX = PROVENANCE
"""Names of headers that begin so are ours; those of users must not."""

ID = "teacup.id"
"""Identifies a result: the value of `output.deduplicate.expression`."""

LATE = "teacup.late"
"""`true`: the record was late."""

TOPIC = "teacup.topic"
"""Side topics: the topic of the copied record."""

OUTCOME = "teacup.outcome"
"""Side topics: the outcome of the row that the copy is about. Corrections: `withdrawn`, if there is no such row."""

REASON = "teacup.reason"
"""Side topics and corrections: why the record is there."""

SIZE = "teacup.size"
"""Dead letters with the reason `too_large`: the bytes of the row."""

LIMIT = "teacup.limit"
"""Dead letters with the reason `too_large`: the limit in bytes, and whose it is."""

EXPRESSION = "teacup.expression"
"""Dead letters with the reason `select_failed`: `key`, `value` or `headers`; `schema_mismatch`: `left.schema`, …"""

TIME = "teacup.time"
"""The record's own time in milliseconds, if the topic refuses it as a timestamp."""

CORRECTS = "teacup.corrects"
"""Corrections: the row of the output that this one replaces or withdraws, `LEFT RIGHT` as in `teacup`."""

UNREADABLE = "teacup.unreadable"
"""`headers`: the record has a header whose name is not UTF-8; this one is in place of all of them."""

OMITTED = "teacup.omitted"
"""What was left out of a copy that is too large for its topic: `value`, `headers`, `key`."""


NO_CANDIDATE = "no_candidate"
"""unmatched: no right record of its key lies in the interval."""

RIGHT_STALLED = "right_stalled"
"""unmatched, correction: right made no progress for `max_wait`."""

NO_LONGER_STORED = "no_longer_stored"
"""unmatched, correction: the store may have expired its match (`on_expired: unmatched` of a lookup join)."""

DELETED = "deleted"
"""unmatched: right had been deleted at left's time (`before: unlimited` of a lookup join)."""

NULL_KEY = "null_key"
"""unmatched, unjoined: the record has no key."""

EXPIRED = "expired"
"""unjoined: the right record appears in no output row and never will."""

NO_TIME = "no_time"
"""dead_letter: the record has no event time, one before 1970, or one that does not exist, such as 30 February."""

NO_ZONE = "no_zone"
"""dead_letter: its time is a text without a zone, and its side has no `time_zone`."""

FUTURE_TIME = "future_time"
"""dead_letter: its time is further ahead of the clock, or of its append, than `max_future_skew`."""

TOMBSTONE = "tombstone"
"""dead_letter, skipped: the record has no value, and its side has `tombstones`."""

WHERE = "where"
"""skipped: the record does not fit the `where` of its side."""

INVALID_JSON = "invalid_json"
"""dead_letter: with `format: json`, the value is not JSON."""

INVALID_TEXT = "invalid_text"
"""dead_letter: with `format: text` or `json`, the value is not UTF-8."""

INVALID_AVRO = "invalid_avro"
"""dead_letter: the value has no frame of a schema registry, or is not of the schema that it names."""

INVALID_PROTOBUF = "invalid_protobuf"
"""dead_letter: the same, with `format: protobuf`."""

UNKNOWN_SCHEMA = "unknown_schema"
"""dead_letter: the schema registry has no schema of the value's id."""

INVALID_KEY = "invalid_key"
"""dead_letter: the field of the join key holds what cannot be a key, such as an object or a fraction."""

REJECTED = "rejected"
"""dead_letter: the storage API does not accept it from the feeder; its reason follows after a colon."""

TOO_LARGE = "too_large"
"""dead_letter: the row is larger than the output topic or the producer allows; the left record is copied."""

SELECT_FAILED = "select_failed"
"""dead_letter: an expression of `output.select` fails on the row; the left record is copied."""

SCHEMA_MISMATCH = "schema_mismatch"
"""dead_letter: a value of the row is not of the `schema` of its side, with `on_mismatch`; the left record is copied."""

LATE_RIGHT = "late_right"
"""correction: a right record came, or was stored, after the left record had gone."""

LATE_LEFT = "late_left"
"""correction: the left record was late, and right records had expired."""

MISSING_ROW = "missing"
"""correction: the left record has no row in the output."""

WRONG_ROW = "wrong"
"""correction: `teacup audit` names the row as a fault, such as one from a store that had lost records."""

OTHER_ROW = "other_row"
"""correction: of the type `full`, a corrected row takes this right record, or no longer has it."""

UNWRITABLE = (TOO_LARGE, SELECT_FAILED, SCHEMA_MISMATCH)
"""Why a row that was joined becomes a dead letter."""

DEAD_REASONS = (
    *(NO_TIME, NO_ZONE, FUTURE_TIME, INVALID_JSON, INVALID_TEXT, INVALID_AVRO, INVALID_PROTOBUF),
    *(UNKNOWN_SCHEMA, INVALID_KEY, REJECTED, *UNWRITABLE),
)
"""Why a record, or a row, becomes a dead letter."""
