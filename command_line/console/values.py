"""Keys and values as text: JSON, Avro, text, numbers or bytes. The bytes are hostile; templates escape the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .avro_schemas import AvroError, AvroSchemas
from .records import Excerpt

FORMATS = ("auto", "json", "avro", "text", "number", "hex")
LINE_CHARACTERS = 300
"""Most characters of a value in a table's row."""
NUMBER_SIZES = (1, 2, 4, 8)
HEX_WIDTH = 16

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
"""Characters that would hide text or change its direction."""
_WHITE_SPACE = re.compile(r"\s+")


class Shown(NamedTuple):
    """A key or a value as text: on one line, and laid out in lines."""

    kind: str
    line: str
    text: str
    note: str = ""
    """A remark about the bytes, such as that some were cut off."""


NULL = Shown("null", "null", "null")
EMPTY = Shown("empty", "(empty)", "(empty)")


class Presentation:
    """A presentation of the keys or the values of one topic in one format."""

    def __init__(self, format_name: str, topic: str, schemas: AvroSchemas, *, is_key: bool) -> None:
        self._format = format_name if format_name in FORMATS else FORMATS[0]
        self._topic = topic
        self._schemas = schemas
        self._is_key = is_key

    def show(self, excerpt: Excerpt | None) -> Shown:
        """Return the text of a key or a value."""
        if excerpt is None:
            return NULL
        if not excerpt.size_bytes:
            return EMPTY
        shown = self._forced(excerpt) if self._format != FORMATS[0] else self._guessed(excerpt)
        if excerpt.is_whole:
            return shown
        cut = f"the first {len(excerpt.data):,} of {excerpt.size_bytes:,} bytes"
        return shown._replace(note=f"{shown.note}; {cut}" if shown.note else cut)

    def _forced(self, excerpt: Excerpt) -> Shown:
        shown = _SHOWN_AS[self._format](excerpt.data) if self._format in _SHOWN_AS else None
        if self._format == "avro":
            shown = self._avro(excerpt)
        if shown is None:
            return show_bytes(excerpt.data)._replace(note=f"not {self._format}")
        return shown

    def _guessed(self, excerpt: Excerpt) -> Shown:
        data = excerpt.data
        if self._schemas.may_decode(data, self._topic, is_key=self._is_key):
            shown = self._avro(excerpt)
            if shown.kind == "avro":
                return shown
        if excerpt.is_whole and data.lstrip()[:1] in (b"{", b"["):
            as_json = show_json(data)
            if as_json is not None:
                return as_json
        return show_text(data, is_whole=excerpt.is_whole) or show_bytes(data)

    def _avro(self, excerpt: Excerpt) -> Shown:
        if not excerpt.is_whole:
            return show_bytes(excerpt.data)._replace(note="too long to decode as Avro")
        try:
            decoded = self._schemas.decode(excerpt.data, self._topic, is_key=self._is_key)
        except AvroError as error:
            return show_bytes(excerpt.data)._replace(note=str(error))
        laid_out = json.dumps(decoded.value, indent=2, ensure_ascii=False, default=str)
        return Shown(
            "avro",
            one_line(json.dumps(decoded.value, ensure_ascii=False, default=str)),
            laid_out,
            decoded.schema,
        )


def show_json(data: bytes) -> Shown | None:
    """Return JSON laid out in lines, or None for anything else."""
    try:
        text = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
        return Shown("json", one_line(data.decode()), text)
    except (ValueError, RecursionError):
        return None


def show_text(data: bytes, *, is_whole: bool = True) -> Shown | None:
    """Return UTF-8 text, or None for other bytes; an excerpt may end within a character."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    if any(ord(character) < 32 and character not in "\t\n\r" for character in text):
        return None
    return Shown("text", one_line(text), text)


def show_number(data: bytes) -> Shown | None:
    """Return the big-endian integer that Kafka's serializers write, or None for bytes of another size."""
    if len(data) not in NUMBER_SIZES:
        return None
    text = str(int.from_bytes(data, "big", signed=True))
    return Shown("number", text, text, f"int{8 * len(data)}")


def show_bytes(data: bytes) -> Shown:
    """Return bytes in hexadecimal, laid out with their offsets and ASCII characters."""
    lines = []
    for start in range(0, len(data), HEX_WIDTH):
        row = data[start : start + HEX_WIDTH]
        ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:06x}  {row.hex(' '):<{3 * HEX_WIDTH - 1}}  {ascii_text}")
    number = show_number(data)
    return Shown(
        "hex", data[: LINE_CHARACTERS // 3].hex(" "), "\n".join(lines), f"as a number {number.line}" if number else ""
    )


def visible(text: str) -> str:
    """Return text with invisible and direction-changing characters written as escapes."""
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = _WHITE_SPACE.sub(" ", text[: 2 * LINE_CHARACTERS]).strip()
    return line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + "…"


def _forced_text(data: bytes) -> Shown:
    text = data.decode("utf-8", "replace")
    return Shown("text", one_line(text), text)


_SHOWN_AS: Mapping[str, Callable[[bytes], Shown | None]] = {
    "json": show_json,
    "text": _forced_text,
    "number": show_number,
    "hex": show_bytes,
}
