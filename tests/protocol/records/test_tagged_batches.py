"""The tags of fetched batches: round trips, skipped unknown tags, refused malformed ones."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.errors import BrokerError
from gregor.protocol.records.enriched import KafkaTags
from gregor.protocol.records.tagged_batches import TaggedBatch, decode_tagged_batches, encode_tagged_batches

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TAGS = st.builds(KafkaTags, st.none() | INT64, st.none() | INT32, st.none() | st.booleans(), st.none() | st.booleans())


@given(st.lists(st.builds(TaggedBatch, INT64, TAGS)))
def test_tagged_batches_are_decoded_as_encoded(batches: list[TaggedBatch]) -> None:
    assert decode_tagged_batches(encode_tagged_batches(batches)) == batches


def test_tagged_batches_are_encoded_in_the_wire_layout() -> None:
    encoded = encode_tagged_batches([TaggedBatch(7, KafkaTags(timestamp_ms=5)), TaggedBatch(9, KafkaTags())])
    assert encoded.hex(" ", -4) == "00000000 00000007 00000009 00000000 00000000 05000000 00000000 09ffffff ff"


def test_unknown_tags_are_skipped() -> None:
    block = bytes([1, *bytes(8), 32, 0, 0, 0, 3])
    data = (4).to_bytes(8, "big") + len(block).to_bytes(4, "big") + block
    assert decode_tagged_batches(data) == [TaggedBatch(4, KafkaTags(message_count=3))]


@pytest.mark.parametrize(
    "tail",
    [b"\0", bytes(11), bytes(8) + b"\x7f\xff\xff\xff", bytes(8) + b"\xff\xff\xff\xfe", bytes(11) + b"\2\0\0"],
    ids=["a byte", "half a head", "a length beyond the end", "a negative length", "half a tag"],
)
def test_malformed_tagged_batches_are_refused(tail: bytes) -> None:
    with pytest.raises(BrokerError):
        decode_tagged_batches(encode_tagged_batches([TaggedBatch(1, KafkaTags(1, 2, True, False))]) + tail)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(BrokerError):
        assert len(decode_tagged_batches(data)) <= len(data) / 12
