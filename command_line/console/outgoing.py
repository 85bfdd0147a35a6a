"""A record that a user writes in a form, and sending it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, NamedTuple, Self

from ...client.errors import ClientError
from ...client.producer.partitioner import partition_for_key
from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ...protocol.records import v2
from ...protocol.records.compression import Codec
from ...protocol.records.record import Header, Record
from .site import RefusedError, Visit
from .values import visible

if TYPE_CHECKING:
    from ...client.admin import Admin
    from ...client.wire.cluster import TopicMetadata

KINDS = ("text", "json", "hex", "null")
ALL_IN_SYNC = -1
TIMEOUT_MS = 5000
NEWEST_PRODUCE_BY_NAME = 12
"""The last version of Produce that names topics instead of their ids."""
OLDEST_PRODUCE_OF_V2 = 3
MS_PER_S = 1000


class SentRecord(NamedTuple):
    """The place of a record that was stored."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record as the form has it: text of the kinds in `KINDS`."""

    partition: str = ""
    key: str = ""
    key_kind: str = "null"
    value: str = ""
    value_kind: str = "text"
    headers: str = ""
    codec: str = "none"

    @classmethod
    def of_form(cls, visit: Visit) -> Self:
        """Return the record of a form; browsers send line ends as CR LF."""
        values = {
            name: visit.fields.get(name, "").replace("\r\n", "\n")
            for name in ("partition", "key", "key_kind", "value", "value_kind", "headers", "codec")
        }
        return cls(**values)

    @classmethod
    def of_record(cls, record: Record, partition: int) -> Self:
        """Return the form's content for a stored record."""
        headers = "\n".join(
            f"{header.key.decode('utf-8', 'replace')}: {(header.value or b'').decode('utf-8', 'replace')}"
            for header in record.headers
        )
        key, key_kind = _editable(record.key)
        value, value_kind = _editable(record.value)
        return cls(str(partition), key, key_kind, value, value_kind, headers)


def parse_outgoing(outgoing: OutgoingRecord) -> Record:
    """Return the record that the form describes. Raises RefusedError that names the field."""
    headers = []
    for line in filter(None, map(str.strip, outgoing.headers.splitlines())):
        name, colon, value = line.partition(":")
        if not colon:
            raise RefusedError(f"headers: a header is written NAME: VALUE, not {line[:100]!r}")
        headers.append(Header(name.strip().encode(), value.strip().encode()))
    return Record(
        timestamp=int(time() * MS_PER_S),
        key=_parsed("key", outgoing.key, outgoing.key_kind),
        value=_parsed("value", outgoing.value, outgoing.value_kind),
        headers=tuple(headers),
    )


async def send(admin: Admin, topic: TopicMetadata, record: Record, outgoing: OutgoingRecord) -> SentRecord:
    """Send a record to the partition of the form, or to the one that Kafka's producers choose for its key.

    Raises RefusedError, BrokerError.
    """
    partition = _partition(topic, record, outgoing.partition)
    try:
        codec = Codec[outgoing.codec.upper()]
    except KeyError:
        raise RefusedError(f"compression: there is no codec {outgoing.codec[:100]!r}") from None
    part = PartitionProduceData(index=partition, records=v2.build_batch([record], codec=codec))
    request = ProduceRequest(
        acks=ALL_IN_SYNC,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic.name, partition_data=[part])],
    )
    version = await admin.version(ApiKey.PRODUCE, newest=NEWEST_PRODUCE_BY_NAME)
    if version < OLDEST_PRODUCE_OF_V2:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, "the broker does not take record batches of format v2")
    try:
        # Without a retry: it could store the record twice.
        answer = await admin.ask_once(
            await admin.leader(topic.name, partition), request, ProduceResponse, version=version
        )
    except ClientError as error:
        raise RefusedError(f"the record may or may not have been stored: {error}") from None
    result = answer.responses[0].partition_responses[0]
    if result.error_code:
        raise BrokerError(ErrorCode(result.error_code), result.error_message or ErrorCode(result.error_code).name)
    return SentRecord(partition, result.base_offset)


def _partition(topic: TopicMetadata, record: Record, wanted: str) -> int:
    count = len(topic.partitions)
    if wanted:
        if not wanted.isdecimal() or int(wanted) >= count:
            raise RefusedError(f"partition: the topic has the partitions 0 to {count - 1}")
        return int(wanted)
    return random.randrange(count) if record.key is None else partition_for_key(record.key, count)


def _parsed(field: str, text: str, kind: str) -> bytes | None:
    if kind == "null":
        return None
    if kind == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise RefusedError(f"{field}: hexadecimal digits in pairs are expected") from None
    if kind == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RefusedError(f"{field}: not JSON: {error}") from None
    return text.encode()


def _editable(data: bytes | None) -> tuple[str, str]:
    """Return the text of bytes in the form, and its kind."""
    if data is None:
        return "", "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex(" "), "hex"
    # Pages show invisible characters as escapes, and a browser changes line ends.
    return (text, "text") if visible(text) == text else (data.hex(" "), "hex")
