"""Hostile bytes: they raise a DecodeError, and take neither memory nor time."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol import codec
from gregor.protocol.codec import decode, decode_prefix, encode
from gregor.protocol.errors import DecodeError
from gregor.protocol.messages.create_topics import CreateTopicsRequest
from gregor.protocol.messages.describe_groups import DescribeGroupsRequest
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.schema import Message
from tests.protocol.random_messages import message_classes, random_message, versions_of

CLASSES = message_classes()


def any_class_and_version(random: Random) -> tuple[type[Message], int]:
    cls = random.choice(CLASSES)
    return cls, random.choice(versions_of(cls))


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_a_message_cut_anywhere_is_malformed(random: Random) -> None:
    cls, version = any_class_and_version(random)
    data = encode(random_message(cls, version, random), version)
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            decode(cls, data[:size], version)


@given(st.randoms(use_true_random=False), st.binary(max_size=200))
def test_garbage_is_a_message_or_malformed(random: Random, garbage: bytes) -> None:
    cls, version = any_class_and_version(random)
    try:
        _, end = decode_prefix(cls, garbage, version)
    except DecodeError:
        return
    assert end <= len(garbage)


@given(st.randoms(use_true_random=False))
def test_a_damaged_message_is_a_message_or_malformed(random: Random) -> None:
    cls, version = any_class_and_version(random)
    data = bytearray(encode(random_message(cls, version, random), version) or b"\0")
    for _ in range(random.choice([1, 2, 5])):
        data[random.randrange(len(data))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.getrandbits(8)])
    try:
        _, end = decode_prefix(cls, data, version)
    except DecodeError:
        return
    assert end <= len(data)


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 1, b"\0\0\0\x05" + bytes(9)),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x07"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f\0\0\0"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\xff\xff\xff"),
        (DescribeGroupsRequest, 0, b"\0\0\0\x01\x7f\xff"),
        (CreateTopicsRequest, 5, b"\x02\x02t\0\0\0\1\0\1\xfe\xff\xff\xff\x07"),
    ],
)
def test_lengths_and_counts_beyond_the_data_are_refused_before_anything_is_built(
    cls: type[Message], version: int, data: bytes
) -> None:
    encode(cls(), version)
    tracemalloc.start()
    try:
        decode_fails = pytest.raises(DecodeError)
        with decode_fails:
            decode(cls, data, version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("section", [b"\1\x05\x7f", b"\1\x05\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07"])
def test_tagged_fields_beyond_the_data_are_refused(section: bytes) -> None:
    data = encode(MetadataRequest(topics=[]), 9)
    assert data.endswith(b"\0")
    with pytest.raises(DecodeError):
        decode(MetadataRequest, data[:-1] + section, 9)


def test_a_frame_of_tiny_elements_cannot_claim_unbounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "ELEMENT_LIMIT", 100)
    few = encode(MetadataRequest(topics=[MetadataRequestTopic()] * 100), 1)
    assert len(decode(MetadataRequest, few, 1).topics or []) == 100
    many = encode(MetadataRequest(topics=[MetadataRequestTopic()] * 101), 1)
    with pytest.raises(DecodeError, match="topics"):
        decode(MetadataRequest, many, 1)
