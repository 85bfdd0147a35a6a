"""The fast check of common payloads: `validate` accepts each payload that it accepts, with the same facts."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import BrokerError
from gregor.protocol.records import v2
from gregor.protocol.records.batches import Record
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.plain_batch_cy import COMPRESSED_LIMIT_BYTES, INFLATED_LIMIT_BYTES, check_plain_batch
from gregor.protocol.records.produced_cy import ProducedBatch
from gregor.protocol.records.record import NO_TIMESTAMP, TimestampType
from gregor.protocol.records.validation import AppendRules, validate
from tests.protocol.records.record_strategies import Sample, samples, v2_samples

NOW_MS = 2**44
every_rule = st.builds(
    AppendRules,
    timestamp_type=st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
    timestamp_before_max_ms=st.sampled_from([2**63 - 1, 2**43]),
    timestamp_after_max_ms=st.sampled_from([2**63 - 1, 0]),
    keys_required=st.booleans(),
    max_message_bytes=st.sampled_from([1 << 20, 200]),
)
FACTS = (
    "position",
    "size_bytes",
    "magic",
    "codec",
    "record_count",
    "max_timestamp",
    "index_of_max_timestamp",
    "relative_offsets_honoured",
    "keyed",
    "is_transactional",
    "is_control",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "base_offset",
    "last_offset",
)
both_builds = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def _both_builds(record_build: str) -> None:
    """Run each test with both builds."""


def validated(data: bytes, rules: AppendRules) -> ProducedBatch | None:
    try:
        batches = validate(data, rules, now_ms=NOW_MS).batches
    except BrokerError:
        return None
    return batches[0] if batches else None


def facts(batch: ProducedBatch) -> dict[str, object]:
    """Return the values of a checked batch by name."""
    return {name: getattr(batch, name) for name in FACTS}


def checked(data: bytes, rules: AppendRules | None = None) -> ProducedBatch | None:
    return check_plain_batch(memoryview(data), rules or AppendRules(), now_ms=NOW_MS)


@both_builds
@given(v2_samples, every_rule)
def test_valid_plain_batches_have_the_same_facts_as_from_validate(sample: Sample, rules: AppendRules) -> None:
    expected, found = validated(sample.data, rules), checked(sample.data, rules)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert facts(found) == facts(expected)


@both_builds
@given(samples, st.data())
def test_damaged_payloads_pass_only_if_validate_passes_them(sample: Sample, data: st.DataObject) -> None:
    damaged = bytearray(sample.data)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()) and sample.magic == 2:
        # A valid CRC lets the later checks run.
        v2.UINT32.pack_into(damaged, v2.CRC_AT, v2.batch_crc(damaged, 0, len(damaged)))
    found = checked(bytes(damaged))
    if found is not None:
        expected = validated(bytes(damaged), AppendRules())
        assert expected is not None
        assert facts(found) == facts(expected)


def test_codecs_newer_than_the_request_version_are_left_to_validate() -> None:
    data = v2.build_batch([Record(0, NO_TIMESTAMP, None, b"x")], codec=Codec.ZSTD)
    assert checked(data) is not None
    assert check_plain_batch(memoryview(data), AppendRules(), now_ms=NOW_MS, newest_codec=Codec.LZ4) is None


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_large_compressed_batches_are_left_to_validate(codec: Codec) -> None:
    noise = random.Random(5).randbytes(COMPRESSED_LIMIT_BYTES)
    bomb = bytes(INFLATED_LIMIT_BYTES)
    for value in (noise, bomb):
        data = v2.build_batch([Record(0, NOW_MS, None, value)], codec=codec)
        assert checked(data) is None
        assert validated(data, AppendRules()) is not None
