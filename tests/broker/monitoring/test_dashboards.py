"""The series that published Grafana dashboards query, on the metrics page of a broker in use.

Names and labels are those in the queries of Strimzi's dashboards `strimzi-kafka`, `strimzi-kraft` and
`strimzi-kafka-exporter`, and of Confluent's `kafka-cluster-kraft`, `kafka-topics-kraft` and `kraft` (August 2026). They
expect kafka_exporter, and the JMX exporter with the rules of Strimzi's `kafka-metrics.yaml` or of Confluent's
`kafka_broker.yml`. Labels that Prometheus adds to a target (namespace, pod, env) are left out, and so are the series of
the JVM, of Kubernetes, and of what only Confluent's own broker has (tiered storage, stray partitions).
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_process import running_broker
from tests.command_line.test_client_tools import run
from tests.waiting import PATIENCE_S
from tests.wire import Wire

OF_PARTITION = frozenset({"topic", "partition"})
OF_GROUP = OF_PARTITION | {"consumergroup"}
JMX_EXPORTER = {
    "kafka_server_replicamanager_leadercount": frozenset(),
    "kafka_controller_kafkacontroller_activecontrollercount": frozenset(),
    "kafka_controller_controllerstats_uncleanleaderelections_total": frozenset(),
    "kafka_server_replicamanager_partitioncount": frozenset(),
    "kafka_server_replicamanager_underreplicatedpartitions": frozenset(),
    "kafka_cluster_partition_atminisr": OF_PARTITION,
    "kafka_cluster_partition_underminisr": OF_PARTITION,
    "kafka_cluster_partition_replicascount": OF_PARTITION,
    "kafka_controller_kafkacontroller_offlinepartitionscount": frozenset(),
    "process_open_fds": frozenset(),
    "kafka_server_brokertopicmetrics_bytesin_total": frozenset({"topic"}),
    "kafka_server_brokertopicmetrics_bytesout_total": frozenset({"topic"}),
    "kafka_server_brokertopicmetrics_messagesin_total": frozenset({"topic"}),
    "kafka_server_brokertopicmetrics_totalproducerequests_total": frozenset({"topic"}),
    "kafka_server_brokertopicmetrics_failedproducerequests_total": frozenset({"topic"}),
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": frozenset({"topic"}),
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": frozenset({"topic"}),
    "kafka_network_socketserver_networkprocessoravgidle_percent": frozenset(),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": frozenset(),
    "kafka_server_kafkaserver_linux_disk_write_bytes": frozenset(),
    "kafka_server_kafkaserver_linux_disk_read_bytes": frozenset(),
    "kafka_server_socket_server_metrics_connection_count": frozenset({"listener", "networkProcessor"}),
    "kafka_log_log_size": OF_PARTITION,
}
KAFKA_EXPORTER = {
    "kafka_consumergroup_current_offset": OF_GROUP,
    "kafka_consumergroup_lag": OF_GROUP,
    "kafka_topic_partition_current_offset": OF_PARTITION,
    "kafka_topic_partition_in_sync_replica": OF_PARTITION,
    "kafka_topic_partition_leader_is_preferred": OF_PARTITION,
    "kafka_topic_partition_oldest_offset": OF_PARTITION,
    "kafka_topic_partition_replicas": OF_PARTITION,
    "kafka_topic_partition_under_replicated_partition": OF_PARTITION,
    "kafka_topic_partitions": frozenset({"topic"}),
}
OF_ONE = frozenset[str]()
STRIMZI_KRAFT = {
    **{
        f"kafka_server_raftmetrics_{name}": OF_ONE
        for name in (
            "append_records_rate", "fetch_records_rate", "commit_latency_avg", "current_leader", "current_vote",
            "current_epoch", "high_watermark", "log_end_offset",
        )
    },
    "kafka_server_raftmetrics_current_state": frozenset({"current_state"}),
    **{
        f"kafka_server_raftchannelmetrics_{name}_total": OF_ONE
        for name in ("incoming_byte", "outgoing_byte", "request", "response")
    },
}  # fmt: skip
OF_LISTENER = frozenset({"listener", "network_processor"})
OF_REQUEST = frozenset({"request", "quantile"})
CONFLUENT = {
    **{
        f"kafka_server_raft_metrics_{name}": OF_ONE
        for name in (
            "high_watermark", "current_leader", "current_epoch", "election_latency_max", "append_records_rate",
            "commit_latency_avg", "fetch_records_rate",
        )
    },
    **{
        f"kafka_server_brokertopicmetrics_{name}persec": frozenset({"topic"})
        for name in ("messagesin", "bytesin", "bytesout", "totalproducerequests", "totalfetchrequests")
    },
    **{
        f"kafka_server_brokertopicmetrics_{name}messageconversionspersec": OF_ONE for name in ("produce", "fetch")
    },
    **{
        f"kafka_network_requestmetrics_{step}timems": OF_REQUEST
        for step in ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")
    },
    **{
        f"kafka_controller_kafkacontroller_{name}": OF_ONE
        for name in (
            "activebrokercount", "fencedbrokercount", "globaltopiccount", "globalpartitioncount",
            "preferredreplicaimbalancecount", "metadataerrorcount", "lastappliedrecordlagms",
        )
    },
    **{
        f"kafka_coordinator_group_groupmetadatamanager_numgroups{state}": OF_ONE
        for state in ("", "stable", "preparingrebalance", "dead", "completingrebalance", "empty")
    },
    **{
        f"kafka_server_socketservermetrics_connection_{name}": OF_LISTENER
        for name in ("count", "creation_rate", "close_rate")
    },
    "kafka_server_socketservermetrics_connections": OF_LISTENER | {"client_software_name", "client_software_version"},
    "kafka_network_requestmetrics_requestspersec": frozenset({"request", "version"}),
    "kafka_network_requestmetrics_errorspersec": frozenset({"request", "error"}),
    "kafka_network_acceptor_acceptorblockedpercent_count": frozenset({"listener"}),
    "kafka_controller_controllereventmanager_eventqueuetimems": frozenset({"quantile"}),
    "kafka_controller_controllereventmanager_eventqueueprocessingtimems": frozenset({"quantile"}),
    "kafka_server_replicafetchermanager_minfetchrate": frozenset({"clientId", "clientid"}),
    "kafka_controller_controllerstats_uncleanleaderelectionspersec": OF_ONE,
    "kafka_server_replicamanager_isrshrinkspersec": OF_ONE,
    "kafka_server_replicamanager_isrexpandspersec": OF_ONE,
    "kafka_server_replicafetchermanager_maxlag": frozenset({"clientId", "clientid"}),
    "kafka_server_fetchsessioncache_numincrementalfetchsessions": OF_ONE,
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec": OF_ONE,
    "kafka_network_socketserver_networkprocessoravgidlepercent": OF_ONE,
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate": OF_ONE,
    "kafka_network_requestchannel_requestqueuesize": OF_ONE,
    "kafka_network_requestchannel_responsequeuesize": OF_ONE,
    "kafka_server_kafkaserver_brokerstate": OF_ONE,
    "kafka_log_log_logstartoffset": OF_PARTITION,
    "kafka_log_log_logendoffset": OF_PARTITION,
    "process_cpu_seconds_total": OF_ONE,
}  # fmt: skip
SERIES = JMX_EXPORTER | KAFKA_EXPORTER | STRIMZI_KRAFT | CONFLUENT
SAMPLE = re.compile(r"(?P<name>[a-z_]\w*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrape]:
    """Provide a scrape of a broker with a topic of three partitions, three records of which a group has read two."""
    settings = ("gregor.metrics.listener=http://127.0.0.1:0",)
    with (
        running_broker(tmp_path_factory.mktemp("dashboards"), *settings) as broker,
        Wire(broker.address, client_id="stays") as wire,
    ):
        wire.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
        missing = MetadataRequest(topics=[MetadataRequestTopic(name="missing")], allow_auto_topic_creation=False)
        wire.ask(ApiKey.METADATA, 9, missing)
        run(broker, "topics", "--create", "--topic", "orders", "--partitions", "3")
        assert (
            run(broker, "produce", "--topic", "orders", "--property", "parse.key=true", text="k\ta\nk\tb\nk\tc\n").code
            == 0
        )
        read = run(broker, "consume", "--topic", "orders", "--group", "g", "--from-beginning", "--max-messages", "2")
        assert read.lines == ["a", "b"]
        found = re.search(r"metrics at (http://\S+)", broker.output())
        assert found is not None
        with urllib.request.urlopen(found[1], timeout=PATIENCE_S) as page:
            yield dict(map(parsed, (line for line in page.read().decode().splitlines() if line[:1] != "#")))


def parsed(line: str) -> tuple[tuple[str, frozenset[tuple[str, str]]], float]:
    found = SAMPLE.fullmatch(line)
    assert found is not None, line
    labels = re.findall(r'(\w+)="([^"]*)"', found["labels"] or "")
    return (found["name"], frozenset(labels)), float(found["value"])


@pytest.mark.parametrize("name", SERIES)
def test_each_series_of_the_dashboards_is_there_with_its_labels(scrape: Scrape, name: str) -> None:
    labels = [{key for key, _ in labels} for found, labels in scrape if found == name]
    assert SERIES[name] in labels, f"{name} has {labels}"


def of_orders(scrape: Scrape, name: str, **labels: str) -> list[float]:
    wanted = {("topic", "orders"), *labels.items()}
    return sorted(value for (found, labels), value in scrape.items() if found == name and wanted <= labels)


def test_metric_values_match_the_state_of_the_broker(scrape: Scrape) -> None:
    assert of_orders(scrape, "kafka_cluster_partition_replicascount") == [1, 1, 1]
    assert of_orders(scrape, "kafka_cluster_partition_insyncreplicascount") == [1, 1, 1]
    assert of_orders(scrape, "kafka_cluster_partition_atminisr") == [1, 1, 1]
    assert of_orders(scrape, "kafka_cluster_partition_underminisr") == [0, 0, 0]
    assert of_orders(scrape, "kafka_log_log_logendoffset") == [0, 0, 3]
    assert of_orders(scrape, "kafka_log_log_numlogsegments") == [1, 1, 1]
    sizes = of_orders(scrape, "kafka_log_log_size")
    assert (sizes[:2], 3 * len("ka") < sizes[2] < 1000) == ([0, 0], True)
    assert of_orders(scrape, "kafka_server_brokertopicmetrics_messagesin_total") == [3]
    assert of_orders(scrape, "kafka_consumergroup_lag", consumergroup="g") == [0, 0, 1]
    plaintext = frozenset({("listener", "PLAINTEXT"), ("networkProcessor", "0")})
    assert scrape["kafka_server_socket_server_metrics_connection_count", plaintext] == 1
    software = plaintext | {("clientSoftwareName", "unknown"), ("clientSoftwareVersion", "unknown")}
    assert scrape["kafka_server_socket_server_metrics_connections_software", software] == 1
    assert scrape["kafka_coordinator_group_groupmetadatamanager_numgroupsempty", frozenset()] == 1
    assert scrape["kafka_server_kafkaserver_brokerstate", frozenset()] == 3
    assert scrape["kafka_server_raftmetrics_current_state", frozenset({("current_state", "leader")})] == 1
    assert scrape["kafka_server_raftmetrics_append_records_rate", frozenset()] > 0
    assert scrape["kafka_server_raftmetrics_commit_latency_avg", frozenset()] > 0
    errors = {
        (labels["request"], labels["error"]): value
        for (name, pairs), value in scrape.items()
        if name == "kafka_network_requestmetrics_errors_total" and (labels := dict(pairs))
    }
    assert errors["CreateTopics", "NONE"] >= 1
    assert errors["Produce", "NONE"] >= 1
    assert errors["Metadata", "UNKNOWN_TOPIC_OR_PARTITION"] == 1
    for name in JMX_EXPORTER:
        if name.endswith("idle_percent"):
            assert 0 <= scrape[name, frozenset()] <= 1


def test_the_times_of_requests_have_percentiles_in_order(scrape: Scrape) -> None:
    name = "kafka_network_requestmetrics_totaltimems"
    for request in ("Produce", "Fetch", "FetchConsumer", "Metadata"):
        of_request = ("request", request)
        assert scrape[f"{name}_count", frozenset({of_request})] >= 1
        values = [
            scrape[name, frozenset({of_request, ("quantile", quantile)})]
            for quantile in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
        ]
        assert values[0] > 0
        assert values == sorted(values)


def test_both_names_of_a_counter_have_the_same_value(scrape: Scrape) -> None:
    assert of_orders(scrape, "kafka_server_brokertopicmetrics_messagesinpersec") == [3]
