"""Messages between brokers and controllers, as Kafka 3.9.1's own classes write them."""

from __future__ import annotations

import base64
import json
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gregor.protocol.apis import ControllerApiKey, api_key, api_key_named, request_class
from gregor.protocol.codec import decode, encode
from gregor.protocol.messages.cluster_metadata_records import BrokerRegistrationChangeRecord
from gregor.protocol.schema import Message, Struct

VECTORS = [json.loads(line) for line in (Path(__file__).parent / "controller_messages.jsonl").read_text().splitlines()]
"""Written by Kafka's JsonConverters and MessageUtil, one message in one version a line."""


def class_named(name: str) -> type[Message]:
    if name == "BrokerRegistrationChangeRecord":
        return BrokerRegistrationChangeRecord
    stem = name.removesuffix("Request").removesuffix("Response")
    module = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in stem).lstrip("_")
    return getattr(import_module(f"gregor.protocol.messages.{module}"), name)  # type: ignore[no-any-return]


def agrees(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, Struct):
        values = {name.replace("_", ""): getattr(ours, name) for name in ours.FIELD_DEFAULTS}
        return all(agrees(values[name.lower()], value) for name, value in theirs.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(agrees, ours, theirs))
    if isinstance(ours, memoryview):
        return bytes(ours) == base64.b64decode(theirs)
    if isinstance(ours, UUID):
        return ours.bytes == base64.urlsafe_b64decode(theirs + "==")
    return bool(ours == theirs)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['message']} v{vector['version']}")
def test_controller_messages_are_encoded_as_by_kafka(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["bytes"])
    message = decode(class_named(vector["message"]), data, vector["version"])
    assert agrees(message, vector["json"])
    assert encode(message, vector["version"]) == data


@pytest.mark.parametrize("key", list(ControllerApiKey))
def test_the_vectors_cover_every_version_of_each_controller_request(key: ControllerApiKey) -> None:
    versions = {vector["version"] for vector in VECTORS if class_named(vector["message"]) is request_class(key)}
    assert versions == set(range(request_class(key).VERSIONS.last + 1))


def test_keys_are_found_by_number_and_name() -> None:
    assert api_key(62) is api_key_named("BROKER_REGISTRATION") is ControllerApiKey.BROKER_REGISTRATION
    with pytest.raises(ValueError):
        api_key(9999)
