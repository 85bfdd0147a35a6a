"""The APIs of Kafka's protocol: their keys, message classes and header versions."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TypeAlias, cast

from .schema import Message


class ApiKey(IntEnum):
    """The `api_key` of a request header, named as in Kafka's `ApiKeys`.

    Those that are served on a controller's listener alone are `ControllerApiKey`.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CLIENT_METRICS_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87


class ControllerApiKey(IntEnum):
    """The APIs of the controller's listener, which only brokers use (KIP-500, KIP-630, KIP-631).

    The APIs between the controllers of a quorum are missing (52 to 54, 70, 82).
    """

    FETCH_SNAPSHOT = 59
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    ASSIGN_REPLICAS_TO_DIRS = 73


class GregorApiKey(IntEnum):
    """The APIs of Gregor's own tools, on the listeners of clients.

    Their keys are far above Kafka's. ApiVersions does not list them, so no client gets a key that it does not know;
    brokers other than Gregor close the connection of such a request.
    """

    DESCRIBE_CLIENTS = 18258
    APPEND_NUMBERED = 18259


AnyApiKey: TypeAlias = ApiKey | ControllerApiKey | GregorApiKey

_KEYS_BY_NAME: dict[str, AnyApiKey] = {
    key.name: key for keys in (ApiKey, ControllerApiKey, GregorApiKey) for key in keys
}
_KEYS_BY_NUMBER: dict[int, AnyApiKey] = {key.value: key for key in _KEYS_BY_NAME.values()}


def api_key(number: int) -> AnyApiKey:
    """Return the API of that number. Raises ValueError for an unknown number."""
    try:
        return _KEYS_BY_NUMBER[number]
    except KeyError:
        raise ValueError(f"no API has the key {number}") from None


def api_key_named(name: str) -> AnyApiKey:
    """Return the API of that name, as `FETCH`. Raises KeyError for an unknown name."""
    return _KEYS_BY_NAME[name]


def api_key_of(message: Message | type[Message]) -> AnyApiKey:
    """Return the API of a message or of its class: each API has a module that is named after it."""
    message_class = message if isinstance(message, type) else type(message)
    return _api_key_of_module(message_class.__module__)


@cache
def _api_key_of_module(module: str) -> AnyApiKey:
    return api_key_named(module.rpartition(".")[2].upper())


def api_name(key: AnyApiKey) -> str:
    """Return the API's name as Kafka writes it, ``OffsetCommit``."""
    return key.name.title().replace("_", "")


@cache
def request_class(key: AnyApiKey) -> type[Message]:
    """Return the class of the API's requests; the first call imports the class's module."""
    return _message_class(key, "Request")


@cache
def response_class(key: AnyApiKey) -> type[Message]:
    """Return the class of the API's responses; the first call imports the class's module."""
    return _message_class(key, "Response")


def _message_class(key: AnyApiKey, kind: str) -> type[Message]:
    """Import a message class: `FETCH`, `Request` is `FetchRequest` in `messages/fetch.py`."""
    module = import_module(f".messages.{key.name.lower()}", __package__)
    return cast(type[Message], getattr(module, api_name(key) + kind))


def valid_versions(key: AnyApiKey) -> tuple[int, int]:
    """Return the first and last version that this package reads and writes (a broker may serve fewer)."""
    versions = request_class(key).VERSIONS
    return versions.first, versions.last


def is_flexible(key: AnyApiKey, version: int) -> bool:
    """Return whether the version has compact lengths and tagged fields (KIP-482)."""
    return version in request_class(key).FLEXIBLE


@cache
def request_header_version(key: AnyApiKey, version: int) -> int:
    """Return the version of the `RequestHeader` before such a request: 2 has tagged fields, 1 a client id, 0 neither.

    ControlledShutdown v0 alone has the header without a client id (Kafka's `ControlledShutdownRequest.json`).
    """
    if key is ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if is_flexible(key, version) else 1


@cache
def response_header_version(key: AnyApiKey, version: int) -> int:
    """Return the version of the `ResponseHeader` before such a response: 1 has tagged fields.

    ApiVersions always answers with 0: a client must be able to read the answer to a version the broker lacks (KIP-511).
    """
    if key is ApiKey.API_VERSIONS:
        return 0
    return 1 if is_flexible(key, version) else 0
