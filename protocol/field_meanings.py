"""The meanings of the fields of a structure in all versions, read from the declarations in `messages/`.

Code for all APIs (refusals, fault rules) finds topics, partitions and error codes by these meanings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from .codec_layout import Declared
from .schema import Entity, Mentioned, MinusOneOnError, Sender, Struct


@dataclass(frozen=True, slots=True)
class FieldMeaning:
    """The meaning of one field according to its declaration."""

    entity: Entity | None
    """The entity that the value names, or that each value of a list names."""
    is_list: bool
    structure: type[Struct] | None
    """The class of the structure in the field, or of the entries of the list."""
    is_mentioned: bool
    """Whether the request does not act on what the field names; see `schema.Mentioned`."""
    is_minus_one_on_error: bool
    """Whether the number is -1 beside an error code."""
    is_sender: bool
    """Whether the field is the id of the broker that sends the request."""


@cache
def field_meanings(cls: type[Struct]) -> Mapping[str, FieldMeaning]:
    """Return the meaning of each field of a structure, by field name in the order of declaration."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: _meaning(hints[name]) for name in cls.FIELD_DEFAULTS}


@cache
def fields_of(cls: type[Struct], entity: Entity) -> tuple[str, ...]:
    """Return the fields of a structure that name one such entity, in the order of declaration."""
    return tuple(
        name
        for name, meaning in field_meanings(cls).items()
        if meaning.entity is entity and not (meaning.is_list and meaning.structure is None)
    )


@cache
def sender_fields(cls: type[Struct]) -> tuple[tuple[str, ...], ...]:
    """Return the paths of the fields in which a broker writes its own id, as attribute names from the request on."""
    paths: list[tuple[str, ...]] = []
    for name, meaning in field_meanings(cls).items():
        if meaning.is_sender:
            paths.append((name,))
        elif meaning.structure is not None and not meaning.is_list:
            paths += [(name, *inside) for inside in sender_fields(meaning.structure)]
    return tuple(paths)


def _meaning(annotation: Any) -> FieldMeaning:
    declared = Declared(annotation)
    is_list = get_origin(declared.type) is list
    element = Declared(get_args(declared.type)[0]) if is_list else declared
    return FieldMeaning(
        entity=_entity_of_type(element.type) or declared.mark(Entity),
        is_list=is_list,
        structure=element.type if isinstance(element.type, type) and issubclass(element.type, Struct) else None,
        is_mentioned=declared.mark(Mentioned) is not None,
        is_minus_one_on_error=declared.mark(MinusOneOnError) is not None,
        is_sender=declared.mark(Sender) is not None,
    )


def _entity_of_type(annotation: Any) -> Entity | None:
    """Return the entity of a type such as ``TopicName``; `Declared` takes only the wire type off it."""
    marks = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Entity)), None)
