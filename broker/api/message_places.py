"""The topics and partitions in a message of any API, found by the few field names that Kafka's schemas use.

A *place* is a topic and a partition; the partition is None if a message refers to a whole topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeAlias
from uuid import UUID

from ...protocol.codec_layout import ArrayOf, FieldLayout, StructLayout, struct_layout
from ...protocol.schema import NO_UUID, Message, Struct

Place: TypeAlias = tuple[str, int | None]
TopicName: TypeAlias = Callable[[UUID], str | None]
"""Returns the name of the topic with an id, or None for an unknown id."""

TOPIC_LISTS = frozenset(
    {
        "replica_election_results",
        "responses",
        "results",
        "results_by_topic_v3_and_below",
        "topic_data",
        "topic_names",
        "topic_partitions",
        "topic_results",
        "topics",
        "v3_and_below_topics",
    }
)
"""Lists that have an entry for each topic, if the entries have a field for the topic's name or id."""
PARTITION_LISTS = frozenset(
    {
        "partition_data",
        "partition_indexes",
        "partition_responses",
        "partition_result",
        "partitions",
        "results_by_partition",
    }
)
"""Lists that have an entry for each partition, inside the entry of its topic."""
TOPIC_FIELDS = ("topic", "topic_name", "name")
PARTITION_FIELDS = ("partition", "partition_index", "partition_id", "index")
TOPIC_ID = "topic_id"


def topic_of(entry: object, name_of: TopicName) -> str | None:
    """Return the topic of an entry of a topic list, or None if the entry has none or the topic id is unknown."""
    if isinstance(entry, str):
        return entry
    name = next((value for field in TOPIC_FIELDS if isinstance(value := getattr(entry, field, None), str)), None)
    if not name and isinstance(topic_id := getattr(entry, TOPIC_ID, None), UUID) and topic_id != NO_UUID:
        return name_of(topic_id)
    return name or None


def partition_of(entry: object) -> int | None:
    """Return the partition of an entry of a partition list."""
    if isinstance(entry, int):
        return entry
    return next((getattr(entry, field) for field in PARTITION_FIELDS if hasattr(entry, field)), None)


def is_topic_list(name: str, entry_type: type) -> bool:
    """Return whether a list of that name with such entries has an entry for each topic."""
    if name not in TOPIC_LISTS:
        return False
    return entry_type is str or any(hasattr(entry_type, field) for field in (*TOPIC_FIELDS, TOPIC_ID))


def lists_in(struct: Struct) -> Iterator[tuple[str, list[object]]]:
    """Yield the fields of a structure that hold a list that is not empty."""
    for name in struct.FIELD_DEFAULTS:
        value = getattr(struct, name)
        if isinstance(value, list) and value:
            yield name, value


def places_in(message: Struct, name_of: TopicName, topic: str | None = None) -> Iterator[Place]:
    """Yield every place in a message; inside an entry for ``topic``, the topic's partitions."""
    for name, entries in lists_in(message):
        if topic is not None and name in PARTITION_LISTS:
            yield from ((topic, partition_of(entry)) for entry in entries)
        elif is_topic_list(name, type(entries[0])):
            for entry in entries:
                yield from _places_of_topic(entry, topic_of(entry, name_of), name_of)
        else:
            for entry in entries:
                if isinstance(entry, Struct):
                    yield from places_in(entry, name_of)


def _places_of_topic(entry: object, topic: str | None, name_of: TopicName) -> Iterator[Place]:
    if topic is None:
        return
    inside = list(places_in(entry, name_of, topic)) if isinstance(entry, Struct) else []
    yield from inside or [(topic, None)]


@cache
def layout_of(cls: type[Message], version: int) -> StructLayout:
    """Return the layout of a message in a version."""
    return struct_layout(cls, version, flexible=version in cls.FLEXIBLE)


def carried_fields(layout: StructLayout) -> tuple[FieldLayout, ...]:
    """Return all fields of a structure that its version carries."""
    return (*layout.fields, *(field for _, field in layout.tagged))


def entries_of(field: FieldLayout) -> StructLayout | None:
    """Return the layout of a list's entries if they are structures, else None."""
    if isinstance(field.wire, ArrayOf) and isinstance(field.wire.element, StructLayout):
        return field.wire.element
    return None
