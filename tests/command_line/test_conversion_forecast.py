"""`gregor topics --describe --down-conversion`: the forecast of what old consumers of a topic would cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from gregor.client import Admin, Producer
from gregor.client.admin import NewTopic
from gregor.command_line import main
from gregor.protocol.records import v0, v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.broker_process import running_broker
from tests.waiting import PATIENCE_S

RECORDS = [Record(number, 1_700_000_000_000, b"k%d" % number, b"value " * 20) for number in range(50)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("forecast")) as broker:
        trio.run(fill, broker.bootstrap)
        yield broker.bootstrap


async def fill(bootstrap: str) -> None:
    """Create topics with batches of several formats and codecs, and an empty one."""
    off = {"message.downconversion.enable": "false"}
    with trio.fail_after(PATIENCE_S):
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            topics = [NewTopic(name, 2, 1, off if name == "off" else {}) for name in ("mixed", "z", "off", "empty")]
            await admin.create_topics(topics)
            for index in (0, 1):
                for codec in (Codec.NONE, Codec.GZIP):
                    await (await producer.send_batch("mixed", index, v2.build_batch(RECORDS, codec=codec)))
                await (await producer.send_batch("mixed", index, v0.build_message_set(RECORDS)))
            for codec in (Codec.ZSTD, Codec.NONE):
                await (await producer.send_batch("z", 0, v2.build_batch(RECORDS, codec=codec)))
            await (await producer.send_batch("off", 0, v2.build_batch(RECORDS)))


def forecast(capsys: pytest.CaptureFixture[str], bootstrap: str, topic: str) -> dict[str, Any]:
    words = ["topics", "--bootstrap-server", bootstrap, "--describe", "--down-conversion", "--topic", topic, "--json"]
    assert main(words) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["topic"] == topic
    return dict(found)


def test_the_forecast_has_stored_formats_and_converted_bytes(
    capsys: pytest.CaptureFixture[str], bootstrap: str
) -> None:
    found = forecast(capsys, bootstrap, "mixed")
    plain, packed = len(v2.build_batch(RECORDS)), len(v2.build_batch(RECORDS, codec=Codec.GZIP))
    old = len(v0.build_message_set(RECORDS))
    assert found["bytes"] == found["sampled_bytes"] == 2 * (plain + packed + old)
    assert found["stored"] == [
        {"format": 0, "compression": "none", "sampled_bytes": 2 * old},
        {"format": 2, "compression": "none", "sampled_bytes": 2 * plain},
        {"format": 2, "compression": "gzip", "sampled_bytes": 2 * packed},
    ]
    newer, older = found["readers"]
    for reader in (newer, older):
        assert reader["converted_bytes"] == 2 * (plain + packed)
        assert reader["refused_bytes"] == {}
    assert older["sent_bytes"] > 2 * (old + old), "the same messages once more, and a wrapper"
    assert newer["sent_bytes"] - older["sent_bytes"] >= 2 * 50 * 8, "v1 has a timestamp in each message"


def test_the_forecast_counts_bytes_that_down_conversion_would_refuse(
    capsys: pytest.CaptureFixture[str], bootstrap: str
) -> None:
    packed = len(v2.build_batch(RECORDS, codec=Codec.ZSTD))
    for reader in forecast(capsys, bootstrap, "z")["readers"]:
        assert reader["refused_bytes"] == {"zstd": packed}
        assert reader["converted_bytes"] == len(v2.build_batch(RECORDS))
    for reader in forecast(capsys, bootstrap, "off")["readers"]:
        assert list(reader["refused_bytes"]) == ["message.downconversion.enable=false"]
        assert reader["sent_bytes"] == reader["cpu_seconds"] == 0


def test_the_forecast_is_printed_as_text_without_json(capsys: pytest.CaptureFixture[str], bootstrap: str) -> None:
    words = ["topics", "--bootstrap-server", bootstrap, "--describe", "--down-conversion"]
    assert main([*words, "--topic", "z|empty"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Topic: empty\tBytes: 0\tSampledBytes: 0\t")
    shown = [line for line in lines if "Reader: Fetch v0 and v1" in line]
    assert shown[0].endswith("ConvertedBytes: 0\tSentBytes: 0\tCpuSeconds: 0.00\tRefused: none")
    assert shown[1].endswith(" bytes by zstd")
    assert main([*words[:3], "--list", "--down-conversion"]) == 1
    assert "--down-conversion is for --describe" in capsys.readouterr().err
