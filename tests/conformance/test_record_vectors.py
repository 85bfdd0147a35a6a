"""Reading, checking and appending batches against vectors from Kafka's own classes (`records.jsonl.gz`).

Each vector has the result of Kafka's reader for some bytes, the result of ProduceRequest v9, and the batches that a
leader appends under several configurations. Gregor stores batches as produced, so where Kafka rewrites them (for
another message format or codec in the log), the records are compared, as far as both formats can hold them, and not
the bytes.
"""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v2
from gregor.protocol.records.batches import BatchView, Record, iter_batches, iter_records
from gregor.protocol.records.control import control_type
from gregor.protocol.records.offsets_cy import assign_offsets
from gregor.protocol.records.record import NO_TIMESTAMP, TimestampType
from gregor.protocol.records.validation import AppendRules, Produced, check_produce_version, validate

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "golden" / "records.jsonl.gz"
NOW_MS = 1700010000000
LEADER_EPOCH = 5
LOG_END = 1000
MAGIC_AT = 16

AS_GOOD_AS_AN_EXCEPTION = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
TIMESTAMP_TYPES = {
    "none": TimestampType.NO_TIMESTAMP_TYPE,
    "create": TimestampType.CREATE_TIME,
    "log_append": TimestampType.LOG_APPEND_TIME,
}

Case = dict[str, Any]


def cases() -> list[Any]:
    if not VECTORS.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason="no ../shared/golden/records.jsonl.gz"))]
    with gzip.open(VECTORS, "rt", encoding="utf-8") as lines:
        return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


CASES = cases()


def data_of(case: Case) -> bytes:
    return base64.b64decode(case["bytes"])


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


# --- reading ---


def our_reading(data: bytes) -> tuple[list[Case], int]:
    """Return our reading of `data`, in the vectors' terms, and the bytes of a partial tail."""
    batches, end = [], 0
    for batch in iter_batches(data):
        if not batch.crc_is_valid:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, "wrong CRC")
        batches.append(described(batch))
        end = batch.end
    return batches, len(data) - end


def described(batch: BatchView) -> Case:
    facts: Case = {
        "magic": batch.magic,
        "size": batch.size_bytes,
        "codec": batch.codec.name.lower(),
        "timestamp_type": batch.timestamp_type,
        "last_offset": batch.last_offset,
        "crc": batch.crc,
        "records": [described_record(batch, record) for record in iter_records(batch)],
    }
    if batch.magic == v2.MAGIC:
        facts |= {
            "base_offset": batch.base_offset,
            "partition_leader_epoch": batch.leader_epoch,
            "base_timestamp": batch.base_timestamp,
            "max_timestamp": batch.max_timestamp,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "count": batch.record_count,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
        }
        if batch.delete_horizon_ms is not None:
            facts["delete_horizon"] = batch.delete_horizon_ms
    return facts


def described_record(batch: BatchView, record: Record) -> Case:
    facts: Case = {
        "offset": record.offset,
        "timestamp": None if batch.magic == 0 else record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": [(key.decode(errors="replace"), value) for key, value in record.headers],
    }
    if batch.is_control:
        facts["control_type"] = control_type(record.key).name
    return facts


def kafkas_reading(batch: Case) -> Case:
    """Return a vector's batch in Python's types, without derived values (sequence numbers, delta)."""
    facts = {key: value for key, value in batch.items() if key not in {"records", "last_offset_delta"}}
    facts["timestamp_type"] = TIMESTAMP_TYPES[batch["timestamp_type"]]
    if batch["magic"] < v2.MAGIC:
        facts.pop("max_timestamp", None)
    facts["records"] = [
        {
            **{key: value for key, value in record.items() if key != "sequence"},
            "key": decoded(record["key"]),
            "value": decoded(record["value"]),
            "headers": [(key, decoded(value)) for key, value in record.get("headers", [])],
        }
        for record in batch["records"]
    ]
    return facts


@pytest.mark.parametrize("case", CASES)
def test_bytes_are_read_as_kafka_reads_them(case: Case) -> None:
    if not case["parses"]:
        with pytest.raises(BrokerError):
            our_reading(data_of(case))
        return
    batches, unused_bytes = our_reading(data_of(case))
    assert batches == [kafkas_reading(batch) for batch in case["batches"]]
    assert unused_bytes == case.get("unused_bytes", 0)


# --- ProduceRequest's own check ---


@pytest.mark.parametrize("case", CASES)
def test_produce_v9_takes_what_kafka_takes(case: Case) -> None:
    expected = case["produce_v9_error"]
    if expected is None:
        check_produce_version(data_of(case), 9)
        return
    with pytest.raises(BrokerError) as failure:
        check_produce_version(data_of(case), 9)
    # A size field that no message of its format can have is found before the format is: both are refusals.
    is_size_too_small = case["name"].startswith("bad-v1-length-is-")
    assert failure.value.code == expected["code"] or (
        failure.value.code == ErrorCode.CORRUPT_MESSAGE and (expected["code"] == -1 or is_size_too_small)
    )


