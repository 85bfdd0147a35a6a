"""`gregor.load`: topics have their records before the broker serves clients."""

import json
from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.app.loading_marker import MARKER
from gregor.broker.config import BrokerConfig, ConfigError
from gregor.client.producer.partitioner import partition_for_key
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.record import Header, Record
from tests.waiting import PATIENCE_S

LOCAL = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.ms": "-1"}


def config(directory: Path, *loaded: Path, **properties: str) -> BrokerConfig:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    paths = ",".join(map(str, loaded))
    return BrokerConfig({**LOCAL, "log.dirs": str(directory), "gregor.load": paths, **named})


def records_of(broker: Broker, topic: str, index: int = 0) -> list[Record]:
    log = broker.services.partitions.get(topic, index).log
    stored = b"".join(segment.read_bytes() for segment in sorted(Path(log.directory).glob("*.log")))
    return [record for batch in iter_batches(stored) for record in iter_records(batch)]


async def contents(config: BrokerConfig, *topics: str) -> dict[str, list[Record]]:
    """Start a broker, read the records of partition 0 of these topics when it is ready, and stop it."""
    broker = Broker(config)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        found = {topic: records_of(broker, topic) for topic in topics}
        broker.stop()
    return found


async def start_in_vain(config: BrokerConfig) -> None:
    """Start a broker that cannot start. Raises the broker's error."""
    with trio.fail_after(PATIENCE_S):
        await Broker(config).run()


def lines(path: Path, *objects: object) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in objects))
    return path


async def test_lines_become_records(tmp_path: Path) -> None:
    seed = lines(
        tmp_path / "orders.jsonl",
        {"key": "a", "value": "text", "timestamp": 5, "headers": {"h": "1", "none": None}},
        {"key_base64": "/w==", "value": {"id": 1}, "timestamp": 6, "headers": [["h", "1"], ["h", "2"]]},
        {"topic": "users", "key": "u", "value": None, "timestamp": 7},
    )
    found = await contents(config(tmp_path / "logs", seed), "orders", "users")
    assert found["orders"] == [
        Record(0, 5, b"a", b"text", (Header(b"h", b"1"), Header(b"none"))),
        Record(1, 6, b"\xff", b'{"id":1}', (Header(b"h", b"1"), Header(b"h", b"2"))),
    ]
    assert found["users"] == [Record(0, 7, b"u", None)]


async def test_keys_choose_partitions_as_kafkas_producer_does(tmp_path: Path, nursery: trio.Nursery) -> None:
    seed = lines(
        tmp_path / "t.jsonl",
        *({"key": str(number), "value": ""} for number in range(4)),
        {"value": "x", "partition": 2},
    )
    broker = Broker(config(tmp_path / "logs", seed, gregor_create_topics="t:3"))
    await nursery.start(broker.run)
    for index in range(3):
        keys = {record.key for record in records_of(broker, "t", index)} - {None}
        assert keys == {key for key in (b"0", b"1", b"2", b"3") if partition_for_key(key, 3) == index}
    assert [record.value for record in records_of(broker, "t", 2) if record.key is None] == [b"x"]
    broker.stop()


async def test_seed_records_of_several_batches_have_consecutive_offsets(tmp_path: Path) -> None:
    seed = lines(tmp_path / "t.jsonl", *({"key": "k", "value": "x" * 1000} for _ in range(200)))
    found = await contents(config(tmp_path / "logs", seed), "t")
    assert [record.offset for record in found["t"]] == list(range(200))


async def test_a_topic_with_records_is_not_loaded_again(tmp_path: Path) -> None:
    for value in ("first", "second"):
        seed = lines(tmp_path / "t.jsonl", {"value": value})
        found = await contents(config(tmp_path / "logs", seed), "t")
        assert [record.value for record in found["t"]] == [b"first"]
    assert not (tmp_path / "logs" / MARKER).exists()


