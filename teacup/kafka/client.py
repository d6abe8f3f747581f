"""librdkafka configurations: our defaults, overridden by the user's properties, except what would lose data.

Every property is passed through, including TLS and SASL. Properties are refused if they would silently lose records or
break what this package's reading and writing relies on. Secrets must not reach a log: show configurations as `masked`.

This module also handles what librdkafka reports, in its log and as errors: whether a call may work later
(`is_transient`, `retried`), and which error of ours it becomes (`translate`). librdkafka guesses that a broker is ten
years old whenever one that has accepted a connection does not answer the first request: because it is paused or
overloaded, or because something else listens there. That guess is removed.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import tenacity
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from teacup.base.config.secret_files import read_now
from teacup.base.fields import MASK, is_secret
from teacup.base.logs import LIBRDKAFKA, sparse
from teacup.base.now import wall_ms
from teacup.kafka.errors import AccessRefused, ConfigError, KafkaIOError, KafkaUnavailable, NotLetIn, TopicMissing
from teacup.kafka.rotation import TOKEN, follow, rotates, token_now, watch_certificate

T = TypeVar("T")

log = sparse("teacup.kafka.client")
librdkafka = sparse(LIBRDKAFKA)
"""librdkafka's messages. Its INFO does not report progress: it names each connection that is closed."""
librdkafka.setLevel(logging.WARNING)


def is_usual(message: str) -> bool:
    """Returns whether librdkafka only reports what happens at many starts and what it retries by itself.

    A coordinator that loads its part of `__transaction_state`, or has just moved, gives this answer for a moment.
    """
    return "GETPID" in message and any(why in message for why in _FOR_A_MOMENT)


_FOR_A_MOMENT = ("Coordinator load in progress: retrying", "Not coordinator: retrying")


REQUEST_TIMEOUT_S = 20.0
RETRY_TIMEOUT_S = 60.0
MISSING_GRACE_S = 3.0
LEARN_TIMEOUT_S = 2.0
SAY_AFTER_S = 3.0

