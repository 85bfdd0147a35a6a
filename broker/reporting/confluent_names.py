"""The same metrics once more by the names that Confluent's rules for the JMX exporter give them.

The exporter's own example and Strimzi's rules shorten names (`MessagesInPerSec` is ``messagesin_total``); those of
Confluent's jmx-monitoring-stacks (`kafka_broker.yml`) keep them (``messagesinpersec``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..monitoring.metrics import Family, Labels

METERS = (
    "kafka_server_brokertopicmetrics_",
    "kafka_server_replicamanager_",
    "kafka_server_fetchsessioncache_",
    "kafka_controller_controllerstats_",
    "kafka_network_requestmetrics_requests_",
    "kafka_network_requestmetrics_deprecatedrequests_",
    "kafka_network_requestmetrics_errors_",
)
"""The beginnings of names of meters, whose counters end in ``_total`` here and in ``persec`` there."""
RENAMED = {
    "kafka_network_socketserver_networkprocessoravgidle_percent": (
        "kafka_network_socketserver_networkprocessoravgidlepercent"
    ),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate"
    ),
    "kafka_server_socket_server_metrics_connections_software": "kafka_server_socketservermetrics_connections",
}
REPLACED = {
    "kafka_server_raftmetrics_": "kafka_server_raft_metrics_",
    "kafka_server_socket_server_metrics_": "kafka_server_socketservermetrics_",
}
LABELS = {
    "clientSoftwareName": "client_software_name",
    "clientSoftwareVersion": "client_software_version",
    "networkProcessor": "network_processor",
}
TOTAL = "_total"


def with_confluent_names(families: Iterable[Family]) -> Iterator[Family]:
    """Yield each family, and once more those that have another name in Confluent's dashboards."""
    for family in families:
        name = confluent_name(family.name)
        if name is None:
            yield family
            continue
        samples = list(family.samples)
        yield Family(family.name, samples)
        yield Family(name, [(_renamed(labels), value) for labels, value in samples])


def confluent_name(name: str) -> str | None:
    """Return the other name of a metric; None if the rules agree."""
    if name in RENAMED:
        return RENAMED[name]
    for beginning, other in REPLACED.items():
        if name.startswith(beginning):
            return other + name.removeprefix(beginning)
    if name.endswith(TOTAL) and name.startswith(METERS):
        return name.removesuffix(TOTAL) + "persec"
    return None


def _renamed(labels: Labels) -> Labels:
    return {LABELS.get(name, name): value for name, value in labels.items()}
