"""The tools that send requests to a broker, run as a user runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from gregor.command_line.configs import parse_settings
from gregor.command_line.consume import RecordFormat
from gregor.command_line.offset_reset import parse_datetime_ms, parse_duration
from gregor.command_line.perf_latency import LatencyStatistics, percentiles
from gregor.command_line.produce import LineFormat, ParsedLine
from gregor.command_line.text_table import format_table
from tests.broker_process import BrokerProcess
from tests.waiting import PATIENCE_S


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run(broker: BrokerProcess | None, *words: str, text: str = "") -> Outcome:
    """Run `gregor WORDS`, with the broker's address unless there is none."""
    server = ["--bootstrap-server", broker.bootstrap] if broker is not None else []
    command = [sys.executable, "-m", "gregor.command_line", *words, *server]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=PATIENCE_S, check=False)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def topic(broker_process: BrokerProcess) -> str:
    name = f"tool-{uuid4().hex[:10]}"
    created = run(
        broker_process, "topics", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=9000000"
    )
    assert (created.code, created.out) == (0, f"Created topic {name}.\n")
    return name


def test_topics_are_created_described_altered_and_deleted(broker_process: BrokerProcess, topic: str) -> None:
    described = run(broker_process, "topics", "--describe", "--topic", topic)
    first, *partitions = described.lines
    assert first.startswith(f"Topic: {topic}\tTopicId: ")
    assert first.endswith("\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=9000000")
    assert partitions == [f"\tTopic: {topic}\tPartition: {n}\tLeader: 1\tReplicas: 1\tIsr: 1" for n in range(2)]
    again = run(broker_process, "topics", "--create", "--topic", topic)
    assert again.code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert run(broker_process, "topics", "--create", "--topic", topic, "--if-not-exists").code == 0
    assert run(broker_process, "topics", "--alter", "--topic", topic, "--partitions", "3").code == 0
    assert "PartitionCount: 3" in run(broker_process, "topics", "--describe", "--topic", topic).out
    assert topic in run(broker_process, "topics", "--list").lines
    assert run(broker_process, "topics", "--delete", "--topic", topic).code == 0
    assert topic not in run(broker_process, "topics", "--list").lines
    gone = run(broker_process, "topics", "--describe", "--topic", topic)
    assert (gone.code, gone.err) == (1, f"Error: Topic '{topic}' does not exist as expected\n")


def test_topic_configs_are_altered_and_described(broker_process: BrokerProcess, topic: str) -> None:
    entity = ("configs", "--entity-type", "topics", "--entity-name", topic)
    altered = run(
        broker_process, *entity, "--alter", "--add-config", "max.message.bytes=777,cleanup.policy=[compact,delete]"
    )
    assert (altered.code, altered.out) == (0, f"Completed updating topic {topic}.\n")
    described = run(broker_process, *entity, "--describe").out
    assert "max.message.bytes=777 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=777" in described
    assert "cleanup.policy=compact,delete" in described
    assert run(broker_process, *entity, "--alter", "--delete-config", "max.message.bytes").code == 0
    assert "max.message.bytes=777" not in run(broker_process, *entity, "--describe").out
    assert "segment.bytes=1073741824" in run(broker_process, *entity, "--describe", "--all").out
    assert run(broker_process, "configs", "--describe").code == 1


def test_records_with_keys_headers_and_nulls_are_produced_and_consumed(
    broker_process: BrokerProcess, topic: str
) -> None:
    sent = run(
        broker_process,
        "produce", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:",
        "--property", "parse.headers=true", "--property", "headers.delimiter=|", "--property", "null.marker=NIL",
        "--compression-codec", "zstd",
        text="h:1|k:one\nh:2,i:3|k:two\nNIL|k:NIL\n",
    )  # fmt: skip
    assert (sent.code, sent.err) == (0, "")
    options = [f"--property=print.{what}=true" for what in ("key", "headers", "offset", "partition")]
    read = run(
        broker_process,
        "consume", "--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000", *options,
    )  # fmt: skip
    places, rests = zip(*(line.split("\t", 1) for line in read.lines), strict=True)
    assert rests == ("Offset:0\th:1\tk\tone", "Offset:1\th:2,i:3\tk\ttwo", "Offset:2\tNO_HEADERS\tk\tnull")
    (partition,) = {place.removeprefix("Partition:") for place in places}
    assert read.err == "Processed a total of 3 messages\n"
    from_the_second_on = ("--partition", partition, "--offset", "1", "--max-messages", "2")
    assert run(broker_process, "consume", "--topic", topic, *from_the_second_on).lines == ["two", "null"]
    nothing = run(broker_process, "consume", "--topic", topic, "--partition", partition, "--timeout-ms", "200")
    assert (nothing.code, nothing.out) == (0, "")
    wrong = run(broker_process, "produce", "--topic", topic, "--property", "parse.key=true", text="no key\n")
    assert wrong.code == 1
    assert "No key separator found on line number 1" in wrong.err