# librdkafka waits half the first back-off between two connections of a client, even if none has failed: with its
# default of 100 ms, a client that needs two connections takes 50 ms longer. By default it waits for up to 10 s between
# two attempts at a broker that is down, and so may notice that much later that it is back.
_COMMON: Mapping[str, Any] = {"client.id": "teacup", "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 1_000}
# librdkafka requires a group id even if nobody joins a group; nothing is ever committed to this one.
_CONSUMER: Mapping[str, Any] = {
    "group.id": "teacup-reader",
    # While no broker can be reached, librdkafka starts over and over at the bootstrap addresses, each time with this
    # back-off. With 20 ms the eight consumers of a reader took 0.4 cores, which the broker needs to start.
    "reconnect.backoff.ms": 100,
    # How long a partition waits after an error, mostly because its leader has changed or has a new epoch. A planner
    # looks at one topic after the other, and then come the tasks: with the default of 500 ms that took more than a
    # second.
    "fetch.error.backoff.ms": 50,
    "isolation.level": "read_committed",
    "topic.metadata.propagation.max.ms": 5_000,  # how long a missing topic may still be in creation
}
_CONSUMER_FIXED: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
TRANSACTION_TIMEOUT_MS = 10_000  # how long readers wait for a transaction that a dead writer left open
_PRODUCER: Mapping[str, Any] = {"partitioner": "murmur2_random"}
# Once no broker can be reached, librdkafka would forget them all and start over at the bootstrap addresses. But it
# keeps a group's coordinator, and then waits for one that no longer exists (its issue 5511). A transactional producer
# need not start over: after a failure it is replaced.
_TRANSACTIONAL: Mapping[str, Any] = {"metadata.recovery.strategy": "none"}
_PRODUCER_FIXED: Mapping[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": True,
}

# property -> (allowed values, why the others are refused)
_REFUSED: Mapping[str, tuple[frozenset[str], str]] = {
    "enable.auto.commit": (
        frozenset({"false"}),
        "positions are kept by the job; an automatic commit would skip records",
    ),
    "enable.auto.offset.store": (frozenset({"false"}), "positions are kept by the job"),
    "auto.offset.reset": (frozenset({"error"}), "a reset would skip records that retention has deleted, silently"),
    "enable.partition.eof": (frozenset({"true"}), "it marks the end of a range"),
    "enable.idempotence": (frozenset({"true"}), "without it retries lose the order of records and duplicate them"),
    "acks": (frozenset({"all", "-1"}), "records acknowledged by one broker alone are lost with it"),
    "request.required.acks": (frozenset({"all", "-1"}), "records acknowledged by one broker alone are lost with it"),
    "delivery.report.only.error": (
        frozenset({"true"}),
        "a record without a failure report counts as acknowledged",
    ),
    "isolation.level": (frozenset({"read_committed", "read_uncommitted"}), "Kafka has no other"),
    "sasl.oauthbearer.metadata.authentication.type": (
        frozenset({"none", "azure_imds"}),
        "records are read by librdkafka itself, which knows no other; a token may also be in a file "
        "(sasl.oauthbearer.token)",
    ),
    "transactional.id": (frozenset(), "transactions are set up by the delivery itself"),
    "bootstrap.servers": (frozenset(), "it is empty"),
}


def validate(kafka: Mapping[str, str]) -> None:
    """Checks the user's properties without connecting. Raises `ConfigError`, naming the property and the reason."""
    if not _brokers(kafka):
        raise ConfigError("bootstrap.servers is missing; give the brokers as host:port,host:port")
    for key, value in kafka.items():
        allowed, why = _REFUSED.get(key, (None, ""))
        if key == "bootstrap.servers" or allowed is None or str(value).lower() in allowed:
            continue
        instead = f"give {' or '.join(sorted(allowed))}, or leave it out" if allowed else "leave it out"
        raise ConfigError(f"{key}: {value!r} is refused: {why}; {instead}")


def _brokers(kafka: Mapping[str, Any]) -> str | None:
    return kafka.get("bootstrap.servers") or kafka.get("metadata.broker.list")


def committed_only(kafka: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of a client that reads no aborted transactions, whatever the user's isolation level."""
    return {**kafka, "isolation.level": "read_committed"}


def of_group(kafka: Mapping[str, str], group: str) -> dict[str, str]:
    """Returns the properties of a consumer that is to read or write a group's committed offsets.

    `read_committed` makes it ask for stable offsets: the coordinator lets it wait while a commit is under way.
    """
    return {**committed_only(kafka), "group.id": group}


def delivery_timeout_ms(kafka: Mapping[str, str], otherwise_ms: int) -> int:
    """Returns after what time librdkafka gives up a record, by either name of the property, or `otherwise_ms`."""
    return int(kafka.get("delivery.timeout.ms", kafka.get("message.timeout.ms", otherwise_ms)))


def masked(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties with secrets masked, for display."""
    return {key: MASK if is_secret(key) else value for key, value in kafka.items()}


def consumer(kafka: Mapping[str, str], tuning: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> Consumer:
    """Makes a consumer for explicit positions: joins no group, commits nothing.

    The user's properties override `tuning`.
    """
    return _make(Consumer, kafka, {**_CONSUMER, **tuning}, {**_CONSUMER_FIXED, "error_cb": on_error})


def consumer_properties(kafka: Mapping[str, str], tuning: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties that `consumer` gives to librdkafka, for consumers other than confluent-kafka's."""
    validate(kafka)
    return {**_COMMON, **_CONSUMER, **tuning, **_with_secrets(kafka), **_CONSUMER_FIXED}


def _with_secrets(kafka: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties with secrets as they are in their files now.

    Raises `KafkaUnavailable`, as a file that is being replaced will soon be back.
    """
    try:
        if TOKEN in kafka:
            token_now(kafka[TOKEN], wall_ms() / 1000)  # if it has expired, librdkafka would wait for another
        return read_now(kafka)
    except ValueError as error:
        raise KafkaUnavailable(f"no client can be made: {error}") from None


def topic_configs(client: AdminClient, topics: Iterable[str], within_s: float) -> dict[str, Any]:
    """Asks for the configurations of topics; returns a future of each, whose result has entries by name."""
    resources = {topic: ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics}
    asked = client.describe_configs(list(resources.values()), request_timeout=within_s)
    return {topic: asked[resource] for topic, resource in resources.items()}


class ListsTopics(Protocol):
    """Any client of librdkafka's."""

    def list_topics(self, topic: str, timeout: float, /) -> Any: ...


def learn(client: ListsTopics, topic: str, timeout_s: float) -> KafkaError | None:
    """Fetches the topic's leaders now, if the broker answers in time; if not, the client's later calls report it.

    Returns the error of a topic that may not even be described, as an assignment would only wait for it.

    A call that finds no connected broker waits until librdkafka next looks for one: up to a second for an assignment,
    half a second for the first call of a transactional producer.
    """
    try:
        metadata = client.list_topics(topic, timeout_s).topics.get(topic)
    except KafkaException as failed:
        log.debug("the leaders of %s are not known yet: %s", topic, said(failed.args[0]))
        return None
    error: KafkaError | None = None if metadata is None else metadata.error
    return error if error is not None and lacks_acl(error.code()) else None


def producer(
    kafka: Mapping[str, str],
    tuning: Mapping[str, Any],
    on_error: Callable[[KafkaError], None],
    transactional_id: str | None = None,
) -> Producer:
    """Makes an idempotent producer that waits for all replicas."""
    ours, fixed = {**_PRODUCER, **tuning}, {**_PRODUCER_FIXED, "error_cb": on_error}
    if transactional_id is not None:
        ours |= _TRANSACTIONAL
        fixed["transactional.id"] = transactional_id
    return _make(Producer, kafka, ours, fixed)


def admin(
    kafka: Mapping[str, str],
    on_error: Callable[[KafkaError], None] = lambda _: None,
    logger: logging.Logger | None = None,
) -> AdminClient:
    """Makes an admin client. Connection errors show in its answers; when polled, it also passes them to `on_error`.

    Asking for a topic does not create it, as librdkafka would by default where the brokers allow it.
    """
    return _make(AdminClient, kafka, {}, {"error_cb": on_error, "allow.auto.create.topics": False}, logger)


def _make(
    kind: Callable[..., T],
    kafka: Mapping[str, str],
    ours: Mapping[str, Any],
    fixed: Mapping[str, Any],
    logger: logging.Logger | None = None,
) -> T:
    validate(kafka)
    properties = {**_COMMON, **ours, **_with_secrets(kafka), **fixed}
    if properties.pop(TOKEN, None) is not None:
        properties["oauth_cb"] = lambda _: token_now(kafka[TOKEN], wall_ms() / 1000)
    watch_certificate(kafka)
    try:
        if not rotates(kafka):
            return kind(properties, logger=logger or librdkafka)
        followed = type(kind.__name__, (kind,), {})  # type: ignore[arg-type]  # theirs takes no weak reference
        made: T = followed(properties, logger=logger or librdkafka)
        follow(made, kafka, properties)
        return made
    except KafkaException as error:
        raise refused(kafka, error.args[0].str()) from error


def refused(kafka: Mapping[str, Any], reason: str) -> ConfigError:
    """Returns the error for properties that librdkafka does not accept."""
    return ConfigError(f"librdkafka refuses the properties {masked(kafka)}: {reason}")


def _is_told(record: logging.LogRecord) -> bool:
    """Returns whether a line of librdkafka's says something; takes the guess about an old broker out of it.

    One mapping serves consumers and producers, so each is told of the properties of the other.
    """
    message = record.getMessage()
    record.msg, record.args = without_guess(message), ()
    return not is_usual(message) and "property and will be ignored by this" not in message


librdkafka.addFilter(_is_told)

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
    """Returns the end of a message about a call that took too long: the last error that librdkafka reported, if any."""
    return "" if trouble is None else f"; the last error: {said(trouble)}"


def without_guess(text: str) -> str:
    """Returns the text with what is certain instead of the guess."""
    return _GUESS.sub(_INSTEAD if "Timed out" in text else "", text)


_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_TRANSIENT = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._NOENT,  # from `list_offsets`: no broker that knows the leaders is reachable
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
)


def is_missing(error: KafkaError) -> bool:
    """Returns whether the topic or partition does not exist."""
    return error.code() in _MISSING


def is_out_of_range(error: KafkaError) -> bool:
    """Returns whether the log does not hold the offset to be read."""
    return error.code() in _OUT_OF_RANGE


def is_transient(error: KafkaError) -> bool:
    """Returns whether the same call may work later."""
    return bool(error.retriable()) or error.code() in _TRANSIENT


def is_about_its_group(error: KafkaError) -> bool:
    """Returns whether a reader's error is about its group, which librdkafka looks for although nobody joins one.

    A user who may read the topic need not be allowed to use the group.
    """
    return error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


_NOT_LET_IN = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)
_ACL_IS_MISSING = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
)
_TLS_ALERT = "SSL alert number"  # the brokers' reason to end a connection, such as a missing client certificate
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"  # the token server did not issue one, but may do so later


def is_not_let_in(error: KafkaError) -> bool:
    """Returns whether the brokers refuse the connection itself: its login, or its TLS."""
    return (error.code() in _NOT_LET_IN and _NO_TOKEN not in error.str()) or _TLS_ALERT in error.str()


def not_let_in(error: KafkaError, kafka: Mapping[str, str]) -> NotLetIn:
    """Returns the error for a refused connection, naming the brokers and the properties to look at.

    Waiting would not help, so nothing is retried.
    """
    brokers = _brokers(kafka)
    if error.code() == KafkaError._SSL or _TLS_ALERT in error.str():
        return NotLetIn(
            f"TLS with brokers {brokers} failed ({said(error)}): correct `ssl.ca.location`, the client's "
            "`ssl.certificate.location` and `ssl.key.location`, or `security.protocol`"
        )
    mechanism = kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms", "GSSAPI")
    user = f"user {kafka['sasl.username']!r}" if kafka.get("sasl.username") else "the login"
    credentials = "`sasl.username`, `sasl.password`" if kafka.get("sasl.username") else "the credentials under `kafka`"
    return NotLetIn(
        f"brokers {brokers} refuse {user} ({said(error)}): correct {credentials}, or `sasl.mechanism` ({mechanism})"
    )


def translate(
    error: KafkaError, doing: str, topic: str, partition: int | None = None, trouble: KafkaError | None = None
) -> KafkaIOError:
    """Returns our error for an error of librdkafka's.

    trouble   the last error passed to the client's `on_error`: a call that only timed out may have been refused access
    """
    if is_missing(error):
        return TopicMissing(topic, partition)
    where = topic if partition is None else f"{topic}-{partition}"
    if trouble is not None and is_not_let_in(trouble):
        error = trouble
    return failure(error, f"{doing} of {where} failed: {said_with_name(error)}")


def failure(error: KafkaError, message: str) -> KafkaIOError:
    """Returns an error with this message, of the class that says whether the same call may work later."""
    if is_not_let_in(error):
        return NotLetIn(message)
    if lacks_acl(error.code()):
        return AccessRefused(f"{message}; `teacup check --connect` names every ACL that a job lacks")
    return KafkaUnavailable(message) if is_transient(error) else KafkaIOError(message)


def lacks_acl(code: int) -> bool:
    """Returns whether an error says that the user lacks an ACL."""
    return code in _ACL_IS_MISSING


def retried(
    call: Callable[[], T],
    kafka: Mapping[str, Any],
    give_up_after_s: float | None = None,
    say_after_s: float = SAY_AFTER_S,
) -> T:
    """Calls until it no longer raises `KafkaUnavailable`, with growing pauses; logs a warning.

    say_after_s       the earliest time for the warning
    give_up_after_s   None: after a minute. (A running job holds out longer: `teacup.spark.stream_reader`.)

    `TopicMissing` is retried for a few seconds: a topic just created, or a broker just started, may not know it yet.
    """
    started, reported = time.monotonic(), False
    within_s = RETRY_TIMEOUT_S if give_up_after_s is None else give_up_after_s
    brokers = _brokers(kafka)

    def worth_another_try(error: BaseException) -> bool:
        nonlocal reported
        spent_s = time.monotonic() - started
        if isinstance(error, KafkaUnavailable) and not reported and spent_s > say_after_s:
            reported = True
            log.warning("brokers %s: %s; tried again for up to %d s", brokers, error, within_s)
        return isinstance(error, KafkaUnavailable) or (spent_s < MISSING_GRACE_S and isinstance(error, TopicMissing))

    patient = tenacity.Retrying(
        retry=tenacity.retry_if_exception(worth_another_try),
        stop=tenacity.stop_after_delay(within_s),
        wait=tenacity.wait_exponential_jitter(multiplier=0.1, max=2.0, jitter=0.1),
        reraise=True,
    )
    try:
        return patient(call)
    except KafkaUnavailable as error:
        raise KafkaUnavailable(f"{error}; brokers {brokers}, tried for {time.monotonic() - started:.0f} s") from error
