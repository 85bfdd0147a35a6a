"""Declarations behave as ordinary keyword-only dataclasses."""

from __future__ import annotations

from typing import Annotated

import pytest

from gregor.protocol.codec_layout import struct_layout
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from gregor.protocol.messages.list_groups import ListGroupsRequest
from gregor.protocol.schema import IGNORABLE, Int32, Message, String, Struct, VersionRange, Versions


class Greeting(Message, versions="0-3", flexible="2+"):
    words: Annotated[list[String], Versions("1+"), IGNORABLE] = []
    loudness: Int32 = 5


class Unreadable(Message, versions="0"):
    value: int = 0


def test_every_field_has_a_default_and_lists_are_never_shared() -> None:
    first, second = Greeting(), Greeting()
    first.words.append("hello")
    assert (second.words, second.loudness) == ([], 5)
    assert FetchRequest().replica_state is not FetchRequest().replica_state


def test_given_field_values_are_not_copied() -> None:
    words = ["a"]
    assert Greeting(words=words).words is words
    state = ReplicaState(replica_id=1)
    assert FetchRequest(replica_state=state).replica_state is state


def test_misspelt_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        FetchPartition(ofset=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        FetchPartition().ofset = 1  # type: ignore[attr-defined]


def test_messages_are_equal_when_all_fields_are_equal() -> None:
    assert FetchTopic(topic="a", partitions=[FetchPartition()]) == FetchTopic(topic="a", partitions=[FetchPartition()])
    assert FetchTopic(topic="a") != FetchTopic(topic="b")
    assert FetchTopic() != FetchPartition()


def test_the_repr_of_a_message_is_its_constructor_call() -> None:
    assert repr(Greeting(words=["hi"])) == "Greeting(words=['hi'], loudness=5)"


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("1-4", [1, 4], [0, 5]), ("7+", [7, 99], [6]), ("none", [], [0, 1])],
)
def test_version_ranges_in_kafkas_notation(text: str, inside: list[int], outside: list[int]) -> None:
    versions = VersionRange(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_a_layout_lists_the_present_and_absent_fields_of_a_version() -> None:
    old = struct_layout(Greeting, 0, flexible=False)
    assert [field.name for field in old.fields] == ["loudness"]
    assert [(field.name, field.ignorable) for field in old.absent] == [("words", True)]
    new = struct_layout(Greeting, 2, flexible=True)
    assert [(field.name, field.compact) for field in new.fields] == [("words", True), ("loudness", True)]


def test_a_type_that_is_no_wire_type_is_refused() -> None:
    with pytest.raises(TypeError, match="int"):
        struct_layout(Unreadable, 0, flexible=False)


def test_a_message_may_have_no_field_in_a_version() -> None:
    assert struct_layout(ListGroupsRequest, 0, flexible=False) == struct_layout(ListGroupsRequest, 2, flexible=False)


def test_a_structure_is_not_a_message() -> None:
    assert issubclass(FetchPartition, Struct)
    assert not issubclass(FetchPartition, Message)
