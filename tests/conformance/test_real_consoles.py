"""kafka_exporter and KMinion themselves against a broker: their metrics pages must show topics, groups and lag.

Each is taken from the PATH, or else built by Go from its module; where neither is to be had the test is skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S
from tests.wire import Wire, produce_once_there_is_a_leader

pytestmark = pytest.mark.peer

MODULES = {
    "kafka_exporter": "github.com/danielqsj/kafka_exporter@v1.9.0",
    "kminion": "github.com/cloudhut/kminion/v2@latest",
}
BUILD_LIMIT_S = 3600.0
TOPIC, GROUP = "lagging", "slow"
RECORD_COUNT, COMMITTED = 25, 10


@pytest.fixture(scope="session", params=MODULES)
def console(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program of one console."""
    name = str(request.param)
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    if shutil.which("go") is None:
        pytest.skip(f"neither {name} nor Go is installed")
    folder = tmp_path_factory.mktemp("consoles")
    build = subprocess.run(
        ["go", "install", MODULES[name]],
        env={**os.environ, "GOBIN": str(folder)},
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
    )
    if build.returncode:
        pytest.skip(f"{name} cannot be built here: {build.stderr.strip()[-200:]}")
    return folder / name


def leave_a_lag(bootstrap: str) -> None:
    """Create a partition with records, and a group that has not read all of them."""
    host, port = bootstrap.split(":")
    batch = v2.build_batch([Record(offset, 1_700_000_000_000, None, b"x") for offset in range(RECORD_COUNT)])
    produced = ProduceRequest(
        acks=1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    committed = OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=COMMITTED)]
            )
        ],
    )
    with Wire((host, int(port))) as wire:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=9000))
        assert produce_once_there_is_a_leader(wire, produced) == ErrorCode.NONE
        (answer,) = wire.ask(ApiKey.OFFSET_COMMIT, 7, committed).topics
        assert answer.partitions[0].error_code == ErrorCode.NONE


@contextmanager
def running(console: Path, bootstrap: str, folder: Path) -> Iterator[str]:
    """Run the console on a broker; provide the address of the broker's metrics page."""
    port = free_address()[1]
    arguments: Sequence[str] = (f"--kafka.server={bootstrap}", f"--web.listen-address=127.0.0.1:{port}")
    environment = dict(os.environ)
    if console.name == "kminion":
        arguments = ()
        settings = folder / "kminion.yaml"
        settings.write_text(
            f'kafka: {{brokers: ["{bootstrap}"]}}\n'
            "minion:\n"
            "  consumerGroups: {enabled: true, granularity: partition}\n"
            "  topics: {granularity: partition}\n"
            "  logDirs: {enabled: true}\n"
            "  endToEnd: {enabled: true, topicManagement: {replicationFactor: 1}}\n"
            f'exporter: {{host: "127.0.0.1", port: {port}}}\n'
        )
        environment["CONFIG_FILEPATH"] = str(settings)
    with (folder / "console.log").open("wb") as log:
        process = subprocess.Popen([console, *arguments], env=environment, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        process.kill()
        process.wait()


def metrics_once_there(page: str, names: Collection[str]) -> dict[str, float]:
    """Return all values of the page, once it has those of these names."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(page, timeout=PATIENCE_S) as answer:
                text = answer.read().decode()
        except OSError:
            text = ""
        if all(name in text for name in names) or time.monotonic() > deadline:
            return {key: float(value) for key, value in re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}
        time.sleep(0.2)


EXPECTED = {
    "kafka_exporter": {
        "kafka_brokers": 1,
        f'kafka_topic_partitions{{topic="{TOPIC}"}}': 1,
        f'kafka_topic_partition_current_offset{{partition="0",topic="{TOPIC}"}}': RECORD_COUNT,
        f'kafka_topic_partition_oldest_offset{{partition="0",topic="{TOPIC}"}}': 0,
        f'kafka_consumergroup_current_offset{{consumergroup="{GROUP}",partition="0",topic="{TOPIC}"}}': COMMITTED,
        f'kafka_consumergroup_lag{{consumergroup="{GROUP}",partition="0",topic="{TOPIC}"}}': RECORD_COUNT - COMMITTED,
    },
    "kminion": {
        f'kminion_kafka_topic_partition_high_water_mark{{partition_id="0",topic_name="{TOPIC}"}}': RECORD_COUNT,
        f'kminion_kafka_consumer_group_topic_offset_sum{{group_id="{GROUP}",topic_name="{TOPIC}"}}': COMMITTED,
        f'kminion_kafka_consumer_group_topic_lag{{group_id="{GROUP}",topic_name="{TOPIC}"}}': RECORD_COUNT - COMMITTED,
        'kminion_end_to_end_messages_lost_total{partition_id="0"}': 0,
    },
}


def test_the_page_of_each_console_shows_topics_groups_and_lag(console: Path, zoo_broker: str, tmp_path: Path) -> None:
    leave_a_lag(zoo_broker)
    expected = EXPECTED[console.name]
    with running(console, zoo_broker, tmp_path) as page:
        shown = metrics_once_there(page, expected)
    assert {name: shown.get(name) for name in expected} == expected, (tmp_path / "console.log").read_text()[-2000:]
