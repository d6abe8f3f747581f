"""The headers that Teacup adds to the records it writes: a name and its meaning, as in docs/reference.md. Pure."""

from __future__ import annotations

PREFIX = "teacup."
"""Names of headers that begin so are ours; those of users must not."""

LEFT = "teacup.left"
"""Position of the left record: `partition:offset`."""

RIGHT = "teacup.right"
"""Position of the right record: `partition:offset`; missing if there is none."""

BATCH = "teacup.batch"
"""At-least-once output: which batch of which job wrote the row, as `origin:number`."""

ID = "teacup.id"
"""Identifies a result: the value of `output.deduplicate.expression`."""

LATE = "teacup.late"
"""`true`: the record was late."""

TOPIC = "teacup.topic"
"""Side topics: the topic of the copied record."""

OUTCOME = "teacup.outcome"
"""Side topics: the outcome of the row that the copy is about."""

REASON = "teacup.reason"
"""Side topics: why the record is there."""

SIZE = "teacup.size"
"""Dead letters with the reason `too_large`: the bytes of the row."""

LIMIT = "teacup.limit"
"""Dead letters with the reason `too_large`: the limit in bytes, and whose it is."""

EXPRESSION = "teacup.expression"
"""Dead letters with the reason `select_failed`: `key`, `value` or `headers`."""

TIME = "teacup.time"
"""The record's own time in milliseconds, if the topic refuses it as a timestamp."""

UNREADABLE = "teacup.unreadable"
"""`headers`: the record has a header whose name is not UTF-8; this one is in place of all of them."""

OMITTED = "teacup.omitted"
"""What was left out of a copy that is too large for its topic: `value`, `headers`, `key`."""
