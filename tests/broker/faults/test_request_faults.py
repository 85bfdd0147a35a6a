"""Effects of rules on requests of raw clients over real sockets: delays, errors, no answer, disconnects."""

from __future__ import annotations

import contextlib
import struct

import pytest
import trio

from gregor.broker.api.contract import Api
from gregor.broker.api.table import APIS
from gregor.broker.faults.rule import SPARED_CLIENT_ID
from gregor.protocol.apis import ApiKey, request_class
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from gregor.protocol.messages.heartbeat import HeartbeatRequest
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.faults.faulty_broker import FaultyBroker, ask, fetch_request, produce, produce_request
from tests.wire import Wire

ORDERS, OTHER_ORDERS, PAYMENTS = ("orders", 0), ("orders", 1), ("payments", 0)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def end_offset(faulty: FaultyBroker, place: tuple[str, int] = ORDERS) -> int:
    return faulty.broker.services.partitions.get(*place).log.log_end_offset


async def test_a_broker_with_fault_injection_but_without_rules_answers(faulty: FaultyBroker) -> None:
    assert await produce(await faulty.connect(), ORDERS) == {ORDERS: 0}


@pytest.mark.parametrize("at", ["request", "answer"])
async def test_delays_of_several_rules_add_up(faulty: FaultyBroker, at: str) -> None:
    wire = await faulty.connect()
    faulty.rules(slow=f"api=Produce delay=30ms at={at}", slower="api=Produce delay=20ms")
    began = trio.current_time()
    assert await produce(wire, ORDERS) == {ORDERS: 0}
    assert trio.current_time() - began >= 0.05
    assert faulty.strikes == {"slow": 1, "slower": 1}


