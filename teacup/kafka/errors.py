"""What can go wrong between us and Kafka. Pure.

    KafkaIOError
      +- ConfigError        a property that is refused, or that librdkafka does not accept
      |    +- LibraryMissing       the C library is not there, or is of another platform
      +- KafkaUnavailable   the broker is unreachable or did not answer in time: worth a retry later
      |    +- NotEnoughReplicas    a partition has fewer replicas in sync than a write needs
      |    +- RegistryUnreachable  the schema registry gave no usable answer for too long
      +- AccessRefused      an ACL is missing
      |    +- NotLetIn      the brokers refuse the connection: its login, or its TLS
      +- RegistryRefused    the schema registry refuses us, or something else answers
      +- TopicMissing       the topic or partition does not exist
      +- OffsetOutOfRange   the offset was deleted by retention, or truncated: records are gone
      +- DeliveryFailed     a record was not acknowledged
      |    +- DeliveryRefused  an ACL on its topic is missing
      +- RecordTooLarge     a record exceeds a limit of its topic or of the producer
      +- ProducerFailed     librdkafka has given up a producer, for example because it was fenced
      |    +- Fenced        another producer with the same transactional id took over, or its transaction timed out
      +- ReceiptRefused     what was delivered before is not known: nothing may be written
           +- OutputTaken   a job of this name on another checkpoint delivers to the output
           +- BatchDiffers  another batch with the same number is in the output
           +- TakenOver     a later process of the same job delivers to the output

Each error keeps its values as attributes and passes unchanged between processes (they are the exception's `args`).
"""

from __future__ import annotations

from teacup.base.errors import CommandError, ExitCode, Invalid


class KafkaIOError(CommandError):
    """The root of this package's errors; the message says which value was wrong and what to do."""


class ConfigError(KafkaIOError, Invalid):
    """A property that would lose data, that we set ourselves, or that librdkafka does not know."""


class LibraryMissing(ConfigError):
    """Without the C library no record can be read or written."""


class KafkaUnavailable(KafkaIOError, exit_code=ExitCode.UNREACHABLE):
    """The broker is unreachable, or did not answer in time. The same call may work later."""


class NotEnoughReplicas(KafkaUnavailable):
    """A partition takes no write: fewer of its replicas are in sync than `min.insync.replicas`, or it has no leader.

    in_sync, placed      of its replicas; none is in sync if it has no leader
    minimum              None: it is not known
    refusing, of         how many partitions of the topic take no write, and how many it has
    """

    def __init__(
        self, topic: str, partition: int, in_sync: int, placed: int, minimum: int | None, refusing: int, of: int
    ) -> None:
        super().__init__(topic, partition, in_sync, placed, minimum, refusing, of)
        self.topic, self.partition = topic, partition
        self.in_sync, self.placed, self.minimum = in_sync, placed, minimum
        self.refusing, self.of = refusing, of

    def __str__(self) -> str:
        which = f"partition {self.partition} of topic {self.topic!r}"
        others = f"; {self.refusing} of its {self.of} partitions take no write" if self.of > 1 else ""
        if not self.in_sync:
            return (
                f"LEADER_NOT_AVAILABLE: {which} has no leader: of its {self.placed} replicas none that is in sync is "
                f"on a broker that runs{others}. Start the brokers that are down"
            )
        minimum = "is not known, as DescribeConfigs is not allowed" if self.minimum is None else f"is {self.minimum}"
        return (
            f"NOT_ENOUGH_REPLICAS: {which} has {self.in_sync} of its {self.placed} replicas in sync, and "
            f"min.insync.replicas {minimum}{others}. Start the brokers that are down, or let them catch up"
        )


class RegistryUnreachable(KafkaUnavailable):
    """The schema registry gave no usable answer for too long."""


class AccessRefused(KafkaIOError, exit_code=ExitCode.ACCESS):
    """The brokers refuse the user something for lack of an ACL. The same call does not work later."""


class NotLetIn(AccessRefused):
    """The brokers refuse the connection: its login, or its TLS; the message names the properties to correct."""


class RegistryRefused(KafkaIOError, Invalid):
    """The schema registry refuses us, or something else answers in its place: waiting does not help."""


class TopicMissing(KafkaIOError):
    """The topic or the partition does not exist."""

    def __init__(self, topic: str, partition: int | None = None) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def __str__(self) -> str:
        where = "" if self.partition is None else f" partition {self.partition} of"
        return (
            f"Kafka has no{where} topic {self.topic!r}; check its name, or create it. If it was deleted, what it held "
            "is gone: created again it is another topic, for which a job needs a new checkpoint"
        )


class OffsetOutOfRange(KafkaIOError, exit_code=ExitCode.DATA_LOSS):
    """An offset to be read is not in the log: below `start` retention deleted it, above `end` it was truncated."""

    def __init__(self, topic: str, partition: int, offset: int, start: int, end: int) -> None:
        super().__init__(topic, partition, offset, start, end)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.start = start
        self.end = end

    def __str__(self) -> str:
        why = "retention has deleted it" if self.offset < self.start else "the log was truncated or recreated"
        return (
            f"offset {self.offset} of {self.topic}-{self.partition} is not in the log, which holds "
            f"[{self.start}, {self.end}): {why}"
        )


class DeliveryFailed(KafkaIOError):
    """Records were not acknowledged. `partition` is -1 if none had been chosen yet."""

    def __init__(self, topic: str, partition: int, reason: str, failed: int) -> None:
        super().__init__(topic, partition, reason, failed)
        self.topic = topic
        self.partition = partition
        self.reason = reason
        self.failed = failed

    def __str__(self) -> str:
        return (
            f"{self.failed} records were not delivered; the first, to topic {self.topic!r} "
            f"partition {self.partition}: {self.reason}"
        )


class DeliveryRefused(DeliveryFailed, exit_code=ExitCode.ACCESS):
    """An ACL on the topic is missing, as when it was taken away while the job ran."""


class RecordTooLarge(KafkaIOError, exit_code=ExitCode.REFUSED):
    """A record is too large for its destination. `what` names the record, `limit_name` the limit it exceeds."""

    def __init__(self, what: str, size: int, limit_name: str, limit: int) -> None:
        super().__init__(what, size, limit_name, limit)
        self.what = what
        self.size = size
        self.limit_name = limit_name
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.what} has {self.size:,} bytes, above the {self.limit:,} of {self.limit_name}: raise the limit"


class ProducerFailed(KafkaIOError):
    """librdkafka has given up the producer. What it had not delivered stays undelivered."""


class Fenced(ProducerFailed):
    """Another producer of the same transactional id took over, or the brokers aborted a transaction that timed out."""


class ReceiptRefused(KafkaIOError, exit_code=ExitCode.CHECKPOINT):
    """A receipt is missing, unreadable, or of a later batch; the message says which, and what to do."""


class OutputTaken(ReceiptRefused, exit_code=ExitCode.OUTPUT_TAKEN):
    """A job of the same name on another checkpoint delivers to the output: only one of them can continue."""


class BatchDiffers(ReceiptRefused):
    """The output has rows of another batch with the same number: the checkpoint has lost its plan."""


class TakenOver(ReceiptRefused, exit_code=ExitCode.TAKEN_OVER):
    """A later process on the same checkpoint has claimed the output: this one may have been given up for lost."""
