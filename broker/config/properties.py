"""The text format of ``java.util.Properties``, in which Kafka's configuration files are written."""

import re
from collections.abc import Iterator

_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*([=: \t\f])")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a properties file; a key given twice keeps its last value, as in Java.

    Raises ``ValueError`` on a malformed ``\\u`` escape.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY_END.search(line)
        if match is None:
            found[_unescaped(line)] = ""
            continue
        key, rest = line[: match.start(1)], line[match.start(1) :].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        found[_unescaped(key)] = _unescaped(rest)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with continuations joined, without comments and blank ones."""
    pending = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        if pending or line:
            yield pending + line
        pending = ""
    if pending:
        yield pending


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
