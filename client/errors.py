"""The errors that the client itself raises. An error code of a broker is raised as `protocol.errors.BrokerError`."""

from ..protocol.errors import BrokerError, ErrorCode


class ClientError(Exception):
    """The root of all errors that come from the client and not from a broker's answer."""


class ConfigError(ClientError, ValueError):
    """A configuration key that does not exist, or an invalid value of a key."""


class ConnectionLostError(ClientError):
    """The connection could not be made, or ended before the answer arrived. A retry may succeed."""


class AuthenticationFailedError(ConnectionLostError):
    """The broker refused the client's credentials, or the client could not trust the broker's certificate."""


class DeadlineExceededError(ClientError):
    """An operation exceeded its time limit: `delivery.timeout.ms`, `max.block.ms`, `default.api.timeout.ms`..."""


class RecordTooLargeError(ClientError):
    """A single record exceeds `max.request.size` or `buffer.memory`; nothing was sent."""


class ClosedError(ClientError):
    """The producer or consumer was used after it was closed."""


class AbandonedError(ClientError):
    """A record was abandoned before delivery: the producer left its scope, or the transaction was aborted."""


class UnknownTopicError(BrokerError):
    """The topic does not exist. For an administrator this is an answer and no reason to retry."""

    def __init__(self, name: str | None) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist")


class InvalidTopicError(BrokerError, ValueError):
    """The name is not a valid topic name. Every broker refuses such a name, so no broker is asked."""

    def __init__(self, name: str) -> None:
        super().__init__(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r:.300} cannot be the name of a topic")


def copied_error(error: Exception) -> Exception:
    """Return a copy of an error, which can be raised once more with a traceback of its own."""
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
"""Error codes that mean "the client's metadata is stale" (Kafka's InvalidMetadataException): refresh, then retry."""

COORDINATOR_MOVED_CODES = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Error codes that mean "the coordinator has moved": find the coordinator, then retry."""


def is_retriable(error: Exception) -> bool:
    """Return whether a retry may succeed: true for lost connections, if the broker did not refuse
    the client's credentials, and for the broker's retriable error codes.
    """
    if isinstance(error, BrokerError):
        return error.code.retriable and not isinstance(error, UnknownTopicError)
    return isinstance(error, ConnectionLostError) and not isinstance(error, AuthenticationFailedError)
