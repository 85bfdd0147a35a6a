"""No string of any version is longer than 32,767 bytes, as in Kafka's generated messages."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol.codec import decode, encode
from gregor.protocol.errors import DecodeError, EncodeError
from gregor.protocol.messages.heartbeat import HeartbeatRequest

CLASSIC, FLEXIBLE = 3, 4
LONGEST = 32_767


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
@pytest.mark.parametrize("field", ["group_id", "group_instance_id"])
def test_a_string_of_32767_bytes_is_encoded_and_decoded(version: int, field: str) -> None:
    fields: dict[str, Any] = {field: "x" * LONGEST}
    request = HeartbeatRequest(**fields)
    assert decode(HeartbeatRequest, encode(request, version), version) == request


@pytest.mark.parametrize("version", [CLASSIC, FLEXIBLE])
@pytest.mark.parametrize("field", ["group_id", "group_instance_id"])
@pytest.mark.parametrize("text", ["x" * (LONGEST + 1), "é" * (LONGEST // 2 + 1)])
def test_a_string_above_32767_bytes_is_not_encoded(version: int, field: str, text: str) -> None:
    fields: dict[str, Any] = {field: text}
    with pytest.raises(EncodeError):
        encode(HeartbeatRequest(**fields), version)


def test_a_string_above_32767_bytes_is_not_decoded() -> None:
    """Kafka 3.9.1 closes the connection; a group of such a name could not be written to any log."""
    name = b"x" * (LONGEST + 1)
    # The length plus one as a varint, the generation, an empty member id, no instance id, no tagged fields.
    data = b"\x81\x80\x02" + name + bytes(4) + b"\x01" + b"\x00" + b"\x00"
    with pytest.raises(DecodeError, match="group_id"):
        decode(HeartbeatRequest, data, FLEXIBLE)
