"""Files of keys and values in the format of ``java.util.Properties``: `server.properties`, `meta.properties`, settings.

The package javaproperties reads the format; this module adds the numbers of lines, which it does not tell.
"""

from __future__ import annotations

import re
from io import StringIO
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")
_PLAIN_LINE = re.compile(r"[#!].*|([\w.-]+)=((?:[^\s\\][^\\]*)?)|", re.ASCII)
"""A comment, ``key=value`` without blanks around the key and without backslashes, or nothing."""


class Property(NamedTuple):
    """A value and the number, counted from 1, of the line on which its key begins."""

    value: str
    line: int


def parse_properties(text: str) -> dict[str, str]:
    """Return keys and values of a properties file; a key given twice keeps its last value, as in Java.

    Raises ``ValueError`` on a malformed ``\\u`` escape.
    """
    return {key: found.value for key, found in parse_numbered_properties(text).items()}


def parse_numbered_properties(text: str) -> dict[str, Property]:
    """Return values with the line number of each key. Raises ``ValueError`` that names the line."""
    plain = _parse_plain(text)
    if plain is not None:
        return plain
    # This package imports XML and HTTP, a twelfth of a broker's start.
    import javaproperties

    found: dict[str, Property] = {}
    line = 1
    try:
        for element in javaproperties.parse(StringIO(text, newline="")):
            if isinstance(element, javaproperties.KeyValue):
                found[element.key] = Property(element.value, line)
            line += len(_LINE_END.findall(element.source))
    except javaproperties.InvalidUEscapeError:
        raise ValueError(f"line {line}: Malformed \\uxxxx encoding") from None
    return found


def _parse_plain(text: str) -> dict[str, Property] | None:
    """Return the values of a file whose lines are all plain, which most files are; None for any other file."""
    found: dict[str, Property] = {}
    for number, line in enumerate(_LINE_END.split(text), 1):
        match = _PLAIN_LINE.fullmatch(line)
        if match is None:
            return None
        if match[1] is not None:
            found[match[1]] = Property(match[2], number)
    return found
