"""`gregor clients` and the metrics listener against a broker process that old and new clients have used."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gregor.command_line import main
from gregor.protocol.apis import ApiKey, GregorApiKey
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from gregor.protocol.messages.describe_clients import DescribeClientsRequest, DescribedClient
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess, running_broker
from tests.waiting import PATIENCE_S
from tests.wire import Wire

RECORD_COUNT = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide a broker with a metrics listener, and `convertible` and `refused` with records of format v2."""
    with running_broker(tmp_path_factory.mktemp("census"), "gregor.metrics.listener=http://127.0.0.1:0") as running:
        with Wire(running.address, client_id="setup") as wire:
            off = [CreatableTopicConfig(name="message.downconversion.enable", value="false")]
            topics = [
                CreatableTopic(name="convertible", num_partitions=1, replication_factor=1),
                CreatableTopic(name="refused", num_partitions=1, replication_factor=1, configs=off),
            ]
            wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=5000))
            for topic in topics:
                produce(wire, topic.name, version=7)
        yield running


def produce(wire: Wire, topic: str, *, version: int) -> None:
    batch = v2.build_batch([Record(offset=i, timestamp=-1, key=b"k", value=b"v") for i in range(RECORD_COUNT)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = wire.ask(ApiKey.PRODUCE, version, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]))
    assert answer.responses[0].partition_responses[0].error_code == 0


def fetch(wire: Wire, topic: str, *, version: int) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    wire.ask(ApiKey.FETCH, version, request)


def described(broker: BrokerProcess, client_id: str) -> DescribedClient:
    with Wire(broker.address, client_id="asking") as wire:
        answer = wire.ask(GregorApiKey.DESCRIBE_CLIENTS, 0, DescribeClientsRequest())
    (found,) = [client for client in answer.clients if client.client_id == client_id]
    assert isinstance(found, DescribedClient)
    return found


def test_an_old_consumer_is_described_with_its_down_conversion_costs(broker: BrokerProcess) -> None:
    with Wire(broker.address, client_id="old-consumer") as wire:
        fetch(wire, "convertible", version=0)
        fetch(wire, "convertible", version=2)
        client = described(broker, "old-consumer")
        assert client.connection_count == 1
    assert client.host == "127.0.0.1"
    assert [(used.api_key, used.api_version, used.request_count) for used in client.api_versions] == [
        (ApiKey.FETCH, 0, 1),
        (ApiKey.FETCH, 2, 1),
    ]
    cost = client.down_conversion
    assert cost.temporary_bytes > cost.stored_bytes, "as stored, and as converted"
    assert cost.record_count == 2 * RECORD_COUNT
    assert cost.stored_bytes > 0
    assert cost.cpu_micros > 0
    assert client.up_conversion.record_count == 0


def test_the_software_name_and_version_come_from_api_versions(broker: BrokerProcess) -> None:
    with Wire(broker.address, client_id="polite") as wire:
        request = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="3.9.1")
        wire.ask(ApiKey.API_VERSIONS, 3, request)
        fetch(wire, "convertible", version=11)
    client = described(broker, "polite")
    assert (client.software_name, client.software_version) == ("apache-kafka-java", "3.9.1")
    assert client.down_conversion.record_count == 0


def test_a_refused_down_conversion_is_counted_and_logged_once(broker: BrokerProcess) -> None:
    with Wire(broker.address, client_id="refused-consumer") as wire:
        fetch(wire, "refused", version=1)
        fetch(wire, "refused", version=1)
    assert described(broker, "refused-consumer").refused_down_conversions == 2
    told = [line for line in broker.output().splitlines() if "'refused-consumer'" in line]
    assert len(told) == 1
    assert "Fetch v1" in told[0]


def test_api_versions_does_not_list_our_own_api(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        listed = {api.api_key for api in wire.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).api_keys}
    assert ApiKey.FETCH in listed
    assert not listed & set(GregorApiKey)


