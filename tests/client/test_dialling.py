"""Connections to brokers: unreachable ones are named, a cancelled dial leaves nothing, older metadata."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import pytest
import trio
import trio.testing

from gregor.client import Admin, Producer
from gregor.client.config import AdminConfig
from gregor.client.errors import ConnectionLostError, DeadlineExceededError
from gregor.client.metrics import Metrics
from gregor.client.wire.cluster import Cluster
from gregor.client.wire.dialling import open_stream
from gregor.protocol.apis import ApiKey, response_header_version
from gregor.protocol.codec import encode
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.framing import FrameReader
from gregor.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from gregor.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from gregor.protocol.schema import NO_UUID
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_refused_connection_is_named_in_the_error_and_logged_once(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    host, port = free_address()
    reason = f"cannot connect to {host}:{port}: Connection refused"
    async with Producer(f"{host}:{port}", max_block_ms=2_500) as producer:
        with pytest.raises(DeadlineExceededError, match=reason):
            await producer.send("t", b"v")
    assert warnings(caplog) == [f"{reason}; trying again"], "once, not for each attempt"
    async with Admin(f"{host}:{port}", default_api_timeout_ms=300) as admin:
        with pytest.raises(DeadlineExceededError, match=reason):
            await admin.list_topics()
    assert len(warnings(caplog)) == 1, "a call of less than a second reports the failure only by its error"


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a Kafka broker does not answer with b'HTTP/1.1 400'"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "that port uses TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "a Kafka broker does not answer with b'SSH-2.0-Open'"),
    ],
)
async def test_a_server_that_is_no_broker_is_reported_at_once(
    says: bytes, reason: str, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.send_all(says)
        await trio.sleep_forever()

    async with listening(serve) as port, Admin(f"127.0.0.1:{port}", default_api_timeout_ms=2_500) as admin:
        with pytest.raises(DeadlineExceededError, match=f"no Kafka broker answers at 127.0.0.1:{port}: .*{reason}"):
            await admin.list_topics()
    assert reason in warnings(caplog)[0]


@asynccontextmanager
async def listening(serve: Callable[[trio.SocketStream], Awaitable[object]]) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("host", "port"), [("a" * 70, 9092), ("127.0.0.1", 70_000), ("127.0.0.1", -1), ("a\0b", 1)])
async def test_an_invalid_broker_address_raises_connection_lost_error(host: str, port: int) -> None:
    """A broker may advertise any address; no background task fails."""
    with pytest.raises(ConnectionLostError, match="cannot connect to"):
        await open_stream(host, port, AdminConfig())


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
async def test_a_dial_that_is_cancelled_in_its_handshake_leaves_no_socket(protocol: str) -> None:
    connected, left = trio.Event(), trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        """Read all requests and answer none."""
        connected.set()
        while await stream.receive_some(1_000):
            pass
        left.set()

    async with listening(serve) as port, trio.open_nursery() as nursery:
        cluster = Cluster(
            f"127.0.0.1:{port}",
            AdminConfig.from_properties({"security_protocol": protocol, "ssl_context": ssl.create_default_context()}),
            Metrics(),
        )
        await nursery.start(cluster.run)
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_after, connected, scope)
            await cluster.any_connection()
        assert scope.cancelled_caught
        with trio.fail_after(PATIENCE_S):
            await left.wait()
        nursery.cancel_scope.cancel()


async def cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


# --- metadata ---

FIRST, SECOND = UUID(int=1), UUID(int=2)


def answer(leader: int, epoch: int, topic_id: UUID = FIRST, partitions: int = 1) -> MetadataResponse:
    described = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index in range(partitions)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="127.0.0.1", port=1 + node) for node in (1, 2)],
        topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=described)],
    )


@pytest.mark.parametrize(
    ("before", "then", "leader"),
    [
        (answer(1, 5), answer(2, 4), 1),
        (answer(1, 5), answer(2, 5), 2),
        (answer(1, 5), answer(2, 6), 2),
        (answer(1, 5), answer(2, -1), 2),
        (answer(1, 5), answer(-1, 4), 1),
        (answer(1, 5), answer(-1, 6), None),
        (answer(1, 5), answer(2, 0, SECOND), 2),
        (answer(1, 5, NO_UUID), answer(2, 4, NO_UUID), 2),
        (answer(1, 5), answer(2, 4, NO_UUID), 2),
    ],
    ids=["older", "same", "newer", "no epoch", "older without", "newer without", "recreated", "no ids", "id lost"],
)
async def test_metadata_with_an_older_leader_epoch_does_not_change_the_leader(
    before: MetadataResponse, then: MetadataResponse, leader: int | None
) -> None:
    cluster = Cluster("127.0.0.1:1", AdminConfig(), Metrics())
    cluster._learn(before)
    cluster._learn(then)
    assert cluster.leader("t", 0) == leader


async def test_new_partitions_are_learnt_from_metadata_with_older_leader_epochs() -> None:
    cluster = Cluster("127.0.0.1:1", AdminConfig(), Metrics())
    cluster._learn(answer(1, 5))
    cluster._learn(answer(2, 4, partitions=2))
    assert [cluster.leader("t", index) for index in (0, 1)] == [1, 2]


async def test_a_connection_to_a_former_address_of_a_broker_is_not_kept() -> None:
    asked, moved = trio.Event(), trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        request = await stream.receive_some(1_000)
        asked.set()
        await moved.wait()
        # ApiVersions v3: its correlation id, no error, no keys, no throttling, no tags.
        body = request[8:12] + b"\0\0" + b"\1" + b"\0\0\0\0" + b"\0"
        await stream.send_all(len(body).to_bytes(4, "big") + body)
        await trio.sleep_forever()

    async with listening(serve) as port, trio.open_nursery() as nursery:
        cluster = Cluster(f"127.0.0.1:{port}", AdminConfig(), Metrics())
        await nursery.start(cluster.run)
        here = answer(1, 1)
        here.brokers[0].port = port
        cluster._learn(here)

        async def dial() -> None:
            with pytest.raises(ConnectionLostError, match="node-1 is no longer at"):
                await cluster.connection(1)

        async with trio.open_nursery() as dialling:
            dialling.start_soon(dial)
            await asked.wait()
            cluster._learn(answer(1, 1))
            moved.set()
        assert cluster.established(1) is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("hint", "endpoints", "is_news"),
    [
        ((0, 2, 6), {}, True),
        ((0, 3, 6), {3: ("127.0.0.1", 5)}, True),
        ((0, 3, 6), {}, False),
        ((0, 2, 5), {}, False),
        ((0, -1, 6), {}, False),
        ((1, 2, 6), {}, False),
        ((-1, 2, 6), {}, False),
    ],
    ids=["known broker", "new broker", "nobody says where", "as old", "no leader", "no such partition", "negative"],
)
async def test_a_current_leader_hint_is_used_if_newer_and_its_broker_is_known(
    hint: tuple[int, int, int], endpoints: dict[int, tuple[str, int]], is_news: bool
) -> None:
    cluster = Cluster("127.0.0.1:1", AdminConfig(), Metrics())
    cluster._learn(answer(1, 5))
    assert cluster.take_leader_hint("t", *hint, endpoints) is is_news
    assert not cluster.take_leader_hint("unknown", *hint, endpoints)
    assert cluster.leader("t", 0) == (hint[1] if is_news else 1)
    assert set(endpoints if is_news else {}) <= set(cluster.brokers)
    cluster._learn(answer(1, 5))
    assert cluster.leader("t", 0) == (hint[1] if is_news else 1), "Metadata that is older comes later"


# --- going back to the bootstrap servers (KIP-1102) ---

ONE_BROKER_VERSIONS = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=ApiKey.API_VERSIONS, max_version=3),
        ApiVersion(api_key=ApiKey.METADATA, max_version=13),
    ]
)


class LittleBroker:
    """A broker that answers ApiVersions, and Metadata with `metadata` unless that is None."""

    def __init__(self) -> None:
        self.metadata: MetadataResponse | None = None
        self.connections = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        reader = FrameReader(1 << 20)
        with suppress(trio.BrokenResourceError):
            async for data in stream:
                reader.feed(data)
                while (frame := reader.next_frame()) is not None:
                    key, version = ApiKey(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
                    message = ONE_BROKER_VERSIONS if key is ApiKey.API_VERSIONS else self.metadata
                    if message is None:
                        continue
                    # ApiVersions answers have the old header in each version.
                    head = bytes(frame[4:8]) + b"\0" * response_header_version(key, version)
                    body = head + encode(message, version)
                    await stream.send_all(len(body).to_bytes(4, "big") + body)


def metadata_of(port: int, error: ErrorCode = ErrorCode.NONE) -> MetadataResponse:
    described = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)
    return MetadataResponse(brokers=[described], error_code=error, cluster_id=str(port))


@pytest.mark.parametrize("why", ["silent", "asked to", "not wanted"])
async def test_the_client_rebootstraps_when_brokers_give_no_metadata(why: str) -> None:
    """The bootstrap address leads to a new cluster by now, and the old broker still accepts connections."""
    bootstrap, old, new = LittleBroker(), LittleBroker(), LittleBroker()
    async with listening(bootstrap.serve) as port, listening(old.serve) as old_port, listening(new.serve) as new_port:
        bootstrap.metadata = metadata_of(old_port)
        old.metadata, new.metadata = metadata_of(old_port), metadata_of(new_port)
        config = AdminConfig.from_properties(
            {
                "metadata_recovery_strategy": "none" if why == "not wanted" else "rebootstrap",
                "metadata_recovery_rebootstrap_trigger_ms": 200,
                "request_timeout_ms": 100,
                "reconnect_backoff_ms": 1,
            }
        )
        cluster = Cluster(f"127.0.0.1:{port}", config, Metrics())
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.run)
            await cluster.refresh([])
            await cluster.connection(1)
            assert cluster.cluster_id == str(old_port)
            bootstrap.metadata = metadata_of(new_port)
            old.metadata = metadata_of(old_port, ErrorCode.REBOOTSTRAP_REQUIRED) if why == "asked to" else None
            cluster._seed[0].leave("the old bootstrap server went")
            cluster._seed = [type(cluster._seed[0])("127.0.0.1", port)]
            for _ in range(8):
                with suppress(ConnectionLostError, BrokerError):
                    await cluster.refresh([])
                    break
            expected = old_port if why == "not wanted" else new_port
            assert cluster.cluster_id == str(expected)
            assert cluster.brokers == {1: ("127.0.0.1", expected)}
            nursery.cancel_scope.cancel()
