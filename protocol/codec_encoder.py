"""Generates the function that writes one version of a message: the mirror image of `codec_decoder.py`.

A generated function looks like this (`HeartbeatResponse v1`)::

    def encode(m, pieces):
        push = pieces.append
        push(pack_ih(m.throttle_time_ms, m.error_code))

`pieces` receives bytes, and records as they are: bytes, a memoryview or a `Part`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from uuid import UUID

from .codec_layout import LONGEST_STRING, PREFIX_CODES, AbsentField, ArrayOf, FieldLayout, StructLayout, Wire
from .codec_source import Source
from .errors import BrokerError, EncodeError, ErrorCode
from .schema import EncodedStruct, FixedSize, LengthPrefixed, Part, Struct
from .unsigned_varint import encode_unsigned_varint

Encoder: TypeAlias = Callable[[Any, list[Any]], None]

_ONE_BYTE_VARINTS = [bytes([value]) for value in range(0x80)]


def compile_encoder(layout: StructLayout, title: str) -> Encoder:
    """Compile the encoder for one layout; `title` is the message's name and version."""
    source = _EncoderSource(title)
    source.line("push = pieces.append")
    source.struct_fields(layout, "m")
    source.end_run()
    encoder: Encoder = source.compile("encode(m, pieces)", f"{title} encode")
    return encoder


