"""Messages that Apache Kafka's own classes wrote, read and written back byte for byte."""

from __future__ import annotations

import base64
import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gregor.protocol.apis import ApiKey, request_class, request_header_version, response_class, response_header_version
from gregor.protocol.codec import decode_prefix, encode
from gregor.protocol.messages.header import RequestHeader, ResponseHeader
from gregor.protocol.schema import Message, Struct
from gregor.protocol.unsigned_varint import encode_unsigned_varint

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"
KAFKA_3_9, KAFKA_4 = "protocol.jsonl.gz", "protocol4.jsonl.gz"
CHANGED_BY_KAFKA_4 = {ApiKey.READ_SHARE_GROUP_STATE_SUMMARY}
"""Kafka 4 took back the unstable v0 of 3.9."""
RENAMED_BY_KAFKA_4 = {
    "generationIdOrMemberEpoch": "generationId",
    "configResources": "clientMetricsResources",
    "resourceName": "name",
}


@cache
def vectors_by_api(file: str) -> dict[int, list[dict[str, Any]]]:
    """Return the vectors of a file by API key; none where there is no such file."""
    cases: dict[int, list[dict[str, Any]]] = defaultdict(list)
    if (GOLDEN / file).exists():
        with gzip.open(GOLDEN / file, "rt", encoding="utf-8") as lines:
            for case in map(json.loads, lines):
                cases[case["api_key"]].append(case)
    return cases


def message_of(case: dict[str, Any]) -> tuple[type[Message], int]:
    """Return a vector's class and version; for a header, the version that `apis` finds for its request."""
    key, version = ApiKey(case["api_key"]), case["version"]
    match case["kind"]:
        case "request":
            return request_class(key), version
        case "response":
            return response_class(key), version
        case "request_header":
            return RequestHeader, request_header_version(key, version)
        case _:
            return ResponseHeader, response_header_version(key, version)


def agrees(ours: Any, theirs: Any) -> bool:
    """Return whether a value equals the output of Kafka's JsonConverter, which omits default tagged fields."""
    if isinstance(ours, Struct):
        values = {name.replace("_", ""): getattr(ours, name) for name in ours.FIELD_DEFAULTS}
        return all(agrees(value_of(name, values), value) for name, value in theirs.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(agrees, ours, theirs))
    if isinstance(ours, UUID):
        return ours.bytes == base64.urlsafe_b64decode(theirs + "==")
    if isinstance(ours, bytes | memoryview):
        return bytes(ours) == base64.b64decode(theirs)
    return bool(ours == theirs)


def value_of(name: str, values: dict[str, Any]) -> Any:
    """Return the value of the field that Kafka's JsonConverter calls `name`."""
    lower = name.lower()
    return values[lower] if lower in values else values[RENAMED_BY_KAFKA_4[name].lower()]


def check(case: dict[str, Any]) -> None:
    cls, version = message_of(case)
    data = bytes.fromhex(case["bytes"])
    message, end = decode_prefix(cls, data, version)
    assert end == len(data)
    assert agrees(message, case["json"])
    assert with_unknown_tagged_fields(encode(message, version), case.get("unknown_tagged_fields", []), data) == data


def with_unknown_tagged_fields(written: bytes, unknown: list[tuple[int, str]], original: bytes) -> bytes:
    """Return Kafka's bytes of a message with unknown tagged fields, whose number is counted as well.

    The count is the first byte in which the two differ; the fields follow the known ones, whose tags are lower.
    """
    if not unknown:
        return written
    at = next(index for index, byte in enumerate(written) if byte != original[index])
    fields = [(encode_unsigned_varint(tag), bytes.fromhex(value)) for tag, value in unknown]
    section = b"".join(tag + encode_unsigned_varint(len(value)) + value for tag, value in fields)
    return written[:at] + bytes([written[at] + len(unknown)]) + written[at + 1 :] + section


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_messages_of_kafka_3_9_are_read_and_written_byte_for_byte(shared: Path, key: ApiKey) -> None:
    cases = vectors_by_api(KAFKA_3_9)[key]
    assert {case["version"] for case in cases if case["kind"] == "request"} <= set(
        range(request_class(key).VERSIONS.last + 1)
    )
    assert cases
    for case in cases:
        check(case)


def test_the_vectors_of_kafka_3_9_cover_every_api(shared: Path) -> None:
    assert set(vectors_by_api(KAFKA_3_9)) == set(ApiKey)


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_messages_of_kafka_4_in_our_versions_are_read_and_written_byte_for_byte(shared: Path, key: ApiKey) -> None:
    for case in vectors_by_api(KAFKA_4)[key]:
        if case["version"] in request_class(key).VERSIONS and key not in CHANGED_BY_KAFKA_4:
            check(case)
