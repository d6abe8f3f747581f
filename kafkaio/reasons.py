"""Why a record or a row is where it is: the values of `reason` in rows, and of the header `teacup.reason`. Pure.

The docstring of each is its row in docs/reference.md: the outcome that it is a reason of, then when it is given.
"""

from __future__ import annotations

NO_CANDIDATE = "no_candidate"
"""unmatched: no right record of its key lies in the interval."""

RIGHT_STALLED = "right_stalled"
"""unmatched: right made no progress for `max_wait`."""

NO_LONGER_STORED = "no_longer_stored"
"""unmatched: the store may have expired its match (`on_expired: unmatched` of a lookup join)."""

NULL_KEY = "null_key"
"""unmatched, unjoined: the record has no key."""

EXPIRED = "expired"
"""unjoined: the right record appears in no output row and never will."""

NO_TIME = "no_time"
"""dead_letter: the record has no event time, or one before 1970."""

FUTURE_TIME = "future_time"
"""dead_letter: its time is further ahead of the clock, or of its append, than `max_future_skew`."""

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
