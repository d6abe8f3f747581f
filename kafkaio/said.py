"""What librdkafka says, without its guess that the broker is ten years old.

It makes that guess whenever a broker that has accepted a connection does not answer the first request: one that is
paused or overloaded, or something else that listens there.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

_GUESS = re.compile(
    r":? (probably due to|might be caused by|or) broker version (is )?< 0\.10 \(see api\.version\.request[^)]*\)"
)
_INSTEAD = ": it accepted the connection and did not answer (paused or overloaded, or no Kafka broker)"


def said(error: KafkaError) -> str:
    """Returns the text of an error."""
    return without_guess(error.str())


def said_with_name(error: KafkaError) -> str:
    """Returns the text of an error and the name of its code: `Broker: Not leader (NOT_LEADER_FOR_PARTITION)`."""
    return f"{said(error)} ({error.name()})"


def last_error(trouble: KafkaError | None) -> str:
    """Returns the end of a message about a call that took too long: what librdkafka reported last, if anything."""
    return "" if trouble is None else f"; the last error: {said(trouble)}"


def without_guess(text: str) -> str:
    """Returns the text with what is certain in place of the guess."""
    return _GUESS.sub(_INSTEAD if "Timed out" in text else "", text)
