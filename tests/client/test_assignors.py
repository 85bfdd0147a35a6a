"""Every partition has exactly one reader, the shares are fair, and sticky ones stay."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.client.consumer.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberWish,
    RangeAssignor,
    RoundRobinAssignor,
    assignors_named,
)
from gregor.client.errors import ConfigError

topics = st.sampled_from(["a", "b", "c"])
counts = st.dictionaries(topics, st.integers(1, 12), min_size=1)
wishes = st.lists(st.lists(topics, min_size=1, unique=True), min_size=1, max_size=6)
eager = st.sampled_from([RangeAssignor(), RoundRobinAssignor()])


def members_of(lists: list[list[str]]) -> dict[str, MemberWish]:
    return {f"m{index}": MemberWish(names) for index, names in enumerate(lists)}


@given(counts, wishes, st.one_of(eager, st.just(CooperativeStickyAssignor())))
def test_each_subscribed_partition_is_assigned_to_exactly_one_subscribed_member(
    partition_counts: dict[str, int], lists: list[list[str]], assignor: Assignor
) -> None:
    members = members_of(lists)
    assignment = assignor.assign(partition_counts, members)
    readers = Counter(place for places in assignment.values() for place in places)
    wanted = {topic for names in lists for topic in names}
    expected = {(t, p) for t, count in partition_counts.items() if t in wanted for p in range(count)}
    assert set(readers) == expected
    assert set(readers.values()) <= {1}
    for member, places in assignment.items():
        assert all(topic in members[member].topics for topic, _ in places)


def test_the_range_assignor_gives_contiguous_partitions_to_members_in_order() -> None:
    assignment = RangeAssignor().assign({"t": 5}, members_of([["t"], ["t"]]))
    assert assignment == {"m0": [("t", 0), ("t", 1), ("t", 2)], "m1": [("t", 3), ("t", 4)]}


@given(st.integers(1, 30), st.integers(1, 6))
def test_sticky_shares_differ_by_one_at_most(partition_count: int, member_count: int) -> None:
    assignment = CooperativeStickyAssignor().assign({"t": partition_count}, members_of([["t"]] * member_count))
    sizes = [len(places) for places in assignment.values()]
    assert max(sizes) - min(sizes) <= 1


def test_cooperative_sticky_revokes_a_moving_partition_before_assigning_it() -> None:
    owned = tuple(("t", partition) for partition in range(4))
    members = {"old": MemberWish(["t"], owned), "new": MemberWish(["t"])}
    first = CooperativeStickyAssignor().assign({"t": 4}, members)
    assert first["new"] == []
    assert len(first["old"]) == 2
    members = {"old": MemberWish(["t"], first["old"]), "new": MemberWish(["t"])}
    second = CooperativeStickyAssignor().assign({"t": 4}, members)
    assert second["old"] == first["old"]
    assert len(second["new"]) == 2


def test_an_unknown_assignor_name_is_refused() -> None:
    assert [a.name for a in assignors_named("range, roundrobin")] == ["range", "roundrobin"]
    with pytest.raises(ConfigError, match="sticky"):
        assignors_named("stickyy")
