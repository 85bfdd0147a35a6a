"""Conversion against vectors from Kafka's own classes: `RecordsUtil.downConvert` and the lazy sender of KIP-283.

Uncompressed answers are equal to the byte. Where a codec wrote them, what is inside each wrapper is, and everything
between wrappers. `clean_output` is what Kafka would send without the two faults of its sender (see ``lazy``).
"""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import BrokerError
from gregor.protocol.records.batches import inner_message_set, iter_batches, iter_records, read_batch
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.convert import down_convert
from gregor.protocol.records.lazy import converted_chunks, plan_down_conversion

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"
AMPLE = 4 * 1024 * 1024

Case = dict[str, Any]


def cases(name: str) -> list[Any]:
    path = GOLDEN / f"{name}.jsonl.gz"
    if not path.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"no ../shared/golden/{name}.jsonl.gz"))]
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


def bytes_of(case: Case, key: str) -> memoryview:
    return memoryview(base64.b64decode(case[key]))


def records_in(messages: memoryview) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [record[:4] for batch in iter_batches(messages) for record in iter_records(batch)]


@pytest.mark.parametrize("case", cases("downconvert"))
def test_down_conversion_gives_what_kafka_gives(case: Case, record_build: str) -> None:
    stored = bytes_of(case, "input")

    def convert() -> tuple[memoryview, int]:
        converted = list(down_convert(iter_batches(stored), case["target_magic"], case["first_offset"]))
        data = b"".join(bytes(each.data) for each in converted)
        return memoryview(data), sum(each.record_count for each in converted)

    if "error" in case:
        with pytest.raises(BrokerError) as failure:
            convert()
        assert failure.value.code == case["error"]["code"]
        return
    ours, record_count = convert()
    theirs = bytes_of(case, "output")
    assert record_count == case["converted_record_count"]
    if case["exact"]:
        assert ours == theirs
    else:
        assert outline(ours) == outline(theirs)
        expected_inner = [base64.b64decode(wrapper["inner"]) for wrapper in case["wrappers"]]
        assert [inner for *_, inner in outline(ours) if inner is not None] == expected_inner


def outline(messages: memoryview) -> list[tuple[Any, ...]]:
    """Return messages as they are, and wrappers by header and content, so that the compressed bytes do not matter."""
    result: list[tuple[Any, ...]] = []
    for batch in iter_batches(messages):
        assert batch.crc_is_valid
        if batch.is_compressed:
            inner = inner_message_set(batch)
            result.append((batch.last_offset, batch.magic, batch.attributes, batch.max_timestamp, inner))
        else:
            result.append((bytes(batch.view), None))
    return result


@pytest.mark.parametrize("case", cases("lazy"))
def test_lazy_conversion_sends_what_kafka_promises(case: Case, record_build: str) -> None:
    stored = bytes_of(case, "input")
    if "error" in case:
        with pytest.raises(BrokerError) as failure:
            plan_down_conversion(stored, case["to_magic"], case["first_offset"])
        assert failure.value.code == case["error"]["code"]
        return
    expected = bytes_of(case, "clean_output" if "clean_output" in case else "output")
    conversion = plan_down_conversion(stored, case["to_magic"], case["first_offset"])
    for buffer_bytes in (AMPLE, 4096, 100):
        sent = memoryview(b"".join(map(bytes, conversion.pieces(bytearray(buffer_bytes)))))
        assert len(sent) == conversion.size
        if has_codec_work(stored, case["to_magic"]):
            assert_same_up_to_codec(sent, expected)
        else:
            assert conversion.size == case["size_in_bytes"]
            assert sent == expected


@pytest.mark.parametrize("case", [case for case in cases("lazy") if "error" not in case.values[0]])
def test_with_less_padding_the_messages_equal_those_of_kafka(case: Case) -> None:
    """An improvement on Kafka: a size that was measured leaves out padding, and nothing else (`promised_size`)."""
    stored = bytes_of(case, "input")
    expected = bytes_of(case, "clean_output" if "clean_output" in case else "output")
    conversion = plan_down_conversion(stored, case["to_magic"], case["first_offset"], pads_less=True)
    sent = memoryview(b"".join(map(bytes, conversion.pieces(bytearray(AMPLE)))))
    assert len(sent) == conversion.size
    if has_codec_work(stored, case["to_magic"]):
        if complete_part(expected):
            assert_same_up_to_codec(sent, expected)
    else:
        assert conversion.size <= case["size_in_bytes"]
        assert complete_part(sent) == complete_part(expected)


def has_codec_work(stored: memoryview, to_magic: int) -> bool:
    return any(
        batch.is_compressed and batch.magic > to_magic and batch.codec is not Codec.ZSTD
        for batch in iter_batches(stored)
    )


def assert_same_up_to_codec(sent: memoryview, expected: memoryview) -> None:
    """Check that a client gets the same records, up to the shorter answer; the lengths depend on the codec."""
    ours, theirs = records_in(complete_part(sent)), records_in(complete_part(expected))
    shorter = min(len(ours), len(theirs))
    assert shorter
    assert ours[:shorter] == theirs[:shorter]


def complete_part(messages: memoryview) -> memoryview:
    """Return the messages that an old client reads: those before the first partial one."""
    position = 0
    while (batch := read_batch(messages, position)) is not None:
        position = batch.end
    return messages[:position]


@pytest.mark.parametrize("chunk_bytes", [131072, 0, 1000, 20000])
@pytest.mark.parametrize("case", [case for case in cases("lazy") if "error" not in case.values[0]])
def test_chunks_have_kafkas_sizes(case: Case, chunk_bytes: int, record_build: str) -> None:
    stored = bytes_of(case, "input")
    first_end = plan_down_conversion(stored, case["to_magic"], case["first_offset"]).first_end
    ours: list[int | str] = []
    chunks = converted_chunks(
        stored,
        case["to_magic"],
        case["first_offset"],
        memoryview(bytearray(AMPLE)),
        first_end=first_end,
        chunk_bytes=chunk_bytes,
    )
    try:
        ours.extend(map(len, chunks))
    except BrokerError:
        ours.append("UnsupportedCompressionTypeException")
    theirs = case["chunk_sizes"][str(chunk_bytes)]
    if has_codec_work(stored, case["to_magic"]):
        assert len(ours) == len(theirs)
    elif case.get("repeats_first_batch"):
        assert sum(map(int, ours)) == case["converted_size"]
    else:
        assert ours == theirs