async def test_an_interrupted_load_begins_again(tmp_path: Path) -> None:
    seed = lines(tmp_path / "t.jsonl", *({"value": "x" * 1000} for _ in range(100)), {"value": 1, "partition": 9})
    with pytest.raises(ConfigError, match="t has no partition 9: it has 1, from 0 on"):
        await start_in_vain(config(tmp_path / "logs", seed))
    assert (tmp_path / "logs" / MARKER).read_text() == "t"
    found = await contents(config(tmp_path / "logs", lines(seed, {"value": "mended"})), "t")
    assert [record.value for record in found["t"]] == [b"mended"]


async def test_records_of_an_interrupted_load_are_kept_by_a_start_without_seed_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await contents(config(tmp_path / "logs", lines(tmp_path / "t.jsonl", {"value": "kept"})))
    (tmp_path / "logs" / MARKER).write_text("t")
    for _ in range(2):
        found = await contents(config(tmp_path / "logs"), "t")
        assert [record.value for record in found["t"]] == [b"kept"]
    assert caplog.text.count("an interrupted load has filled t in part") == 1


async def test_records_loaded_from_a_log_directory_keep_their_offsets(tmp_path: Path) -> None:
    seed = lines(tmp_path / "t.jsonl", *({"key": "k", "value": str(number)} for number in range(3)))
    source = Broker(config(tmp_path / "source", seed))
    async with trio.open_nursery() as nursery:
        await nursery.start(source.run)
        log = source.services.partitions.get("t", 0).log
        log.roll()
        batch = next(iter_batches((Path(log.directory) / f"{0:020d}.log").read_bytes()))
        written = [record.value for record in iter_records(batch)]
        source.stop()
    first = tmp_path / "source" / "t-0" / f"{0:020d}.log"
    moved = bytearray(first.read_bytes())
    moved[:8] = (40).to_bytes(8, "big")
    first.write_bytes(moved + b"\0\0\0")
    found = await contents(config(tmp_path / "copy", tmp_path / "source"), "t")
    assert [(record.offset, record.value) for record in found["t"]] == list(zip(range(40, 43), written, strict=True))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: Expecting property name"),
        ('{"id": 1}', 'line 2: write a record as {"topic": "orders", "key": "a", "value": "b"}'),
        ('{"value": 1, "vaule": 2}', "line 2: unknown field 'vaule'"),
        ('{"value": 1, "value_base64": ""}', "line 2: give value or value_base64, not both"),
        ('{"value_base64": "?"}', "line 2: Only base64 data is allowed"),
        ('{"value": 1, "timestamp": -1}', "line 2: timestamp must be milliseconds since 1970"),
        ('{"value": 1, "partition": "0"}', "line 2: partition must be a number from 0 on"),
        ('{"value": 1, "headers": ["ab"]}', "line 2: headers must be"),
        ('{"value": "\\ud800"}', "line 2: 'utf-8' codec can't encode"),
        ('{"topic": "a b", "value": 1}', "Topic name is invalid"),
    ],
)
async def test_a_bad_line_ends_the_start_in_one_line(tmp_path: Path, line: str, message: str) -> None:
    seed = tmp_path / "t.jsonl"
    seed.write_text('{"value": 1}\n' + line)
    with pytest.raises(ConfigError) as caught:
        await start_in_vain(config(tmp_path / "logs", seed))
    assert str(caught.value).startswith(f"gregor.load: {seed}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_missing_seed_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gregor\.load: .*missing\.jsonl: No such file"):
        await start_in_vain(config(tmp_path / "logs", tmp_path / "missing.jsonl"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="neither directories of partitions nor files"):
        await start_in_vain(config(tmp_path / "logs", tmp_path / "empty"))


def test_a_broker_of_a_cluster_refuses_seed_data(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gregor\.load needs a broker that is a cluster of its own"):
        config(
            tmp_path,
            tmp_path,
            listeners="PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093",
            process_roles="broker,controller",
            controller_listener_names="CONTROLLER",
            controller_quorum_voters="1@127.0.0.1:9093",
            node_id="1",
        )
