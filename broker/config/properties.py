"""The text format of ``java.util.Properties``, in which Kafka's configuration files are written."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*([=: \t\f])")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A value and the number, counted from 1, of its key's line."""

    value: str
    line: int


def parse_properties(text: str) -> dict[str, str]:
    """Return keys and values of a properties file; a key given twice keeps its last value, as in Java.

    Raises ``ValueError`` on a malformed ``\\u`` escape.
    """
    return {key: found.value for key, found in parse_numbered_properties(text).items()}


def parse_numbered_properties(text: str) -> dict[str, Property]:
    """Return values with the line number of each key. Raises ``ValueError`` that names the line."""
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        match = _KEY_END.search(line)
        key, rest = (line, "") if match is None else (line[: match.start(1)], line[match.start(1) :].lstrip(" \t\f"))
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        try:
            found[_unescaped(key)] = Property(_unescaped(rest), number)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield logical lines with the number of their first line: continuations joined, comments and blanks skipped."""
    pending, first = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        first = first if pending else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        if pending or line:
            yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_meaning, text)


def _meaning(match: re.Match[str]) -> str:
    code = match.group(1)
    if code == "u":
        raise ValueError("Malformed \\uxxxx encoding")
    if code[0] == "u" and len(code) == 5:
        return chr(int(code[1:], 16))
    return _NAMED_ESCAPES.get(code, code)
