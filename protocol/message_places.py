"""The topics and partitions of a message of any API, found by the meanings that the schemas give to fields.

A *place* is a topic and a partition; the partition is None where a message names a whole topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias
from uuid import UUID

from .codec_layout import ArrayOf, FieldLayout, StructLayout, struct_layout
from .field_meanings import field_meanings, fields_of
from .schema import NO_UUID, Entity, Message, Struct

Place: TypeAlias = tuple[str, int | None]
TopicNameOf: TypeAlias = Callable[[UUID], str | None]
"""Returns the name of the topic with an id, None if no topic has that id."""


def topic_of(entry: object, name_of: TopicNameOf) -> str | None:
    """Return the topic of an entry of a topic list, or None if the entry has none or the topic id is unknown."""
    if not isinstance(entry, Struct):
        return entry if isinstance(entry, str) else None
    name = first_value(entry, Entity.TOPIC_NAME)
    topic_id = first_value(entry, Entity.TOPIC_ID)
    if not name and topic_id is not None and topic_id != NO_UUID:
        return name_of(topic_id)
    return name or None


def partition_of(entry: object) -> int | None:
    """Return the partition of an entry of a partition list."""
    if not isinstance(entry, Struct):
        return entry if isinstance(entry, int) else None
    partition: int | None = first_value(entry, Entity.PARTITION_INDEX)
    return partition


def first_value(entry: Struct, entity: Entity) -> Any:
    """Return the first value of an entry that names such an entity; None if there is none."""
    values = (getattr(entry, name) for name in fields_of(type(entry), entity))
    return next((value for value in values if value is not None), None)


@cache
def is_topic_list(cls: type[Struct], name: str) -> bool:
    """Return whether a field of a structure is a list with an entry for each topic that the message concerns."""
    return _is_list_of(cls, name, Entity.TOPIC_NAME) or _is_list_of(cls, name, Entity.TOPIC_ID)


@cache
def is_partition_list(cls: type[Struct], name: str) -> bool:
    """Return whether a field of a structure is a list with an entry for each partition of one topic."""
    return _is_list_of(cls, name, Entity.PARTITION_INDEX)


def _is_list_of(cls: type[Struct], name: str, entity: Entity) -> bool:
    meaning = field_meanings(cls)[name]
    if not meaning.is_list or meaning.is_mentioned:
        return False
    return meaning.entity is entity if meaning.structure is None else bool(fields_of(meaning.structure, entity))


def lists_in(struct: Struct) -> Iterator[tuple[str, list[object]]]:
    """Yield the fields of a structure that hold a list that is not empty."""
    for name in struct.FIELD_DEFAULTS:
        value = getattr(struct, name)
        if isinstance(value, list) and value:
            yield name, value


def places_in(message: Struct, name_of: TopicNameOf, topic: str | None = None) -> Iterator[Place]:
    """Yield every place in a message; inside an entry for ``topic``, the topic's partitions."""
    for name, entries in lists_in(message):
        if topic is not None and is_partition_list(type(message), name):
            yield from ((topic, partition_of(entry)) for entry in entries)
        elif is_topic_list(type(message), name):
            for entry in entries:
                yield from _places_of_topic(entry, topic_of(entry, name_of), name_of)
        else:
            for entry in entries:
                if isinstance(entry, Struct):
                    yield from places_in(entry, name_of)


def _places_of_topic(entry: object, topic: str | None, name_of: TopicNameOf) -> Iterator[Place]:
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
