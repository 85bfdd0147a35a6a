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
    """Yield every module of `gregor.protocol.messages`."""
    for path in sorted(Path(gregor.protocol.messages.__path__[0]).glob("[a-z]*.py")):
        yield import_module(f"gregor.protocol.messages.{path.stem}")


def message_classes() -> list[type[Message]]:
    """Return every message that is declared."""
    return [
        value
        for module in message_modules()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__
    ]


def versions_of(cls: type[Message]) -> range:
    """Return all versions of a message."""
    return range(cls.VERSIONS.first, cls.VERSIONS.last + 1)


class RandomValues:
    """A source of random values of each wire type that often draws the limits of the type."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def message(self, cls: type[Message], version: int) -> Any:
        """Return a message with values in the fields that the version carries; the others keep their defaults."""
        return self._struct(struct_layout(cls, version, flexible=version in cls.FLEXIBLE))

    def number(self, code: str) -> int:
        """Return one for the letter of the `struct` module."""
        bits = BITS[code]
        number = self.random.choice([0, 1, self.random.getrandbits(bits), (1 << bits) - 1, 1 << (bits - 1)])
        return number - (1 << bits) if code.islower() and number >> (bits - 1) else number

    def uuid(self) -> UUID:
        """Draw any UUID."""
        return UUID(int=self.random.getrandbits(128))

    def text(self) -> str:
        """Draw a short, long, empty or unusual text."""
        return self.random.choice(TEXTS)

    def data(self) -> bytes:
        """Draw random bytes."""
        return self.random.randbytes(self.random.choice([0, 1, 100, 200]))

    def _struct(self, layout: StructLayout) -> Any:
        fields = [*layout.fields, *(field for _, field in layout.tagged if self.random.random() < 0.5)]
        return layout.cls(**{field.name: self._field(field) for field in fields})

    def _field(self, field: FieldLayout) -> Any:
        return None if field.nullable and self.random.random() < 0.2 else self._value(field.wire)

    def _value(self, wire: Wire) -> Any:
        match wire:
            case FixedSize("?"):
                return self.random.random() < 0.5
            case FixedSize("16s"):
                return self.uuid()
            case FixedSize("d"):
                return self.random.uniform(-1e9, 1e9)
            case FixedSize(code):
                return self.number(code)
            case LengthPrefixed("string"):
                return self.text()
            case LengthPrefixed():
                return self.data()
            case ArrayOf(element):
                return [self._value(element) for _ in range(self.random.choice([0, 1, 2, 3]))]
            case StructLayout():
                return self._struct(wire)


def random_message(cls: type[Message], version: int, random: Random) -> Any:
    """Return a message with random values in the fields that the version carries; the others keep their defaults."""
    return RandomValues(random).message(cls, version)