async def test_a_produce_rule_for_one_partition_prevents_appends_to_that_partition_only(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(moved="api=Produce topic=ord* partition=1 error=NOT_LEADER_OR_FOLLOWER")
    assert await produce(wire, ORDERS, OTHER_ORDERS, PAYMENTS) == {ORDERS: 0, OTHER_ORDERS: NOT_LEADER, PAYMENTS: 0}
    assert [end_offset(faulty, place) for place in (ORDERS, OTHER_ORDERS, PAYMENTS)] == [1, 0, 1]


@pytest.mark.parametrize("version", [0, 3, 7, 8, 9, 11])
async def test_a_produce_error_is_returned_in_every_version(faulty: FaultyBroker, version: int) -> None:
    wire = await faulty.connect()
    faulty.rules(moved="api=Produce error=NOT_LEADER_OR_FOLLOWER")
    answer = await ask(wire, ApiKey.PRODUCE, version, produce_request(ORDERS))
    (partition,) = answer.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (NOT_LEADER, -1)
    assert end_offset(faulty) == 0


async def test_an_error_in_the_answer_comes_after_the_append(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(liar="api=Produce topic=orders error=REQUEST_TIMED_OUT at=answer")
    assert await produce(wire, ORDERS, PAYMENTS) == {ORDERS: ErrorCode.REQUEST_TIMED_OUT, PAYMENTS: 0}
    assert end_offset(faulty) == 1


async def test_a_refused_produce_with_acks_0_closes_the_connection(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(moved="api=Produce topic=orders error=NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ConnectionError):
        await ask(wire, ApiKey.PRODUCE, 7, produce_request(ORDERS, PAYMENTS, acks=0))
    assert (end_offset(faulty), end_offset(faulty, PAYMENTS)) == (0, 1)


async def test_a_disconnect_at_the_request_prevents_the_append_and_one_at_the_answer_does_not(
    faulty: FaultyBroker,
) -> None:
    faulty.rules(before="api=Produce topic=orders disconnect", after="api=Produce topic=payments disconnect at=answer")
    for place in (ORDERS, PAYMENTS):
        wire = await faulty.connect()
        with pytest.raises(ConnectionError):
            await produce(wire, place)
    assert (end_offset(faulty), end_offset(faulty, PAYMENTS)) == (0, 1)


async def test_a_stalled_request_is_never_answered_and_other_connections_are(faulty: FaultyBroker) -> None:
    stalled, other = await faulty.connect(), await faulty.connect()
    faulty.rules(hole="api=Produce stall first=1")
    async with trio.open_nursery() as clients:
        is_answered = trio.Event()

        async def wait_for_an_answer() -> None:
            await produce(stalled, ORDERS)
            is_answered.set()

        clients.start_soon(wait_for_an_answer)
        while not faulty.strikes:
            await trio.lowlevel.checkpoint()
        assert await produce(other, ORDERS) == {ORDERS: 0}
        assert not is_answered.is_set()
        clients.cancel_scope.cancel()


async def test_stalled_connections_are_closed_when_the_rule_is_deleted(faulty: FaultyBroker) -> None:
    async def lose_a_request(wire: Wire) -> None:
        with pytest.raises(ConnectionError):
            await produce(wire, ORDERS)

    faulty.rules(hole="api=Produce stall")
    async with trio.open_nursery() as clients:
        clients.start_soon(lose_a_request, await faulty.connect())
        while not faulty.strikes:
            await trio.lowlevel.checkpoint()
        faulty.rules()
    assert end_offset(faulty) == 0


async def test_a_stall_ends_as_its_schedule_says(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(hole="api=Produce stall until=20ms")
    with contextlib.suppress(ConnectionError):
        await produce(wire, ORDERS)
    assert end_offset(faulty) == (0 if faulty.strikes else 1)


async def test_brokers_are_isolated_from_the_others_and_not_among_themselves(faulty: FaultyBroker) -> None:
    faulty.rules(cut="isolate=1,3 disconnect")
    for sender, is_cut in (("broker-2", True), ("broker-3-fetcher-0", False), ("broker-1", False), ("a client", False)):
        wire = await faulty.connect(sender)
        if is_cut:
            with pytest.raises(ConnectionError):
                await produce(wire, ORDERS)
        else:
            assert await produce(wire, ORDERS) == {ORDERS: 0}
    faulty.rules(cut="isolate=3 disconnect")
    assert await produce(await faulty.connect("broker-2"), ORDERS) == {ORDERS: 0}
    with pytest.raises(ConnectionError):
        await produce(await faulty.connect("broker-3"), ORDERS)


@pytest.mark.parametrize("kept_bytes", [0, 1, 5, 20])
async def test_a_truncated_answer_has_the_full_length_prefix_and_only_the_first_bytes(
    faulty: FaultyBroker, kept_bytes: int
) -> None:
    wire = await faulty.connect()
    faulty.rules(cut=f"api=Metadata truncate={kept_bytes}")
    wire.send(ApiKey.METADATA, 5, MetadataRequest(topics=None))

    def receive() -> tuple[int, bytes]:
        (announced,) = struct.unpack(">i", wire.read(4))
        received = wire.read(kept_bytes)
        with pytest.raises(ConnectionError):
            wire.read(1)
        return announced, received

    announced, received = await trio.to_thread.run_sync(receive)
    assert announced > 20
    assert received == struct.pack(">i", wire.correlation_id)[:kept_bytes] + received[4:]
    assert faulty.strikes == {"cut": 1}


async def test_a_truncated_fetch_answer_ends_within_the_records(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    await produce(wire, ORDERS)
    whole = len(await whole_answer(wire))
    faulty.rules(cut=f"api=Fetch truncate={whole - 3}")
    wire.send(ApiKey.FETCH, 11, fetch_request(ORDERS))
    assert len(await trio.to_thread.run_sync(wire.read, 4 + whole - 3)) == 4 + whole - 3
    with pytest.raises(ConnectionError):
        await trio.to_thread.run_sync(wire.read, 1)


async def whole_answer(wire: object) -> bytes:
    wire.send(ApiKey.FETCH, 11, fetch_request(ORDERS))  # type: ignore[attr-defined]
    return await trio.to_thread.run_sync(wire.receive_frame)  # type: ignore[attr-defined]


async def test_a_fetch_rule_for_one_partition_returns_its_error_without_max_wait(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    await produce(wire, ORDERS, OTHER_ORDERS)
    faulty.rules(moved="api=Fetch partition=1 error=NOT_LEADER_OR_FOLLOWER")
    answer = await ask(wire, ApiKey.FETCH, 11, fetch_request(ORDERS, OTHER_ORDERS, wait_ms=60_000))
    parts = {part.partition_index: part for part in answer.responses[0].partitions}
    assert (parts[0].error_code, len(parts[0].records) > 0) == (0, True)
    assert (parts[1].error_code, len(parts[1].records), parts[1].high_watermark) == (NOT_LEADER, 0, -1)


async def test_a_fetch_rule_applies_to_partitions_of_a_fetch_session_that_the_request_omits(
    faulty: FaultyBroker,
) -> None:
    wire = await faulty.connect()
    await produce(wire, ORDERS)
    opened = await ask(wire, ApiKey.FETCH, 11, fetch_request(ORDERS, OTHER_ORDERS, epoch=0))
    faulty.rules(moved="api=Fetch topic=orders error=NOT_LEADER_OR_FOLLOWER", late="topic=payments delay=1ms")
    request = fetch_request(session_id=opened.session_id, epoch=1, wait_ms=60_000)
    answer = await ask(wire, ApiKey.FETCH, 11, request)
    # The first partition has records, the second has no new ones.
    found = [(t.topic, p.partition_index, p.error_code) for t in answer.responses for p in t.partitions]
    assert found == [("orders", 0, NOT_LEADER), ("orders", 1, NOT_LEADER)]
    assert faulty.strikes == {"moved": 1}


async def test_a_fetch_session_error_is_set_at_the_top_level_of_the_answer(faulty: FaultyBroker) -> None:
    faulty.rules(no="api=Fetch error=FETCH_SESSION_ID_NOT_FOUND")
    answer = await ask(await faulty.connect(), ApiKey.FETCH, 11, fetch_request(ORDERS))
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


async def test_metadata_of_one_topic_fails_beside_that_of_others(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(gone="api=Metadata topic=orders error=LEADER_NOT_AVAILABLE")
    for topics in (None, [MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="payments")]):
        answer = await ask(wire, ApiKey.METADATA, 9, MetadataRequest(topics=topics))
        codes = {topic.name: topic.error_code for topic in answer.topics}
        assert codes == {"orders": ErrorCode.LEADER_NOT_AVAILABLE, "payments": 0}
        assert len(answer.brokers) == 1


async def test_a_metadata_rule_for_one_partition_removes_the_leader_of_that_partition_only(
    faulty: FaultyBroker,
) -> None:
    faulty.rules(gone="api=Metadata topic=orders partition=1 error=LEADER_NOT_AVAILABLE")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    answer = await ask(await faulty.connect(), ApiKey.METADATA, 9, request)
    found = {p.partition_index: (p.error_code, p.leader_id) for p in answer.topics[0].partitions}
    assert found == {0: (0, 1), 1: (ErrorCode.LEADER_NOT_AVAILABLE, -1)}


async def test_coordinator_errors_are_set_in_heartbeat_and_for_each_key_of_find_coordinator(
    faulty: FaultyBroker,
) -> None:
    wire = await faulty.connect()
    faulty.rules(loading="api=Heartbeat,FindCoordinator error=COORDINATOR_LOAD_IN_PROGRESS")
    heartbeat = await ask(wire, ApiKey.HEARTBEAT, 3, HeartbeatRequest(group_id="g"))
    assert heartbeat.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    found = await ask(wire, ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g", "h"]))
    assert [(c.key, c.error_code) for c in found.coordinators] == [
        ("g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("h", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]


async def test_a_topic_that_is_refused_is_not_created_and_the_other_one_is(faulty: FaultyBroker) -> None:
    faulty.rules(no="api=CreateTopics topic=bad* error=POLICY_VIOLATION")
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("good", "bad")]
    answer = await ask(await faulty.connect(), ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics))
    assert {topic.name: topic.error_code for topic in answer.topics} == {"good": 0, "bad": ErrorCode.POLICY_VIOLATION}
    assert "bad" not in faulty.broker.services.metadata.topics


async def test_a_rule_for_a_client_id_applies_to_that_client_only(faulty: FaultyBroker) -> None:
    faulty.rules(no="client=analytics-* api=Produce error=NOT_LEADER_OR_FOLLOWER", other="listener=OTHER disconnect")
    assert await produce(await faulty.connect("analytics-7"), ORDERS) == {ORDERS: NOT_LEADER}
    assert await produce(await faulty.connect("billing"), ORDERS) == {ORDERS: 0}
    assert await produce(await faulty.connect(None), ORDERS) == {ORDERS: 0}


async def test_a_rule_for_a_broker_disconnects_only_fetches_of_that_broker(faulty: FaultyBroker) -> None:
    faulty.rules(cut="broker=2 disconnect")
    fetch = fetch_request(ORDERS)
    fetch.replica_id = 2
    follower = await faulty.connect("broker-2-fetcher-0")
    with pytest.raises(ConnectionError):
        await ask(follower, ApiKey.FETCH, 11, fetch)
    for replica_id in (3, -1):
        fetch.replica_id = replica_id
        assert (await ask(await faulty.connect("somebody"), ApiKey.FETCH, 11, fetch)).error_code == 0


async def test_a_connection_belongs_to_a_broker_after_its_first_fetch_with_a_replica_id(faulty: FaultyBroker) -> None:
    wire = await faulty.connect("somebody")
    faulty.rules(cut="broker=2 api=ApiVersions disconnect")
    assert (await ask(wire, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())).error_code == 0
    fetch = fetch_request(ORDERS)
    fetch.replica_id = 2
    assert (await ask(wire, ApiKey.FETCH, 11, fetch)).error_code == 0
    with pytest.raises(ConnectionError):
        await ask(wire, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())


async def test_rules_do_not_act_on_requests_that_delete_rules(faulty: FaultyBroker) -> None:
    faulty.rules(dead="disconnect")
    with pytest.raises(ConnectionError):
        await ask(await faulty.connect(), ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    spared = await faulty.connect(SPARED_CLIENT_ID)
    assert (await ask(spared, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())).error_code == 0


async def test_a_rule_with_first_stops_after_that_number_of_injections(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(twice="api=Produce error=NOT_LEADER_OR_FOLLOWER every=2 first=2")
    codes = [(await produce(wire, ORDERS))[ORDERS] for _ in range(6)]
    assert codes == [0, NOT_LEADER, 0, NOT_LEADER, 0, 0]
    assert faulty.strikes == {"twice": 2}


HARMLESS = [api for api in APIS.values() if not api.key.name.startswith("SASL")]


@pytest.mark.parametrize("api", HARMLESS, ids=lambda api: api.key.name)
async def test_the_broker_survives_a_rule_that_refuses_any_api(
    faulty: FaultyBroker, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    wire = await faulty.connect()
    request = produce_request(ORDERS) if api.key is ApiKey.PRODUCE else request_class(api.key)()
    for words in ("", "at=answer", "topic=orders", "partition=0 at=answer"):
        faulty.rules(no=f"error=UNKNOWN_SERVER_ERROR {words}")
        for version in {api.min_version, api.max_version}:
            try:
                await ask(wire, api.key, version, request)
            except ConnectionError:
                wire = await faulty.connect()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    faulty.rules()
    assert await produce(wire, ORDERS) == {ORDERS: 0}


async def test_apis_without_rules_stay_pipelined(faulty: FaultyBroker) -> None:
    faulty.rules(slow="api=Fetch delay=1ms")
    faults = faulty.broker.services.faults
    assert faults is not None
    assert not faults.concerns(ApiKey.PRODUCE)
    faulty.rules(slow="delay=1ms")
    assert faults.concerns(ApiKey.PRODUCE)
    faulty.rules()
    assert not faults.concerns(ApiKey.FETCH)
