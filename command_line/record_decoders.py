"""Keys and values in `gregor dump-log`: as text, or as JSON for the records of Kafka's internal topics."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from ..protocol.codec import decode, decode_prefix
from ..protocol.errors import BrokerError, DecodeError
from ..protocol.messages import consumer_group_records as consumer_groups
from ..protocol.messages.cluster_metadata_records import RECORD_TYPES, ConfigRecord, UserScramCredentialRecord
from ..protocol.messages.group_metadata_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ..protocol.messages.transaction_log_records import TransactionLogKey, TransactionLogValue
from ..protocol.records.control import control_type, read_end_transaction_marker
from ..protocol.records.record import Record
from ..protocol.schema import Message, Struct
from .topics import topic_id_text

Decoder = Callable[[bytes | None, bytes | None], tuple[str | None, str | None]]
"""A function from a record's key and value to their texts; None prints nothing."""

VERSION_SIZE = 2
REDACTED = "(redacted)"
BROKER_RESOURCE = 4
"""The type of brokers as resources (Kafka ``ConfigResource.Type``)."""

_GROUP_TYPES: Mapping[int, tuple[type[Message], type[Message]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (consumer_groups.ConsumerGroupMetadataKey, consumer_groups.ConsumerGroupMetadataValue),
    4: (consumer_groups.ConsumerGroupPartitionMetadataKey, consumer_groups.ConsumerGroupPartitionMetadataValue),
    5: (consumer_groups.ConsumerGroupMemberMetadataKey, consumer_groups.ConsumerGroupMemberMetadataValue),
    6: (
        consumer_groups.ConsumerGroupTargetAssignmentMetadataKey,
        consumer_groups.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        consumer_groups.ConsumerGroupTargetAssignmentMemberKey,
        consumer_groups.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        consumer_groups.ConsumerGroupCurrentMemberAssignmentKey,
        consumer_groups.ConsumerGroupCurrentMemberAssignmentValue,
    ),
}
_TRANSACTION_TYPES: Mapping[int, tuple[type[Message], type[Message]]] = {0: (TransactionLogKey, TransactionLogValue)}


def decode_text(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Decode both as UTF-8, with damaged bytes replaced."""
    return _text(key), _text(value)


def decode_cluster_metadata(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Decode a record of `__cluster_metadata`, whose value begins with three varints: frame version, type and
    version.
    """
    if value is None or len(value) < 3:
        return None, _text(value)
    # Each of the three is below 128 in every release so far, so that one byte is the whole varint.
    record_type, version = value[1], value[2]
    message = RECORD_TYPES.get(record_type)
    if message is None:
        return None, json.dumps({"type": record_type, "version": version, "data": None})
    decoded, _ = decode_prefix(message, value, version, 3)
    _redact(decoded)
    name = message.__name__.removesuffix("Record")
    return None, json.dumps({"type": f"{name}_RECORD".upper(), "version": version, "data": as_json(decoded)})


def _redact(record: Message) -> None:
    """Replace the secrets in a record of the metadata, those that Kafka's ``RecordRedactor`` hides."""
    if isinstance(record, UserScramCredentialRecord):
        record.salt = record.stored_key = record.server_key = REDACTED.encode()
    elif isinstance(record, ConfigRecord) and record.resource_type == BROKER_RESOURCE:
        from ..broker.config import BrokerConfig
        from ..broker.config.keys import ConfigType

        key = BrokerConfig().key(record.name)
        if key is None or key.type is ConfigType.PASSWORD:
            record.value = REDACTED


def _decode_versioned(types: Mapping[int, tuple[type[Message], type[Message]]]) -> Decoder:
    """Return a decoder for topics whose keys begin with a type and whose values begin with a version, both int16."""

    def decode_record(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
        if key is None or len(key) < VERSION_SIZE:
            return _text(key), _text(value)
        kind = int.from_bytes(key[:VERSION_SIZE], "big")
        if kind not in types:
            return f"unknown::type={kind}", _text(value)
        key_class, value_class = types[kind]
        try:
            shown_key = json.dumps({"type": str(kind), "data": as_json(decode(key_class, key[VERSION_SIZE:], kind))})
            if value is None:
                return shown_key, "<DELETE>"
            version = int.from_bytes(value[:VERSION_SIZE], "big")
            data = as_json(decode(value_class, value[VERSION_SIZE:], version))
        except (DecodeError, BrokerError) as error:
            return f"unreadable::{error}", None
        return shown_key, json.dumps({"version": str(version), "data": data})

    return decode_record


DECODERS: Mapping[str, Decoder] = {
    "text": decode_text,
    "offsets-decoder": _decode_versioned(_GROUP_TYPES),
    "transaction-log-decoder": _decode_versioned(_TRANSACTION_TYPES),
    "cluster-metadata-decoder": decode_cluster_metadata,
}


def describe_control_record(record: Record) -> str:
    """Return the text of a marker in the words of Kafka's DumpLogSegments."""
    marker = read_end_transaction_marker(record)
    if marker is None:
        return f"controlType: {control_type(record.key).name}({int(control_type(record.key))})"
    return f"endTxnMarker: {marker.control_type.name} coordinatorEpoch: {marker.coordinator_epoch}"


def as_json(value: object) -> Any:
    """Convert a message to JSON values, with Kafka's field names; bytes in base 64, ids as Kafka prints them."""
    if isinstance(value, Struct):
        return {_camel(name): as_json(getattr(value, name)) for name in value.FIELD_DEFAULTS}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, UUID):
        return topic_id_text(value)
    if isinstance(value, bytes | memoryview):
        return b64encode(value).decode()
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
