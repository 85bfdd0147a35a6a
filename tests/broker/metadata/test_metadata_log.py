"""Metadata records on disk: Kafka's framing, snapshots, and recovery from damage."""

import logging
from pathlib import Path
from uuid import UUID

import pytest

from gregor.broker.metadata.log import MetadataLog
from gregor.broker.metadata.record_batches import decode_record, encode_record
from gregor.protocol.errors import DecodeError
from gregor.protocol.messages.cluster_metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
)
from gregor.protocol.records.batches import iter_batches
from gregor.protocol.schema import Message
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager

ID = UUID("aedcc885-41da-4baa-8a9e-174b62b59f14")

KAFKAS = [
    ("010c00116d657461646174612e76657273696f6e001500", FeatureLevelRecord(name="metadata.version", feature_level=21)),
    ("0102000a7a6f6f2d706c61696eaedcc88541da4baa8a9e174b62b59f1400", TopicRecord(name="zoo-plain", topic_id=ID)),
    (
        "01040002135f5f636f6e73756d65725f6f66667365747311636f6d7072657373696f6e2e747970650970726f647563657200",
        ConfigRecord(resource_type=2, resource_name="__consumer_offsets", name="compression.type", value="producer"),
    ),
    (
        "010f0000000001000000000000000600000000000003e800",
        ProducerIdsRecord(broker_id=1, broker_epoch=6, next_producer_id=1000),
    ),
    (
        "0109000b10a94ead814d8cab53d93533c438b700",
        RemoveTopicRecord(topic_id=UUID("0b10a94e-ad81-4d8c-ab53-d93533c438b7")),
    ),
    ("01160003616c0100", RemoveUserScramCredentialRecord(name="al", mechanism=1)),
]
"""Values from the metadata log of an Apache Kafka 3.9.1."""

KAFKAS_PARTITION = (
    "01030100000000aedcc88541da4baa8a9e174b62b59f14020000000102000000010101000000010000000000000000"
    "0207a66b58636a19c0aa48ee58fd28162a00"
)


@pytest.mark.parametrize(("encoded", "record"), KAFKAS, ids=[type(record).__name__ for _, record in KAFKAS])
def test_records_are_framed_as_kafka_frames_them(encoded: str, record: Message) -> None:
    assert encode_record(record) == bytes.fromhex(encoded)
    assert decode_record(bytes.fromhex(encoded)) == record


def test_a_later_version_of_a_record_is_read() -> None:
    record = decode_record(bytes.fromhex(KAFKAS_PARTITION))
    assert isinstance(record, PartitionRecord)
    assert (record.topic_id, record.replicas, record.leader, len(record.directories)) == (ID, [1], 1, 1)


def test_a_record_of_an_unknown_type_is_decoded_as_none() -> None:
    assert decode_record(bytes((1, 20, 0, 0))) is None


@pytest.mark.parametrize("value", [b"", b"\x02\x02\x00", b"\x01\xff\xff\xff\xff\xff", b"\x01\x02\x00\xff"])
def test_a_malformed_record_frame_is_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(value)


class Opened:
    """A metadata log in a directory, which each instance opens again."""

    def __init__(self, directory: Path) -> None:
        self.logs = LogManager([str(directory)], LogConfig(), ManualClock(1000))
        self.logs.open_all()
        name = ("__cluster_metadata", 0)
        self.partition = self.logs.get(*name) or self.logs.create(*name, UUID(int=1), LogConfig(retention_ms=-1))
        self.log = MetadataLog(self.partition, ManualClock(1000), snapshot_every_bytes=1000)

    def replayed(self) -> list[Message]:
        found: list[Message] = []
        self.log.replay(found.append)
        return found


def topics(*names: str) -> list[Message]:
    return [TopicRecord(name=name, topic_id=UUID(int=number)) for number, name in enumerate(names, 1)]


def test_appended_metadata_records_are_replayed(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.log.append(topics("a", "b"))
    opened.log.append([FeatureLevelRecord(name="f", feature_level=2)])
    opened.logs.close()
    assert Opened(tmp_path).replayed() == [*topics("a", "b"), FeatureLevelRecord(name="f", feature_level=2)]


def test_records_of_one_change_are_one_batch(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.log.append(topics("a", "b", "c"))
    with opened.partition.read(0, 1 << 20) as stretch:
        batches = list(iter_batches(stretch.read()))
    assert [batch.record_count for batch in batches] == [3]
    opened.logs.close()


def test_a_snapshot_replaces_the_records_before_it(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    for number in range(20):
        opened.log.append(topics(f"topic-number-{number:030d}"))
    assert opened.log.snapshot_is_due
    opened.log.write_snapshot(topics("all", "there", "is"))
    assert not opened.log.snapshot_is_due
    opened.log.append([FeatureLevelRecord(name="later", feature_level=1)])
    assert opened.partition.log_start_offset == 20
    opened.logs.close()
    again = Opened(tmp_path)
    assert again.replayed() == [*topics("all", "there", "is"), FeatureLevelRecord(name="later", feature_level=1)]
    again.logs.close()


def test_only_the_newest_snapshot_is_kept(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    for number in range(3):
        opened.log.append(topics(f"t{number}"))
        opened.log.write_snapshot(topics("kept"))
    names = sorted(path.name for path in Path(opened.partition.directory).glob("*.checkpoint*"))
    assert names == ["00000000000000000003-0000000000.checkpoint"]
    opened.logs.close()


def test_a_snapshot_that_was_never_finished_is_not_read(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.log.append(topics("a"))
    unfinished = Path(opened.partition.directory) / "00000000000000000001-0000000000.checkpoint.part"
    unfinished.write_bytes(b"half of it")
    opened.logs.close()
    assert Opened(tmp_path).replayed() == topics("a")


def test_a_record_that_cannot_be_read_is_skipped_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("gregor.broker.metadata.record_batches.encode_record", lambda record: b"\x07nonsense")
        opened.log.append(topics("a"))
    opened.log.append(topics("b"))
    with caplog.at_level(logging.ERROR):
        assert opened.replayed() == topics("b")
    assert ["record 0 is skipped" in message for message in caplog.messages] == [True]
    opened.logs.close()
