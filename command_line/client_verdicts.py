"""The verdicts on the clients of `gregor clients`: Kafka 4 serves the client, or the client needs a change."""

from __future__ import annotations

from ..protocol.apis import api_key
from ..protocol.kafka_4_floor import ZOOKEEPER_SOFTWARE, refused_by_kafka_4, verdict
from ..protocol.messages.describe_clients import DescribedClient

ZOOKEEPER_VERDICT = (
    "Kafka 4 refuses ZooKeeper's protocol; needs gregor.zookeeper.listeners, or a consumer with bootstrap.servers"
)


def is_refused(client: DescribedClient) -> bool:
    """Return whether Kafka 4 would not serve the client as it is."""
    used = ((api_key(entry.api_key), entry.api_version) for entry in client.api_versions)
    return client.software_name == ZOOKEEPER_SOFTWARE or bool(refused_by_kafka_4(used))


def client_verdict(client: DescribedClient) -> str:
    """Return one sentence about the client: what Kafka 4 refuses, and what the client needs."""
    if client.software_name == ZOOKEEPER_SOFTWARE:
        return ZOOKEEPER_VERDICT
    return verdict((api_key(entry.api_key), entry.api_version) for entry in client.api_versions)
