"""The wire layout of one version of a message, derived from its declaration.

`struct_layout` reads the annotations of a class (see `schema.py`) and returns plain values from which
`codec_decoder.py` and `codec_encoder.py` generate code: this module has neither bytes nor source text.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from .schema import FixedSize, Ignorable, LengthPrefixed, NeverCompact, Nullable, Struct, Tag, Versions

LONGEST_STRING = 0x7FFF
"""The most bytes of a string in any version: Kafka keeps the limit of INT16 lengths for compact strings."""
PREFIX_CODES = {"string": "h", "bytes": "i", "records": "i"}
"""The `struct` letter of the length before each kind of value where lengths are not compact (KIP-482)."""


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """An array: a count and that many elements."""

    element: Wire


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """A field that the version carries."""

    name: str
    wire: Wire
    nullable: bool
    compact: bool
    default: Any


@dataclass(frozen=True, slots=True)
class AbsentField:
    """A field that the version does not carry."""

    name: str
    default: Any
    ignorable: bool


@dataclass(frozen=True, slots=True)
class StructLayout:
    """A structure: its fields in wire order, then, if flexible, the tagged ones in the order of their tags."""

    cls: type[Struct]
    flexible: bool
    fields: tuple[FieldLayout, ...]
    tagged: tuple[tuple[int, FieldLayout], ...]
    absent: tuple[AbsentField, ...]


Wire: TypeAlias = FixedSize | LengthPrefixed | ArrayOf | StructLayout
_Mark = TypeVar("_Mark")


def struct_layout(cls: type[Struct], version: int, *, flexible: bool) -> StructLayout:
    """Build the layout of `cls` in a version of the message that contains the structure.

    Raises TypeError where an annotation is not in the words of `schema.py`.
    """
    fields: list[FieldLayout] = []
    tagged: list[tuple[int, FieldLayout]] = []
    absent: list[AbsentField] = []
    hints = get_type_hints(cls, include_extras=True)
    for name, default in cls.FIELD_DEFAULTS.items():
        declared = Declared(hints[name])
        versions = declared.mark(Versions)
        if versions is not None and version not in versions:
            absent.append(AbsentField(name, default, ignorable=declared.mark(Ignorable) is not None))
            continue
        nulls = declared.mark(Nullable)
        field = FieldLayout(
            name,
            _wire(declared.type, version, flexible=flexible),
            nullable=declared.optional and (nulls is None or version in nulls),
            compact=flexible and declared.mark(NeverCompact) is None,
            default=default,
        )
        tag = declared.mark(Tag)
        if tag is None:
            fields.append(field)
        else:
            tagged.append((tag.number, field))
    tagged.sort(key=lambda entry: entry[0])
    return StructLayout(cls, flexible, tuple(fields), tuple(tagged), tuple(absent))


class Declared:
    """The parts of a field's annotation: the type without `None`, and the marks."""

    def __init__(self, annotation: Any) -> None:
        self._marks: tuple[Any, ...] = ()
        if get_origin(annotation) is Annotated and not isinstance(
            annotation.__metadata__[0], FixedSize | LengthPrefixed
        ):
            self._marks = annotation.__metadata__
            annotation = annotation.__origin__
        elif get_origin(annotation) is Annotated:
            self._marks = annotation.__metadata__[1:]
        self.optional = get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation)
        if self.optional:
            (annotation,) = (argument for argument in get_args(annotation) if argument is not NoneType)
        self.type = annotation

    def mark(self, kind: type[_Mark]) -> _Mark | None:
        return next((mark for mark in self._marks if isinstance(mark, kind)), None)


def _wire(annotation: Any, version: int, *, flexible: bool) -> Wire:
    """Return the wire type of a type without marks: a primitive of `schema.py`, `list[...]` or a `Struct`."""
    if get_origin(annotation) is Annotated:
        primitive = annotation.__metadata__[0]
        if isinstance(primitive, FixedSize | LengthPrefixed):
            return primitive
    elif get_origin(annotation) is list:
        return ArrayOf(_wire(get_args(annotation)[0], version, flexible=flexible))
    elif isinstance(annotation, type) and issubclass(annotation, Struct):
        return struct_layout(annotation, version, flexible=flexible)
    raise TypeError(f"{annotation} is not a type of messages")


def minimum_size(wire: Wire, *, nullable: bool, compact: bool) -> int:
    """Return the fewest bytes that a value can take on the wire."""
    match wire:
        case FixedSize(code):
            return struct.calcsize(">" + code)
        case LengthPrefixed(kind):
            return 1 if compact else struct.calcsize(PREFIX_CODES[kind])
        case ArrayOf():
            return 1 if compact else 4
        case StructLayout():
            if nullable:
                return 1
            in_place = sum(minimum_size(f.wire, nullable=f.nullable, compact=f.compact) for f in wire.fields)
            return in_place + wire.flexible
