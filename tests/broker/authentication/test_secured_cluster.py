"""Brokers that reach each other and their controller by TLS and SASL."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig, ConfigError
from gregor.broker.node.membership import Membership
from gregor.client.admin import Admin
from gregor.client.admin.topics import NewTopic
from gregor.client.producer.producer import Producer
from gregor.protocol.errors import BrokerError
from tests.broker.authentication.secured_broker import PLAIN_MODULE
from tests.certificates import as_pem, authority, broker_identity, written
from tests.free_ports import free_address

LOGIN = f'{PLAIN_MODULE} required username="broker" password="broker-secret" user_broker="broker-secret";'


def cluster_settings(directory: Path, protocol: str, mechanism: str = "PLAIN") -> dict[str, str]:
    settings = {
        "controller.listener.names": "CTL",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": f"INTERNAL:{protocol},CTL:{protocol},OPEN:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": written(directory, "broker.pem", broker_identity().pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": written(directory, "ca.pem", as_pem(authority().certificate)),
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.mechanism.controller.protocol": mechanism,
        "gregor.shutdown.timeout.ms": "0",
    }
    for listener in ("internal", "ctl"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = LOGIN
        settings[f"listener.name.{listener}.ssl.client.auth"] = "required"
    return settings


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
async def test_brokers_replicate_over_secured_listeners(tmp_path: Path, protocol: str, nursery: trio.Nursery) -> None:
    """With mutual TLS where there is TLS: the followers are in sync, and forwarded requests reach the controller."""
    controller = free_address()[1]
    shared = {**cluster_settings(tmp_path, protocol), "controller.quorum.voters": f"1@127.0.0.1:{controller}"}
    clients = "INTERNAL://127.0.0.1:0,OPEN://127.0.0.1:0"
    first = Broker(
        BrokerConfig(
            {
                **shared,
                "node.id": "1",
                "process.roles": "broker,controller",
                "log.dirs": str(tmp_path / "1"),
                "listeners": f"{clients},CTL://127.0.0.1:{controller}",
            }
        )
    )
    second = Broker(
        BrokerConfig(
            {
                **shared,
                "node.id": "2",
                "process.roles": "broker",
                "log.dirs": str(tmp_path / "2"),
                "listeners": clients,
            }
        )
    )
    await nursery.start(first.run)
    await nursery.start(second.run)
    port = next(bound.port for bound in second.services.serving.listening if bound.name == "OPEN")
    async with Admin(f"127.0.0.1:{port}") as admin:
        await admin.create_topics([NewTopic("t", partition_count=2, replication_factor=2)])
    async with Producer(f"127.0.0.1:{port}", acks="all") as producer:
        for number in range(20):
            await producer.send("t", bytes(1000), partition=number % 2)
    await producer_is_replicated(first, second)
    nursery.cancel_scope.cancel()


async def test_brokers_authenticate_again_on_their_connections(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither side ever closes a connection because a session has expired or expires soon (KIP-368)."""
    controller = free_address()[1]
    shared = cluster_settings(tmp_path, "SASL_PLAINTEXT") | {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "connections.max.reauth.ms": "20000",
    }
    brokers = []
    for node_id, roles, more in ((1, "broker,controller", f",CTL://127.0.0.1:{controller}"), (2, "broker", "")):
        own = {"node.id": str(node_id), "process.roles": roles, "listeners": f"INTERNAL://127.0.0.1:0{more}"}
        brokers.append(Broker(BrokerConfig({**shared, **own, "log.dirs": str(tmp_path / str(node_id))})))
        await nursery.start(brokers[-1].run)
    activity = brokers[0].services.serving.activity["CTL"]
    created = activity.connection_creation.total
    await trio.sleep(120)
    for broker in brokers:
        for listener in broker.services.serving.activity.values():
            assert listener.expired_connections_killed_count == 0
            assert listener.failed_reauthentication.total == 0
    assert activity.successful_reauthentication.total > 10
    assert activity.connection_creation.total == created
    assert "cannot follow the controller" not in caplog.text
    nursery.cancel_scope.cancel()


async def producer_is_replicated(*brokers: Broker) -> None:
    """Check that with acks=all each record is on both brokers when `send` returns."""
    for broker in brokers:
        logs = [broker.services.logs.get("t", index) for index in (0, 1)]
        assert [log.log_end_offset for log in logs if log is not None] == [10, 10]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "sasl.mechanism.inter.broker.protocol: GSSAPI"),
        ({"sasl.mechanism.controller.protocol": "X"}, "sasl.mechanism.controller.protocol: unknown SASL mechanism X"),
        (
            {"listener.name.internal.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_broker="x";'},
            "connections to other nodes, listener INTERNAL: sasl.jaas.config: the login module has no option username",
        ),
    ],
)
def test_a_broker_with_wrong_inter_broker_sasl_settings_is_refused(
    tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    settings = cluster_settings(tmp_path, "SASL_PLAINTEXT") | {
        "process.roles": "broker",
        "node.id": "2",
        "log.dirs": str(tmp_path / "2"),
        "controller.quorum.voters": "1@127.0.0.1:1",
        "listeners": "INTERNAL://127.0.0.1:0",
    }
    with pytest.raises(ConfigError, match=words):
        Broker(BrokerConfig(settings | changes))


async def test_a_broker_with_a_wrong_password_does_not_join(tmp_path: Path, nursery: trio.Nursery) -> None:
    controller = free_address()[1]
    shared = cluster_settings(tmp_path, "SASL_PLAINTEXT") | {"controller.quorum.voters": f"1@127.0.0.1:{controller}"}
    first = BrokerConfig(
        {
            **shared,
            "node.id": "1",
            "process.roles": "broker,controller",
            "log.dirs": str(tmp_path / "1"),
            "listeners": f"INTERNAL://127.0.0.1:0,CTL://127.0.0.1:{controller}",
        }
    )
    await nursery.start(Broker(first).run)
    wrong = LOGIN.replace('password="broker-secret"', 'password="wrong"')
    settings = shared | {
        "node.id": "2",
        "process.roles": "broker",
        "log.dirs": str(tmp_path / "2"),
        "listeners": "INTERNAL://127.0.0.1:0",
        "listener.name.ctl.plain.sasl.jaas.config": wrong,
    }
    second = Broker(BrokerConfig(settings))
    membership = second.services.node
    assert isinstance(membership, Membership)
    remote = membership._remotes[0]
    await nursery.start(remote.run)
    from gregor.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

    with pytest.raises(BrokerError, match="Authentication failed: Invalid username or password"):
        await remote.ask_once(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse, timeout_s=10)
    nursery.cancel_scope.cancel()