# --- appending ---


@pytest.mark.parametrize("case", CASES)
def test_a_leader_appends_what_kafka_appends(case: Case, record_build: str) -> None:
    for expected in case["append"]:
        check_append(data_of(case), expected)


def check_append(data: bytes, expected: Case) -> None:
    config = expected["config"]
    converts = len(data) > MAGIC_AT and config["to_magic"] != data[MAGIC_AT]
    try:
        produced, last_offset = append(data, config)
    except BrokerError as failure:
        assert_as_good_a_refusal(failure, expected, converts)
        return
    if "error" in expected:
        # Gregor never converts on append, so it keeps batches that only a conversion refuses.
        assert converts, f"{config}: {expected['error']}"
        return
    if expected.get("nothing_appended"):
        assert produced.size_bytes == produced.record_count == 0
        return
    assert last_offset == expected["last_offset"]
    assert produced.size_bytes == expected.get("trimmed_to", len(data))
    if not expected["rewritten"]:
        assert bytes(produced.data) == base64.b64decode(expected["written"])
    assert all(batch.crc_is_valid for batch in iter_batches(produced.data))
    if min(config["to_magic"], data[MAGIC_AT]) > 0:
        assert produced.max_timestamp == expected["max_timestamp"]
    assert_same_records(produced, base64.b64decode(expected["written"]), converts)


def append(data: bytes, config: Case) -> tuple[Produced, int]:
    is_log_append_time = config.get("timestamp_type") == "log_append"
    defaults = AppendRules()
    rules = AppendRules(
        max_message_bytes=config.get("max_message_bytes", defaults.max_message_bytes),
        timestamp_type=TimestampType.LOG_APPEND_TIME if is_log_append_time else TimestampType.CREATE_TIME,
        timestamp_before_max_ms=config.get("before_max_ms", defaults.timestamp_before_max_ms),
        timestamp_after_max_ms=config.get("after_max_ms", defaults.timestamp_after_max_ms),
        keys_required=config.get("compacted", False),
    )
    produced = validate(data, rules, now_ms=NOW_MS)
    last_offset = assign_offsets(
        produced,
        config.get("first_offset", LOG_END),
        leader_epoch=LEADER_EPOCH,
        log_append_time_ms=NOW_MS if is_log_append_time else None,
    )
    return produced, last_offset


def assert_as_good_a_refusal(failure: BrokerError, expected: Case, converts: bool) -> None:
    is_clear = failure.code in AS_GOOD_AS_AN_EXCEPTION
    if "error" not in expected:
        # Either a fault of Kafka, or deltas out of order: Kafka repairs those in a conversion, and fails without one.
        assert is_clear
        assert expected.get("quirk") == "unreadable_accepted" or (converts and "offset deltas" in str(failure))
        return
    if expected.get("quirk") == "unforeseen_exception":
        assert is_clear
    else:
        assert failure.code == expected["error"]["code"]
    if expected.get("record_errors") is not None:
        assert [error.batch_index for error in getattr(failure, "record_errors", [])] == expected["record_errors"]


def assert_same_records(produced: Produced, written: bytes, converts: bool) -> None:
    ours, theirs = list(iter_batches(produced.data)), list(iter_batches(written))
    magic = min(ours[0].magic, theirs[0].magic)
    our_records = [record for batch in ours for record in iter_records(batch)]
    their_records = [record for batch in theirs for record in iter_records(batch)]
    if converts and [r.offset for r in our_records] != [r.offset for r in their_records]:
        # Kafka stores v2 deltas that are out of order as they are, and repairs them when it converts.
        assert ours[0].magic == v2.MAGIC
        assert not ours[0].is_compressed
        our_records = [
            ours._replace(offset=theirs.offset) for ours, theirs in zip(our_records, their_records, strict=True)
        ]
    # A down-conversion gives each record the batch's LogAppendTime; stored batches have the records' own times.
    keeps_timestamps = magic > 0 and not (converts and theirs[0].magic < v2.MAGIC)
    assert [reduced(record, magic, keeps_timestamps) for record in our_records] == [
        reduced(record, magic, keeps_timestamps) for record in their_records
    ]


def reduced(record: Record, magic: int, keeps_timestamps: bool) -> Record:
    """Return the parts of a record that a format can hold."""
    return record._replace(
        timestamp=record.timestamp if keeps_timestamps else NO_TIMESTAMP,
        headers=record.headers if magic == v2.MAGIC else (),
    )
