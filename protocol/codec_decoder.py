"""Generates the function that reads one version of a message: straight-line code, one piece per wire type.

A generated function looks like this (`HeartbeatRequest v0`)::

    def decode(data, pos, end, room):
        m1 = new(HeartbeatRequest)
        m1.group_instance_id = None
        n2, = unpack_from_h(data, pos)
        pos += 2
        if not 0 <= n2 <= end - pos: raise bad_length('group_id', n2)
        m1.group_id = str(data[pos:pos + n2], 'utf-8', 'replace')
        pos += n2
        m1.generation_id, n3 = unpack_from_ih(data, pos)
        ...
        return m1, pos

`data` is a memoryview, `room` how many array elements the message may still hold. Reading past the end raises
IndexError or `struct.error`, which `codec.decode` turns into a DecodeError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

from .codec_layout import LONGEST_STRING, PREFIX_CODES, ArrayOf, FieldLayout, StructLayout, Wire, minimum_size
from .codec_source import Source
from .errors import DecodeError
from .schema import FixedSize, LengthPrefixed, Struct
from .unsigned_varint import read_unsigned_varint, skip_tagged_fields

Decoder: TypeAlias = Callable[[memoryview, int, int, int], tuple[Any, int]]

_READ_TEXT = {
    "string": "str(data[{start}:{stop}], 'utf-8', 'replace')",
    "bytes": "bytes(data[{start}:{stop}])",
    "records": "data[{start}:{stop}]",
}


def compile_decoder(layout: StructLayout, title: str) -> Decoder:
    """Compile the decoder for one layout; `title` is the message's name and version."""
    source = _DecoderSource()
    message = source.new_struct(layout)
    source.struct_fields(layout, message)
    source.end_run()
    source.line(f"return {message}, pos")
    decoder: Decoder = source.compile("decode(data, pos, end, room)", f"{title} decode")
    return decoder