def test_groups_are_described_reset_and_deleted(broker_process: BrokerProcess, topic: str) -> None:
    group = f"g-{topic}"
    run(broker_process, "produce", "--topic", topic, text="".join(f"{n}\n" for n in range(10)))
    run(broker_process, "consume", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "10")
    assert group in run(broker_process, "groups", "--list").lines
    described = run(broker_process, "groups", "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in described.out
    columns, *rows = [line.split() for line in described.lines if line.startswith(("GROUP", "g-"))]
    assert columns[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert sum(int(row[3]) for row in rows) == 10
    assert {row[5] for row in rows} == {"0"}

    reset = ("groups", "--reset-offsets", "--group", group, "--topic", topic)
    dry = run(broker_process, *reset, "--to-earliest")
    assert [line.split()[3] for line in dry.lines if line.startswith("g-")] == ["0", "0"]
    assert sum(int(row[3]) for row in rows) == 10, "nothing was done without --execute"
    assert run(broker_process, *reset, "--to-offset", "1", "--execute").code == 0
    shifted = run(broker_process, *reset, "--shift-by", "-5", "--export").lines
    assert sorted(shifted) == [f"{topic},0,0", f"{topic},1,0"], (
        "an offset before the first record becomes the first offset"
    )
    assert "Empty" in run(broker_process, "groups", "--describe", "--group", group, "--state").out
    assert run(broker_process, "groups", "--delete", "--group", group).code == 0
    gone = run(broker_process, "groups", "--describe", "--group", group)
    assert (gone.code, gone.err) == (1, f"Error: Consumer group '{group}' does not exist.\n")


def test_dump_log_prints_batches_records_and_committed_offsets(broker_process: BrokerProcess, topic: str) -> None:
    run(broker_process, "produce", "--topic", topic, "--property", "parse.key=true", text="k\tv\n")
    run(broker_process, "consume", "--topic", topic, "--group", f"g-{topic}", "--from-beginning", "--max-messages", "1")
    (segment,) = [path for path in broker_process.directory.glob(f"logs/{topic}-*/*.log") if path.stat().st_size]
    dumped = run(None, "dump-log", "--files", str(segment), "--print-data-log")
    assert dumped.code == 0
    dumping, starting, batch, record = dumped.lines
    assert (dumping, starting) == (f"Dumping {segment}", "Log starting offset: 0")
    assert batch.startswith("baseOffset: 0 lastOffset: 0 count: 1 baseSequence: 0 lastSequence: 0 producerId: ")
    assert "compresscodec: none" in batch
    assert batch.endswith("isvalid: true")
    assert record.endswith("keySize: 1 valueSize: 1 sequence: 0 headerKeys: [] key: k payload: v")
    (offsets,) = broker_process.directory.glob("logs/__consumer_offsets-0/*.log")
    decoded = run(None, "dump-log", "--files", str(offsets), "--offsets-decoder").out
    key = json.loads(decoded.split(" key: ")[-1].split(" payload: ")[0])
    assert key["type"] in ("1", "2")
    missing = run(None, "dump-log", "--files", "/nowhere.log")
    assert (missing.code, missing.err) == (1, "Error: /nowhere.log: No such file or directory\n")


def test_perf_test_prints_throughput_latency_and_metrics(
    broker_process: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    plot = tmp_path / "plot.svg"
    words = ("--topic", topic, "--num-records", "2000", "--record-size", "100", "--plot", str(plot), "--print-metrics")
    sent = run(broker_process, "perf-test", "producer", *words)
    assert sent.code == 0
    # A slow consumer also prints its progress.
    summary = next(line for line in sent.lines if line.endswith(" ms 99.9th."))
    assert summary.startswith("2000 records sent, ")
    for part in (" records/sec (", " MB/sec), ", " ms avg latency, ", " ms max latency, ", " ms 50th, ", " ms 99.9th."):
        assert part in summary
    assert re.search(r"^producer-metrics:record-send-total:\{client-id=[^,]*\} +: 2000\.000$", sent.out, re.MULTILINE)
    assert re.search(
        r"^producer-node-metrics:outgoing-byte-total:\{client-id=[^,]*, node-id=node-\d\} +: ", sent.out, re.MULTILINE
    )
    assert plot.read_text().startswith("<svg")
    read = run(broker_process, "perf-test", "consumer", "--topic", topic, "--messages", "2000")
    header, figures = read.lines
    assert header.startswith("start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec")
    assert int(figures.split(", ")[4]) >= 2000


def test_an_unreachable_broker_is_an_error_of_one_line() -> None:
    command = [sys.executable, "-m", "gregor.command_line", "groups", "--list", "--timeout", "200"]
    command += ["--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == "Error: no broker within 0.2 s at 127.0.0.1:1: connection refused\n"
    assert done.stderr.count(b"\n") == 1


# --- what needs no broker ---


def test_input_lines_are_split_into_key_and_value() -> None:
    assert LineFormat().parse(b"a\tb", 1) == ParsedLine(None, b"a\tb", [])
    keyed = LineFormat.from_properties({"parse.key": "true", "key.separator": r"\t", "null.marker": "-"})
    assert keyed.parse(b"a\tb\tc", 1) == ParsedLine(b"a", b"b\tc", [])
    assert keyed.parse(b"-\t-", 1) == ParsedLine(None, None, [])
    lenient = LineFormat.from_properties({"parse.key": "true", "ignore.error": "true"})
    assert lenient.parse(b"no key", 1) == ParsedLine(None, b"no key", [])


def test_unknown_properties_are_refused() -> None:
    with pytest.raises(Exception, match=r"print\.colour"):
        RecordFormat.from_properties({"print.colour": "true"})
    with pytest.raises(Exception, match=r"parse\.colour"):
        LineFormat.from_properties({"parse.colour": "true"})


def test_settings_in_brackets_may_contain_commas() -> None:
    assert parse_settings("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}


def test_datetimes_and_durations_are_parsed() -> None:
    assert parse_datetime_ms("1970-01-01T00:00:01.500") == 1500
    assert parse_datetime_ms("1970-01-01T01:00:00+01:00") == 0
    assert parse_duration("P1DT2H3M4S").total_seconds() == 93784
    for wrong in ("1D", "P", "PT"):
        with pytest.raises(Exception, match="PnDTnHnMnS"):
            parse_duration(wrong)


def test_tables_are_as_wide_as_they_need_to_be() -> None:
    assert format_table(("GROUP", "PARTITION"), [("a-very-long-group-name", None)]) == [
        "GROUP                  PARTITION",
        "a-very-long-group-name -",
    ]


def test_latencies_are_counted_by_window_and_in_all() -> None:
    statistics = LatencyStatistics(4, 0.0)
    assert statistics.record(10.0, 1 << 20, 1.0) is None
    window = statistics.record(30.0, 1 << 20, 5.0)
    assert window is not None
    assert window.line == "2 records sent, 0.4 records/sec (0.40 MB/sec), 20.0 ms avg latency, 30.0 ms max latency."
    statistics.record(20.0, 1 << 20, 6.0)
    assert statistics.total_line(10.0) == (
        "3 records sent, 0.300000 records/sec (0.30 MB/sec), 20.00 ms avg latency, 30.00 ms max latency, "
        "20 ms 50th, 30 ms 95th, 30 ms 99th, 30 ms 99.9th."
    )
    assert percentiles([], [0.5]) == [0.0]
