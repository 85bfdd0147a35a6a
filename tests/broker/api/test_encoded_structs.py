"""Encoded entries that are kept from answer to answer: the same bytes as without them, never outdated, bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio

from gregor.broker.api import turns
from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.api.encoded_structs import ENTRY_BYTES, EncodedStructs
from gregor.broker.api.handlers import metadata as metadata_handler
from gregor.broker.app.broker import Broker
from gregor.broker.coordinators.groups.classic_group import ClassicGroup, GroupState
from gregor.protocol.apis import ApiKey
from gregor.protocol.codec import encode
from gregor.protocol.error_counts import errors_in
from gregor.protocol.messages.cluster_metadata_records import PartitionChangeRecord
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from gregor.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from gregor.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from gregor.protocol.schema import EncodedStruct
from tests.asking import Asking
from tests.broker.api.log_requests import answered, frame_of, response_of


class ReadingDispatcher(Dispatcher):
    """A dispatcher whose responses have no encoded entries."""

    takes_encoded = False


class BothDispatchers:
    """The two dispatchers of one broker, which must give the same answers."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self.with_encoded = Dispatcher(asking.broker.services)
        self._without = ReadingDispatcher(asking.broker.services)

    async def ask(self, key: ApiKey, version: int, request: Any) -> Any:
        """Return the response, equal from both, twice from the one that keeps entries."""
        frame = frame_of(key, version, request)
        first, again = [await answered(self.with_encoded, self.asking, frame) for _ in range(2)]
        assert first == again == await answered(self._without, self.asking, frame)
        return response_of(key, version, first)


@pytest.fixture
def both(asking: Asking) -> BothDispatchers:
    return BothDispatchers(asking)


def wanted(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


EVERY_TOPIC = MetadataRequest(topics=None)


@pytest.mark.parametrize("version", range(13))
@pytest.mark.parametrize("most_at_once", [0, 5, 500], ids=["in turns", "few at once", "at once"])
async def test_metadata_has_the_same_bytes_with_kept_topics(
    asking: Asking, both: BothDispatchers, version: int, most_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (turns, metadata_handler):
        monkeypatch.setattr(module, "MOST_AT_ONCE", most_at_once)
    metadata = asking.broker.services.metadata
    for count in range(1, 8):
        metadata.create_topic(f"t{count}", partitions=7 if count == 5 else 1 + count % 3)
    every = MetadataRequest(topics=None if version else [])
    assert len((await both.ask(ApiKey.METADATA, version, every)).topics) == 7
    change_leader(asking.broker, "t5")
    changed = await both.ask(ApiKey.METADATA, version, every)
    assert [partition.leader_id for partition in changed.topics[4].partitions] == [-1] + [metadata.node_id] * 6
    some = await both.ask(ApiKey.METADATA, version, wanted("t2", "t1"))
    assert [(topic.name, len(topic.partitions)) for topic in some.topics] == [("t2", 3), ("t1", 2)]


def change_leader(broker: Broker, topic: str = "t") -> None:
    metadata = broker.services.metadata
    topic_id = metadata.topics[topic].topic_id
    metadata.commit([PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[0], leader=-1)])


def recreate(broker: Broker) -> None:
    broker.services.metadata.delete_topic("t")
    broker.services.metadata.create_topic("t")


def lose_the_disk(broker: Broker) -> None:
    broker.services.partitions.take_offline("t", 0)


CHANGES: list[Callable[[Broker], object]] = [
    lambda broker: broker.services.metadata.create_partitions("t", 3),
    change_leader,
    recreate,
    lambda broker: broker.services.metadata.delete_topic("t"),
    lose_the_disk,
]
CHANGE_NAMES = ["more partitions", "no leader", "created again", "deleted", "disk lost"]


@pytest.mark.parametrize("change", CHANGES, ids=CHANGE_NAMES)
async def test_metadata_follows_each_change_of_a_topic(
    asking: Asking, both: BothDispatchers, change: Callable[[Broker], object]
) -> None:
    asking.broker.services.metadata.create_topic("t")
    before = await both.ask(ApiKey.METADATA, 12, EVERY_TOPIC)
    change(asking.broker)
    after = await both.ask(ApiKey.METADATA, 12, EVERY_TOPIC)
    assert after.topics != before.topics


async def test_a_topic_without_a_leader_is_described_as_led_again_after_its_election(
    asking: Asking, both: BothDispatchers
) -> None:
    metadata = asking.broker.services.metadata
    topic = metadata.create_topic("t")
    change_leader(asking.broker)
    await both.ask(ApiKey.METADATA, 12, EVERY_TOPIC)
    record = PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=metadata.node_id)
    metadata.commit([record])
    (described,) = (await both.ask(ApiKey.METADATA, 12, EVERY_TOPIC)).topics
    assert described.partitions[0].leader_id == metadata.node_id


async def test_authorized_operations_are_described_for_each_client(asking: Asking, both: BothDispatchers) -> None:
    asking.broker.services.metadata.create_topic("t")
    plain = await both.ask(ApiKey.METADATA, 8, EVERY_TOPIC)
    asked = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    detailed = await both.ask(ApiKey.METADATA, 8, asked)
    assert plain.topics[0].topic_authorized_operations != detailed.topics[0].topic_authorized_operations
    assert await both.ask(ApiKey.METADATA, 8, EVERY_TOPIC) == plain


