"""Target assignments: complete, balanced, and as close to the previous one as balance allows."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.broker.config import ConfigError
from gregor.broker.coordinators.groups.assignment import Assignment, Subscriber, common
from gregor.broker.coordinators.groups.assignors import (
    Assignor,
    assign_range,
    assign_uniform,
    assignors_by_name,
)

TOPICS = [UUID(int=number) for number in range(1, 6)]
Members = dict[str, Subscriber]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12), min_size=1)


@st.composite
def groups(draw: st.DrawFn, *, same_topics: bool | None = None) -> tuple[Members, dict[UUID, int]]:
    """Draw members with subscriptions among the topics; whether all have the same is drawn unless given."""
    partition_counts = draw(counts)
    names = draw(st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=8, unique=True))
    if draw(st.booleans()) if same_topics is None else same_topics:
        return {name: Subscriber(frozenset(partition_counts)) for name in names}, partition_counts
    wanted = st.frozensets(st.sampled_from(sorted(partition_counts)))
    members = {name: Subscriber(draw(wanted)) for name in names}
    read = frozenset().union(*(member.topics for member in members.values()))
    return members, {topic: count for topic, count in partition_counts.items() if topic in read}


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def with_targets(members: Members, targets: Mapping[str, Assignment]) -> Members:
    return {name: member._replace(target=targets.get(name, {})) for name, member in members.items()}


def check_complete(members: Members, partition_counts: Mapping[UUID, int], targets: Mapping[str, Assignment]) -> None:
    """Check that each partition of a subscribed topic is assigned to exactly one of its subscribers."""
    assert targets.keys() == members.keys()
    assigned = [(topic, index) for target in targets.values() for topic, indexes in target.items() for index in indexes]
    assert len(assigned) == len(set(assigned))
    assert set(assigned) == {(topic, index) for topic, count in partition_counts.items() for index in range(count)}
    for name, target in targets.items():
        assert target.keys() <= members[name].topics
        assert all(target.values()), "a topic without partitions"


def check_balanced(members: Members, targets: Mapping[str, Assignment]) -> None:
    """Check that no subscriber of a partition's topic has at least two partitions fewer than the partition's owner."""
    for owner, target in targets.items():
        for topic in target:
            for reader, member in members.items():
                if topic in member.topics:
                    assert size(targets[owner]) <= size(targets[reader]) + 1


def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """Return the number of partitions whose owner has changed."""
    return sum(size(target) for target in before.values()) - sum(
        size(common(target, after.get(name, {}))) for name, target in before.items()
    )


@pytest.mark.parametrize("assign", [assign_range, assign_uniform])
@given(group=groups())
def test_every_partition_has_one_owner(assign: Assignor, group: tuple[Members, dict[UUID, int]]) -> None:
    members, partition_counts = group
    check_complete(members, partition_counts, assign(members, partition_counts))


@given(groups())
def test_uniform_is_balanced(group: tuple[Members, dict[UUID, int]]) -> None:
    members, partition_counts = group
    targets = assign_uniform(members, partition_counts)
    check_balanced(members, targets)
    again = assign_uniform(with_targets(members, targets), partition_counts)
    assert again == targets, "a balanced assignment moves"


@given(groups(), st.integers(0, 7), st.data())
def test_uniform_stays_balanced_as_members_and_topics_come_and_go(
    group: tuple[Members, dict[UUID, int]], leaver: int, data: st.DataObject
) -> None:
    members, partition_counts = group
    targets = assign_uniform(members, partition_counts)
    names = list(members)
    staying = {name: members[name] for name in names if name != names[leaver % len(names)]}
    staying["newcomer"] = Subscriber(data.draw(st.frozensets(st.sampled_from(sorted(partition_counts) or TOPICS[:1]))))
    read = frozenset().union(*(member.topics for member in staying.values()))
    grown = {topic: partition_counts.get(topic, 1) + data.draw(st.integers(0, 2)) for topic in read}
    after = assign_uniform(with_targets(staying, targets), grown)
    check_complete(staying, grown, after)
    check_balanced(staying, after)


@given(groups(same_topics=True))
def test_uniform_moves_no_more_than_balance_asks(group: tuple[Members, dict[UUID, int]]) -> None:
    """A new member gets its share; no other member gets a partition that another one had."""
    members, partition_counts = group
    targets = assign_uniform(members, partition_counts)
    joined = with_targets(members, targets) | {"newcomer": Subscriber(frozenset(partition_counts))}
    after = assign_uniform(joined, partition_counts)
    assert moved(targets, after) == size(after["newcomer"])
    left = {name: member for name, member in with_targets(joined, after).items() if name != "newcomer"}
    at_last = assign_uniform(left, partition_counts)
    assert moved({name: after[name] for name in left}, at_last) == 0


@given(groups(same_topics=True))
def test_range_assigns_each_member_a_contiguous_range_of_each_topic(group: tuple[Members, dict[UUID, int]]) -> None:
    members, partition_counts = group
    targets = assign_range(members, partition_counts)
    for topic, count in partition_counts.items():
        stretches = [sorted(targets[name].get(topic, ())) for name in sorted(members)]
        assert [index for stretch in stretches for index in stretch] == list(range(count))
        lengths = [len(stretch) for stretch in stretches]
        assert lengths == sorted(lengths, reverse=True)
        assert max(lengths) - min(lengths) <= 1


def test_range_assigns_the_same_partition_numbers_of_each_topic_to_a_member() -> None:
    members = {name: Subscriber(frozenset(TOPICS[:2])) for name in ("b", "a")}
    targets = assign_range(members, dict.fromkeys(TOPICS[:2], 3))
    assert targets["a"] == dict.fromkeys(TOPICS[:2], frozenset({0, 1}))
    assert targets["b"] == dict.fromkeys(TOPICS[:2], frozenset({2}))


def test_range_orders_static_members_first_by_group_instance_id() -> None:
    topic = TOPICS[0]
    members = {
        "a": Subscriber(frozenset({topic})),
        "z1": Subscriber(frozenset({topic}), instance_id="two"),
        "z2": Subscriber(frozenset({topic}), instance_id="one"),
    }
    targets = assign_range(members, {topic: 3})
    assert [targets[name][topic] for name in ("z2", "z1", "a")] == [{0}, {1}, {2}]


def test_uniform_drops_partitions_that_no_longer_exist() -> None:
    topic, gone = TOPICS[:2]
    members = {
        "a": Subscriber(frozenset({topic}), target={gone: frozenset({0}), topic: frozenset({7})}),
        "b": Subscriber(frozenset({topic}), target={topic: frozenset({1})}),
    }
    assert assign_uniform(members, {topic: 2}) == {"a": {topic: {0}}, "b": {topic: {1}}}


def test_uniform_evens_out_members_who_read_different_topics() -> None:
    """One member reads all topics, the others one topic each: it gets the partitions that no other member can read."""
    common_topic, own_topic = TOPICS[:2]
    members = {
        "all": Subscriber(frozenset({common_topic, own_topic})),
        "one": Subscriber(frozenset({common_topic})),
        "two": Subscriber(frozenset({common_topic})),
    }
    targets = assign_uniform(members, {common_topic: 4, own_topic: 2})
    assert {name: size(target) for name, target in targets.items()} == {"all": 2, "one": 2, "two": 2}
    assert targets["all"] == {own_topic: {0, 1}}


def test_assignors_have_kafkas_names_and_classes() -> None:
    package = "org.apache.kafka.coordinator.group.assignor"
    assert list(assignors_by_name([f"{package}.RangeAssignor", f"{package}.UniformAssignor"])) == ["range", "uniform"]
    for names in (["com.example.Mine"], []):
        with pytest.raises(ConfigError, match=r"^group\.consumer\.assignors="):
            assignors_by_name(names)
