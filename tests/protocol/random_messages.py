"""Random messages of any class and version, made from the declarations."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from uuid import UUID

import gregor.protocol.messages
from gregor.protocol.codec_layout import ArrayOf, FieldLayout, StructLayout, Wire, struct_layout
from gregor.protocol.schema import FixedSize, LengthPrefixed, Message

BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}
TEXTS = ["", "a", "events", "Zürich", "日本", "\x00", "long" * 40]


def message_modules() -> Iterator[ModuleType]:
    """Every module of `gregor.protocol.messages`."""
    for path in sorted(Path(gregor.protocol.messages.__path__[0]).glob("[a-z]*.py")):
        yield import_module(f"gregor.protocol.messages.{path.stem}")


def message_classes() -> list[type[Message]]:
    """Every message that is declared."""
    return [
        value
        for module in message_modules()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__
    ]


def versions_of(cls: type[Message]) -> range:
    """All versions of a message."""
    return range(cls.VERSIONS.first, cls.VERSIONS.last + 1)


def random_message(cls: type[Message], version: int, random: Random) -> Any:
    """A message with random values in the fields that the version carries; the others keep their defaults."""
    return _struct(struct_layout(cls, version, flexible=version in cls.FLEXIBLE), random)


def _struct(layout: StructLayout, random: Random) -> Any:
    fields = [*layout.fields, *(field for _, field in layout.tagged if random.random() < 0.5)]
    return layout.cls(**{field.name: _field(field, random) for field in fields})


def _field(field: FieldLayout, random: Random) -> Any:
    return None if field.nullable and random.random() < 0.2 else _value(field.wire, random)


def _value(wire: Wire, random: Random) -> Any:
    match wire:
        case FixedSize("?"):
            return random.random() < 0.5
        case FixedSize("16s"):
            return UUID(int=random.getrandbits(128))
        case FixedSize("d"):
            return random.uniform(-1e9, 1e9)
        case FixedSize(code):
            number = random.choice([0, 1, random.getrandbits(BITS[code]), (1 << BITS[code]) - 1, 1 << (BITS[code] - 1)])
            return number - (1 << BITS[code]) if code.islower() and number >> (BITS[code] - 1) else number
        case LengthPrefixed("string"):
            return random.choice(TEXTS)
        case LengthPrefixed():
            return random.randbytes(random.choice([0, 1, 100, 200]))
        case ArrayOf(element):
            return [_value(element, random) for _ in range(random.choice([0, 1, 2, 3]))]
        case StructLayout():
            return _struct(wire, random)
