"""SASL exchanges of clients that are passed through to several brokers behind one address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.gateway.gateway import Gateway
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.messages.sasl_handshake import SaslHandshakeRequest
from gregor.protocol.records import v1
from tests.free_ports import free_address
from tests.gateway.kafka_4 import in_thread, started_gateway
from tests.gateway.test_security import JAAS, OWN_LOGIN, answer_to
from tests.waiting import wait_until
from tests.wire import Wire

PARTITIONS = 4
Running: TypeAlias = tuple[Gateway, list[Broker], trio.lowlevel.TrioToken]
"""A gateway, the brokers behind it, and the event loop of all."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Provide a gateway that passes exchanges through to two brokers with SASL."""
    directory, controller = tmp_path_factory.mktemp("brokers"), free_address()[1]
    brokers: list[Broker] = []
    gateways: list[Gateway] = []
    tokens: list[trio.lowlevel.TrioToken] = []

    async def start(nursery: trio.Nursery) -> Callable[[], None]:
        for number, roles in ((1, "broker,controller"), (2, "broker")):
            brokers.append(Broker(BrokerConfig(settings(directory, controller, number, roles))))
            await nursery.start(brokers[-1].run)
        upstream = ",".join(f"127.0.0.1:{port_of(broker)}" for broker in brokers)
        properties = {**OWN_LOGIN, "gregor.gateway.sasl.pass.through": "true"}
        gateways.append(await started_gateway(upstream, properties, nursery))
        tokens.append(trio.lowlevel.current_trio_token())
        return nursery.cancel_scope.cancel

    with in_thread(start):
        wait_until(lambda: len(gateways[0].upstream.brokers) == 2)
        yield gateways[0], brokers, tokens[0]


def settings(directory: Path, controller: int, number: int, roles: str) -> dict[str, str]:
    """Return the settings of one broker."""
    listeners = "CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:0"
    return {
        "node.id": str(number),
        "process.roles": roles,
        "log.dirs": str(directory / str(number)),
        "listeners": listeners + (f",CTL://127.0.0.1:{controller}" if number == 1 else ""),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CTL",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CTL:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.clients.plain.sasl.jaas.config": f'{JAAS} user_gateway="g" user_alice="a";',
        "gregor.shutdown.timeout.ms": "0",
    }


def port_of(broker: Broker) -> int:
    """Return the port for clients."""
    return next(bound.port for bound in broker.services.serving.listening if bound.name == "CLIENTS")


@pytest.mark.parametrize("version", [0, 1])
def test_plain_is_repeated_at_each_broker(running: Running, version: int) -> None:
    """All brokers see the client's principal, and a lost connection is made again."""
    gateway, brokers, token = running
    topic = f"t{version}"
    with Wire(("127.0.0.1", gateway.listening[0].port)) as wire:
        wire.ask(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism="PLAIN"))
        answer_to(wire, version, b"\0alice\0a")
        creation = CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[creation], timeout_ms=10000))
        wait_until(lambda: set(codes(wire, topic)) == {ErrorCode.NONE})
        for broker in brokers:
            assert "User:alice" in {str(client.principal) for client in broker.services.clients._connected}
        for client in [*brokers[1].services.clients._connected]:
            if str(client.principal) == "User:alice":
                trio.from_thread.run_sync(client.disconnect, trio_token=token)
        wait_until(lambda: set(codes(wire, topic)) == {ErrorCode.NONE})


def codes(wire: Wire, topic: str) -> list[int]:
    """Write to all partitions, which both brokers lead, and return the errors."""
    records = memoryview(v1.build_message(0, 1, None, b"v"))
    parts = [PartitionProduceData(index=index, records=records) for index in range(PARTITIONS)]
    data = [TopicProduceData(name=topic, partition_data=parts)]
    answer = wire.ask(ApiKey.PRODUCE, 2, ProduceRequest(acks=1, timeout_ms=5000, topic_data=data))
    return [part.error_code for part in answer.responses[0].partition_responses]


def test_scram_is_refused_with_unsupported_sasl_mechanism(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The exchange of SCRAM cannot be repeated: the answer names what can be, and the log the setting."""
    gateway, _, _ = running
    with Wire(("127.0.0.1", gateway.listening[0].port)) as wire:
        answer = wire.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
    assert "set gregor.gateway.broker.ports" in caplog.text
