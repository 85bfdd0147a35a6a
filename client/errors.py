"""What a client raises of its own accord. What a broker answered is raised as `protocol.errors.BrokerError`."""

from ..protocol.errors import BrokerError, ErrorCode


class ClientError(Exception):
    """Root of all errors that come from the client and not from a broker's answer."""


class ConfigError(ClientError, ValueError):
    """A configuration key that does not exist, or a value that it cannot have."""


class ConnectionLostError(ClientError):
    """The connection could not be made, or ended before the answer came. Trying again may help."""


class DeadlineExceededError(ClientError):
    """Something did not happen within its time: `delivery.timeout.ms`, `max.block.ms`, `default.api.timeout.ms`..."""


class RecordTooLargeError(ClientError):
    """A single record exceeds `max.request.size` or `buffer.memory`; nothing was sent."""


class ClosedError(ClientError):
    """The producer or consumer was used after it was closed."""


class AbandonedError(ClientError):
    """A record was given up because the producer left its scope, or its transaction was aborted, before delivery."""


class UnknownTopicError(BrokerError):
    """The topic does not exist, which for an administrator is an answer and not a reason to wait."""

    def __init__(self, name: str | None) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist")


class InvalidTopicError(BrokerError, ValueError):
    """The name can be no topic's. Every broker refuses it, so none is asked."""

    def __init__(self, name: str) -> None:
        super().__init__(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r:.300} cannot be the name of a topic")


def anew(error: Exception) -> Exception:
    """The same error to be raised once more: with a traceback of its own, which is nobody's but the raiser's."""
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    again.__cause__ = error.__cause__
    return again


STALE_METADATA_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
    }
)
"""Answers that mean "your metadata is old" (Kafka's InvalidMetadataException family): refresh, then try again."""

COORDINATOR_MOVED_CODES = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Answers that mean "ask who the coordinator is", before trying again."""


def is_retriable(error: Exception) -> bool:
    """Whether doing the same again may succeed: lost connections and the broker's retriable codes."""
    if isinstance(error, BrokerError):
        return error.code.retriable and not isinstance(error, UnknownTopicError)
    return isinstance(error, ConnectionLostError)