class _DecoderSource(Source):
    """A generator of code that reads values; each `value` method leaves the position after the value."""

    def __init__(self) -> None:
        super().__init__(
            {
                "new": object.__new__,
                "unpack_from": struct.unpack_from,
                "uuid_of": uuid_of,
                "read_unsigned_varint": read_unsigned_varint,
                "skip_tagged_fields": skip_tagged_fields,
                "bad_length": bad_length,
            }
        )
        self._run_codes: list[str] = []
        self._run_targets: list[str] = []
        self._after_run: list[str] = []

    def end_run(self) -> None:
        if not self._run_codes:
            return
        codes = "".join(self._run_codes)
        if codes == "B":
            self.line(f"{self._run_targets[0]} = data[pos]")
            self.line("pos += 1")
        else:
            self._unpack(codes)
        for line in self._after_run:
            self.line(line)
        self._run_codes, self._run_targets, self._after_run = [], [], []

    def _unpack(self, codes: str) -> None:
        unpack = self.struct_method(codes, "unpack_from")
        self.line(f"{', '.join(self._run_targets)}{',' * (len(self._run_targets) == 1)} = {unpack}(data, pos)")
        self.line(f"pos += {struct.calcsize('>' + codes)}")

    def _in_run(self, code: str, target: str) -> None:
        self._run_codes.append(code)
        self._run_targets.append(target)

    def new_struct(self, layout: StructLayout) -> str:
        """Add a local variable that holds a new instance without values, and return its name."""
        self.scope[layout.cls.__name__] = layout.cls
        name = self.local("m")
        self.line(f"{name} = new({layout.cls.__name__})")
        return name

    def struct_fields(self, layout: StructLayout, target: str) -> None:
        """Set the fields of an instance: those that the version lacks to their defaults, the others from the wire."""
        for name, default in [(f.name, f.default) for f in layout.absent] + [
            (f.name, f.default) for _, f in layout.tagged
        ]:
            self.line(f"{target}.{name} = {self._default(default)}")
        for field in layout.fields:
            self.value(field.wire, f"{target}.{field.name}", field)
        if layout.flexible:
            self._tagged_fields(layout, target)

    def _default(self, default: object) -> str:
        """Return an expression for a field's default, which makes a mutable default new each time."""
        if isinstance(default, list):
            return "[]"
        if isinstance(default, Struct):
            return f"{self.named('type', type(default))}()"
        if isinstance(default, UUID):
            return self.named("no_uuid", default)
        return repr(default)

    def value(self, wire: Wire, target: str, field: FieldLayout) -> None:
        """Read one value of `field` (or one element of its array) into the expression `target`."""
        match wire:
            case FixedSize("16s"):
                packed = self.local("u")
                self._in_run("16s", packed)
                self._after_run.append(f"{target} = uuid_of({packed})")
            case FixedSize(code):
                self._in_run(code, target)
            case LengthPrefixed(kind):
                self._sized(kind, target, field, nullable=field.nullable and wire is field.wire)
            case ArrayOf(element):
                self._array(element, target, field)
            case StructLayout() if field.nullable and wire is field.wire:
                self._nullable_struct(wire, target)
            case StructLayout():
                instance = self.new_struct(wire)
                self.line(f"{target} = {instance}")
                self.struct_fields(wire, instance)

    def _length(self, code: str, *, compact: bool, string: str | None = None) -> str:
        """Read a length or count into a local; below zero it stands for null.

        A compact ``string`` has the same limit as any other, as in Kafka's generated `read` ("had invalid length").
        """
        length = self.local("n")
        self._in_run("B" if compact else code, length)
        self.end_run()
        if compact:
            with self.block(f"if {length} > 127:"):
                self.line(f"{length}, pos = read_unsigned_varint(data, pos - 1)")
                if string is not None:
                    self.line(f"if {length} > {LONGEST_STRING + 1}: raise bad_length({string!r}, {length} - 1)")
            self.line(f"{length} -= 1")
        return length

    def _sized(self, kind: str, target: str, field: FieldLayout, *, nullable: bool) -> None:
        string = field.name if kind == "string" else None
        length = self._length(PREFIX_CODES[kind], compact=field.compact, string=string)
        read = f"{target} = " + _READ_TEXT[kind].format(start="pos", stop=f"pos + {length}")
        if nullable:
            with self.block(f"if {length} < 0:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self.line(f"if {length} > end - pos: raise bad_length({field.name!r}, {length})")
                self.line(read)
                self.line(f"pos += {length}")
        else:
            self.line(f"if not 0 <= {length} <= end - pos: raise bad_length({field.name!r}, {length})")
            self.line(read)
            self.line(f"pos += {length}")

    def _array(self, element: Wire, target: str, field: FieldLayout) -> None:
        count = self._length("i", compact=field.compact)
        if field.nullable:
            with self.block(f"if {count} < 0:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self._elements(element, target, field, count)
        else:
            self.line(f"if {count} < 0: raise bad_length({field.name!r}, {count})")
            self._elements(element, target, field, count)

    def _elements(self, element: Wire, target: str, field: FieldLayout, count: str) -> None:
        """Read `count` elements. Nothing is allocated for a count that exceeds the remaining bytes."""
        least = max(1, minimum_size(element, nullable=False, compact=field.compact))
        self.line(f"room -= {count}")
        self.line(f"if {count} * {least} > end - pos or room < 0: raise bad_length({field.name!r}, {count})")
        match element:
            case FixedSize("16s"):
                self.line(f"{target} = [uuid_of(bytes(data[at:at + 16])) for at in range(pos, pos + {count} * 16, 16)]")
                self.line(f"pos += {count} * 16")
            case FixedSize(code):
                self.line(f"{target} = list(unpack_from(f'>{{{count}}}{code}', data, pos))")
                self.line(f"pos += {count} * {least}")
            case _:
                elements, value = self.local("a"), self.local("v")
                self.line(f"{elements} = {target} = []")
                with self.block(f"for _ in range({count}):"):
                    if isinstance(element, StructLayout):
                        value = self.new_struct(element)
                        self.struct_fields(element, value)
                    else:
                        self.value(element, value, field)
                    self.end_run()
                    self.line(f"{elements}.append({value})")

    def _nullable_struct(self, layout: StructLayout, target: str) -> None:
        """Add the code for a structure after a byte that is negative for null."""
        present = self.local("n")
        self._in_run("b", present)
        with self.block(f"if {present} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            instance = self.new_struct(layout)
            self.line(f"{target} = {instance}")
            self.struct_fields(layout, instance)

    def _tagged_fields(self, layout: StructLayout, target: str) -> None:
        """Add the code for the section of tagged fields (KIP-482); undeclared tags are skipped."""
        count = self.local("n")
        self._in_run("B", count)
        if not layout.tagged:
            self.end_run()
            self.line(f"if {count}: pos = skip_tagged_fields(data, pos - 1)")
            return
        with self.block(f"if {count}:"):
            self.line(f"{count}, pos = read_unsigned_varint(data, pos - 1)")
            with self.block(f"for _ in range({count}):"):
                tag, size = self.local("tag"), self.local("size")
                self.line(f"{tag}, pos = read_unsigned_varint(data, pos)")
                self.line(f"{size}, pos = read_unsigned_varint(data, pos)")
                self.line(f"if not 0 <= {size} <= end - pos: raise bad_length('tagged field', {size})")
                keyword = "if"
                for number, field in layout.tagged:
                    with self.block(f"{keyword} {tag} == {number}:"):
                        self.value(field.wire, f"{target}.{field.name}", field)
                    keyword = "elif"
                with self.block("else:"):
                    self.line(f"pos += {size}")


@lru_cache(maxsize=4096)
def uuid_of(packed: bytes) -> UUID:
    """Return the UUID with these 16 bytes; cached, as topic ids repeat and making a UUID takes a microsecond."""
    return UUID(bytes=packed)


def bad_length(field: str, length: int) -> DecodeError:
    """Build the error for a length or count that is null where null is not allowed, or exceeds the data."""
    return DecodeError(f"{field}: {'null' if length == -1 else 'length ' + str(length)} is not possible here")