def test_the_clients_command_lists_requests_that_kafka_4_refuses(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with Wire(broker.address, client_id="legacy-shipper") as wire:
        fetch(wire, "convertible", version=1)
    assert main(["clients", "--bootstrap-server", broker.bootstrap, "--versions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("legacy-shipper"))
    assert re.search(rf"legacy-shipper +127\.0\.0\.1 .* {RECORD_COUNT} records, 0\.0 MiB, \d+ ms CPU", lines[at])
    assert lines[at + 1].strip().startswith("Kafka 4 refuses Fetch v1; needs the protocol of Kafka 0.11.0 or newer")
    assert lines[at + 2].strip() == "sends Fetch v1 x1"


def test_the_refused_option_of_the_clients_command_omits_current_clients(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with Wire(broker.address, client_id="outdated") as old, Wire(broker.address, client_id="current") as new:
        fetch(old, "convertible", version=0)
        fetch(new, "convertible", version=11)
        assert main(["clients", "--bootstrap-server", broker.bootstrap, "--refused"]) == 0
    shown = capsys.readouterr().out
    assert "outdated" in shown
    assert "current" not in shown


def page(broker: BrokerProcess, request: str) -> tuple[int, str]:
    """Return the status and body of the answer to one HTTP request."""
    found = re.search(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", broker.output())
    assert found is not None
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=PATIENCE_S)
    with closing(connection):
        method, target = request.split()
        connection.request(method, target)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /healthz", 200),
        ("GET /readyz?verbose", 200),
        ("GET /secrets", 404),
        ("POST /metrics", 405),
    ],
)
def test_pages_of_the_metrics_listener_have_their_http_status(
    broker: BrokerProcess, request_line: str, status: int
) -> None:
    assert page(broker, request_line)[0] == status


def test_a_head_request_for_the_metrics_has_no_body(broker: BrokerProcess) -> None:
    assert page(broker, "HEAD /metrics") == (200, "")


def test_metrics_have_the_names_of_the_jmx_exporter_and_of_kafka_exporter(broker: BrokerProcess) -> None:
    with Wire(broker.address, client_id="measured") as wire:
        wire.ask(
            ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="sarama", client_software_version="v1")
        )
        fetch(wire, "convertible", version=3)
    _, body = page(broker, "GET /metrics")
    values = dict(re.findall(r"^([a-z]\S+(?:\{.*\})?) (\S+)$", body, re.MULTILINE))
    assert values['kafka_server_brokertopicmetrics_messagesin_total{topic="convertible"}'] == str(RECORD_COUNT)
    assert int(values['kafka_server_brokertopicmetrics_bytesin_total{topic="convertible"}']) > 0
    assert int(values['kafka_server_brokertopicmetrics_bytesout_total{topic="convertible"}']) > 0
    assert int(values['kafka_server_brokertopicmetrics_fetchmessageconversions_total{topic="convertible"}']) > 0
    assert values["kafka_server_brokertopicmetrics_messagesin_total"] == str(2 * RECORD_COUNT)
    labels = 'request="Fetch",version="3",clientSoftwareName="sarama",clientSoftwareVersion="v1"'
    assert values[f"kafka_network_requestmetrics_deprecatedrequests_total{{{labels}}}"] == "1"
    assert int(values['kafka_network_requestmetrics_requests_total{request="Fetch",version="3"}']) == 1
    assert int(values["kafka_server_replicamanager_partitioncount"]) >= 2
    assert values["kafka_controller_kafkacontroller_activecontrollercount"] == "1"
    assert values['kafka_topic_partitions{topic="convertible"}'] == "1"
    place = 'topic="convertible",partition="0"'
    assert values[f"kafka_topic_partition_current_offset{{{place}}}"] == str(RECORD_COUNT)
    assert values[f"kafka_topic_partition_oldest_offset{{{place}}}"] == "0"


def test_the_lag_and_the_members_of_a_group_are_exported(broker: BrokerProcess) -> None:
    position = OffsetCommitRequestPartition(partition_index=0, committed_offset=RECORD_COUNT - 8)
    topics = [OffsetCommitRequestTopic(name="convertible", partitions=[position])]
    with Wire(broker.address, client_id="committer") as wire:
        commit = OffsetCommitRequest(group_id="readers", topics=topics)
        while wire.ask(ApiKey.OFFSET_COMMIT, 2, commit).topics[0].partitions[0].error_code:
            pass
    _, body = page(broker, "GET /metrics")
    place = 'consumergroup="readers",topic="convertible"'
    assert f'kafka_consumergroup_current_offset{{{place},partition="0"}} {RECORD_COUNT - 8}\n' in body
    assert f'kafka_consumergroup_lag{{{place},partition="0"}} 8\n' in body
    assert f"kafka_consumergroup_lag_sum{{{place}}} 8\n" in body
    assert 'kafka_consumergroup_members{consumergroup="readers"} 0\n' in body


def test_every_line_of_metrics_is_well_formed_and_unique(broker: BrokerProcess) -> None:
    with Wire(broker.address, client_id='quo"te\\back\nline') as wire:
        fetch(wire, "convertible", version=0)
    _, body = page(broker, "GET /metrics")
    label = r'[a-zA-Z_]+="(?:[^"\\\n]|\\[\\"n])*"'
    sample = re.compile(rf"([a-z_]+(?:\{{{label}(?:,{label})*\}})?) ([0-9.e+-]+|NaN)")
    seen = set()
    for line in body.splitlines():
        if re.fullmatch(r"# TYPE [a-z_]+ (counter|gauge)", line):
            continue
        matched = sample.fullmatch(line)
        assert matched, line
        assert matched[1] not in seen
        seen.add(matched[1])
    assert r'clientId="quo\"te\\back\nline"' in body


def test_without_gregor_metrics_listener_no_metrics_are_served(tmp_path: Path) -> None:
    with running_broker(tmp_path / "quiet") as quiet:
        assert "metrics at" not in quiet.output()