class _EncoderSource(Source):
    """A generator of code that writes values, given as expressions."""

    def __init__(self, title: str) -> None:
        super().__init__(
            {
                "pack": struct.pack,
                "one_byte_varints": _ONE_BYTE_VARINTS,
                "unsigned_varint": encode_unsigned_varint,
                "long_string_varint": long_string_varint,
                "records_size": records_size,
                "EncodedStruct": EncodedStruct,
                "append_tagged_field": append_tagged_field,
                "not_carried": not_carried,
            }
        )
        self._title = title
        self._pieces, self._push = "pieces", "push"
        self._run_codes: list[str] = []
        self._run_values: list[str] = []

    def end_run(self) -> None:
        if self._run_values:
            pack = self.struct_method("".join(self._run_codes), "pack")
            self.line(f"{self._push}({pack}({', '.join(self._run_values)}))")
        elif self._run_codes:
            self.line(f"{self._push}({bytes(len(self._run_codes))!r})")
        self._run_codes, self._run_values = [], []

    def _in_run(self, code: str, *values: str) -> None:
        self._run_codes.append(code)
        self._run_values.extend(values)

    def struct_fields(self, layout: StructLayout, instance: str) -> None:
        """Write the instance in an expression, after checking that none of its values would be lost."""
        for absent in layout.absent:
            self._refuse_lost_value(absent, f"{instance}.{absent.name}")
        for field in layout.fields:
            self.value(field.wire, f"{instance}.{field.name}", field)
        if layout.tagged:
            self._tagged_fields(layout, instance)
        elif layout.flexible:
            self._in_run("x")

    def _refuse_lost_value(self, field: AbsentField, value: str) -> None:
        if not field.ignorable:
            self.line(f"if {self._differs(value, field.default)}: raise not_carried({field.name!r}, {self._title!r})")

    def _differs(self, value: str, default: object) -> str:
        """Return a condition that is false if the value is the default; parts that compare slowly are not compared."""
        if isinstance(default, Struct):
            fields = type(default).FIELD_DEFAULTS
            return " or ".join(self._differs(f"{value}.{name}", part) for name, part in fields.items())
        if isinstance(default, UUID):
            no_uuid = self.named("no_uuid", default)
            return f"({value} is not {no_uuid} and {value} != {no_uuid})"
        if default is None:
            return f"{value} is not None"
        return f"{value} != {default!r}"

    def value(self, wire: Wire, value: str, field: FieldLayout) -> None:
        """Write one value of `field`, or one element of its array."""
        nullable = field.nullable and wire is field.wire
        match wire:
            case FixedSize("16s"):
                self._in_run("16s", f"{value}.bytes")
            case FixedSize(code):
                self._in_run(code, value)
            case LengthPrefixed(kind):
                self._sized(kind, value, nullable=nullable, compact=field.compact)
            case ArrayOf(element):
                self._array(element, value, field)
            case StructLayout() if nullable:
                self._nullable_struct(wire, value)
            case StructLayout():
                instance = self.local("m")
                self.line(f"{instance} = {value}")
                self.struct_fields(wire, instance)

    def _length(self, length: str, code: str, *, compact: bool, is_string: bool = False) -> None:
        """Write a length or count, -1 for null; a compact one is a varint and one higher."""
        if not compact:
            self._in_run(code, length)
            return
        count = self.local("n")
        self.end_run()
        self.line(f"{count} = {length} + 1")
        self._varint(count, "long_string_varint" if is_string else "unsigned_varint")

    def _varint(self, number: str, long_varint: str = "unsigned_varint") -> None:
        self.line(f"{self._push}(one_byte_varints[{number}] if {number} < 128 else {long_varint}({number}))")

    def _sized(self, kind: str, value: str, *, nullable: bool, compact: bool) -> None:
        content, length = self.local("s"), self.local("n")
        if kind == "string" and nullable:
            self.line(f"{content} = None if {value} is None else {value}.encode()")
        else:
            self.line(f"{content} = {value}{'.encode()' * (kind == 'string')}")
        size = f"records_size({content})" if kind == "records" else f"len({content})"
        self.line(f"{length} = -1 if {content} is None else {size}" if nullable else f"{length} = {size}")
        self._length(length, PREFIX_CODES[kind], compact=compact, is_string=kind == "string")
        self.end_run()
        present = f"if {content} is not None: " if nullable else ""
        self.line(f"{present}{self._push}({content})")

    def _array(self, element: Wire, value: str, field: FieldLayout) -> None:
        elements, count = self.local("a"), self.local("n")
        self.line(f"{elements} = {value}")
        self.line(
            f"{count} = -1 if {elements} is None else len({elements})"
            if field.nullable
            else f"{count} = len({elements})"
        )
        self._length(count, "i", compact=field.compact)
        self.end_run()
        match element:
            case FixedSize("16s"):
                self.line(f"if {count} > 0: {self._push}(b''.join([e.bytes for e in {elements}]))")
            case FixedSize(code):
                self.line(f"if {count} > 0: {self._push}(pack(f'>{{{count}}}{code}', *{elements}))")
            case _:
                each = self.local("e")
                with self.block(f"for {each} in {elements} or ():" if field.nullable else f"for {each} in {elements}:"):
                    if isinstance(element, StructLayout):
                        with self.block(f"if {each}.__class__ is EncodedStruct:"):
                            self.line(f"{self._push}({each}.data)")
                            self.line("continue")
                        self.struct_fields(element, each)
                    else:
                        self.value(element, each, field)

    def _nullable_struct(self, layout: StructLayout, value: str) -> None:
        """Add the code for a structure after a byte that is 1, or -1 alone for null."""
        instance = self.local("m")
        self.line(f"{instance} = {value}")
        with self.block(f"if {instance} is None:"):
            self._in_run("b", "-1")
        with self.block("else:"):
            self._in_run("b", "1")
            self.struct_fields(layout, instance)

    def _tagged_fields(self, layout: StructLayout, instance: str) -> None:
        """Add the code for the section of tagged fields (KIP-482): fields without their default, by rising tag."""
        self.end_run()
        tagged, count = self.local("tagged"), self.local("n")
        self.line(f"{tagged} = []")
        self.line(f"{count} = 0")
        for number, field in layout.tagged:
            value = f"{instance}.{field.name}"
            with self.block(f"if {self._differs(value, field.default)}:"), self._pieces_of_field() as pieces:
                self.value(field.wire, value, field)
                self.end_run()
                self.line(f"append_tagged_field({tagged}, {number}, {pieces})")
                self.line(f"{count} += 1")
        self._varint(count)
        self.line(f"{self._pieces} += {tagged}")

    @contextmanager
    def _pieces_of_field(self) -> Iterator[str]:
        """Collect the pieces of a field in a list of their own, since the field's size precedes them."""
        outer = self._pieces, self._push
        self._pieces, self._push = self.local("pieces"), self.local("push")
        self.line(f"{self._pieces} = []")
        self.line(f"{self._push} = {self._pieces}.append")
        yield self._pieces
        self._pieces, self._push = outer


def long_string_varint(length_and_one: int) -> bytes:
    """Encode the length of a compact string. Raises EncodeError for a length that Kafka's clients refuse."""
    if length_and_one > LONGEST_STRING + 1:
        raise EncodeError(f"a string of {length_and_one - 1} bytes, more than {LONGEST_STRING}")
    return encode_unsigned_varint(length_and_one)


def records_size(records: bytes | bytearray | memoryview | Part) -> int:
    """Return the size in bytes of a field of records on the wire."""
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else records.size


def append_tagged_field(section: list[bytes], tag: int, pieces: list[bytes]) -> None:
    """Add one field to a section of tagged fields: its tag, its size and its bytes."""
    section.append(encode_unsigned_varint(tag))
    section.append(encode_unsigned_varint(sum(map(len, pieces))))
    section.extend(pieces)


def not_carried(field: str, title: str) -> BrokerError:
    """Build the error for a value that the version cannot carry and that must not be dropped silently."""
    return BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"{title} has no {field}, which is not at its default")