@pytest.mark.parametrize(("topic_count", "partition_count"), [(40, 1), (1, 40)])
async def test_other_tasks_run_while_metadata_describes_many_partitions(
    asking: Asking,
    both: BothDispatchers,
    topic_count: int,
    partition_count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "LONGEST_TURN_S", 0.0)
    for module in (turns, metadata_handler):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 20)
    for number in range(topic_count):
        asking.broker.services.metadata.create_topic(f"t{number}", partitions=partition_count)
    turn_count = 0

    async def count_turns() -> None:
        nonlocal turn_count
        while True:
            await trio.lowlevel.checkpoint()
            turn_count += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await answered(both.with_encoded, asking, frame_of(ApiKey.METADATA, 12, EVERY_TOPIC))
        nursery.cancel_scope.cancel()
    assert turn_count > 20


@pytest.mark.parametrize("version", range(6))
async def test_list_groups_has_the_same_bytes_with_kept_groups(
    asking: Asking, both: BothDispatchers, version: int
) -> None:
    await both.ask(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key="g"))
    groups = asking.broker.services.groups._groups
    for number in range(3):
        groups.put(ClassicGroup(f"g{number}", state_timestamp_ms=0))
    listed = await both.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest())
    assert [group.group_id for group in listed.groups] == ["g0", "g1", "g2"]
    changed = groups.classic("g1")
    assert changed is not None
    changed.state, changed.protocol_type = GroupState.STABLE, "consumer"
    listed = await both.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest())
    assert [group.protocol_type for group in listed.groups] == ["", "consumer", ""]
    groups.remove("g1")
    listed = await both.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest())
    assert [group.group_id for group in listed.groups] == ["g0", "g2"]


@pytest.mark.parametrize("count", [99, 100, 101, 501, 750])
async def test_many_groups_are_listed_in_order_with_kept_groups(
    asking: Asking, both: BothDispatchers, count: int
) -> None:
    groups = asking.broker.services.groups._groups
    for number in range(count):
        groups.put(ClassicGroup(f"g{number}", state_timestamp_ms=0))
    names = [f"g{number}" for number in range(count)]
    for _ in range(2):
        listed = await both.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
        assert [group.group_id for group in listed.groups] == names


@pytest.mark.parametrize("version", [4, 5])
async def test_list_groups_filters_by_state_with_kept_groups(
    asking: Asking, both: BothDispatchers, version: int
) -> None:
    groups = asking.broker.services.groups._groups
    groups.put(ClassicGroup("g", state_timestamp_ms=0))
    await both.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest())
    assert (await both.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest(states_filter=["Stable"]))).groups == []
    assert len((await both.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest(states_filter=["empty"]))).groups) == 1


# --- the store


def group(name: str, state: str = "Stable") -> ListedGroup:
    return ListedGroup(group_id=name, group_state=state)


def kept(store: EncodedStructs, version: int, name: str) -> EncodedStruct:
    view = store.view(ListGroupsResponse, version)
    encoded = view.encode(group(name), 0)
    view.keep(name, 1, encoded)
    return encoded


def test_the_store_drops_the_entries_of_the_version_used_least_recently() -> None:
    store = EncodedStructs(most_bytes=3 * (ENTRY_BYTES + 20))
    for name, version in [("a", 0), ("a", 1), ("b", 1)]:
        kept(store, version, name)
    kept(store, 1, "c")
    assert not store.view(ListGroupsResponse, 0).entries
    assert list(store.view(ListGroupsResponse, 1).entries) == ["a", "b", "c"]


@pytest.mark.parametrize("version", range(6))
def test_the_store_never_exceeds_its_bound(version: int) -> None:
    bound = 10 * (ENTRY_BYTES + 20)
    store = EncodedStructs(bound)
    for number in range(100):
        kept(store, version, f"g{number % 30}")
        assert store.size_bytes <= bound
    assert store.size_bytes > bound // 2


def test_an_entry_that_has_no_room_replaces_none_that_is_outdated() -> None:
    store = EncodedStructs(most_bytes=ENTRY_BYTES + 20)
    view = store.view(ListGroupsResponse, 0)
    view.keep("a", 1, view.encode(group("a"), 0))
    view.keep("a", 2, EncodedStruct(bytes(1000), 0))
    assert "a" not in view.entries
    assert store.size_bytes == 0


def test_an_encoded_structure_counts_as_its_error_codes() -> None:
    partition = MetadataResponsePartition(error_code=5)
    topics: list[Any] = [EncodedStruct(b"", 3), MetadataResponseTopic(partitions=[partition])]
    assert Counter(errors_in(MetadataResponse(topics=topics))) == {0: 5, 5: 1}, "with the code of the whole response"


@pytest.mark.parametrize("version", range(6))
def test_encoded_and_declared_entries_may_be_mixed_in_a_list(version: int) -> None:
    entries: list[Any] = [group("a"), group("b", "Dead"), group("c")]
    view = EncodedStructs().view(ListGroupsResponse, version)
    mixed = [entries[0], view.encode(entries[1], 0), entries[2]]
    assert encode(ListGroupsResponse(groups=mixed), version) == encode(ListGroupsResponse(groups=entries), version)
