"""Subscriptions by regular expression, matched by the broker (ConsumerGroupHeartbeat v1, KIP-848).

Patterns come from clients, and the event loop waits for no backtracking: they are read as RE2 reads them, which Kafka
uses, and matched by partial derivatives (Antimirov), in time that grows with the length of a name and the size of a
pattern, both bounded. The alphabet is that of topic names, which makes every class of characters a small set.

Supported: literals, `.`, `[...]` with ranges, negation and `[:names:]`, `\\d \\w \\s` and their negations, groups, `|`,
`* + ? {n,m}` (greedy or not is all the same here), `^ $ \\A \\z`, and a leading `(?i)`. A topic matches as a whole.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""Characters of topic names (Kafka `Topic.LEGAL_CHARS`)."""
SIZE_LIMIT: Final = 1000
"""Most characters, classes and repetitions of a pattern once its counted repetitions are written out."""
DEPTH_LIMIT: Final = 50
"""Deepest nesting of groups."""
REMEMBERED_STEPS: Final = 10_000

_NAMED: Final = {
    "alpha": frozenset(string.ascii_letters),
    "digit": frozenset(string.digits),
    "alnum": frozenset(string.ascii_letters + string.digits),
    "lower": frozenset(string.ascii_lowercase),
    "upper": frozenset(string.ascii_uppercase),
    "punct": frozenset("._-"),
    "word": frozenset(string.ascii_letters + string.digits + "_"),
    "space": frozenset[str](),
}
_ESCAPED: Final = {"d": _NAMED["digit"], "w": _NAMED["word"], "s": _NAMED["space"]}


class PatternError(ValueError):
    """A pattern that cannot be read; the text says why."""


@dataclass(frozen=True)
class _Character:
    """One character out of a set."""

    allowed: frozenset[str]


@dataclass(frozen=True)
class _Start:
    """Nothing, at the start of the name."""


@dataclass(frozen=True)
class _End:
    """Nothing, at the end of the name."""


@dataclass(frozen=True)
class _Sequence:
    """One after the other."""

    parts: tuple[_Node, ...]


@dataclass(frozen=True)
class _Choice:
    """One of several."""

    options: tuple[_Node, ...]


@dataclass(frozen=True)
class _Repeated:
    """Any number of times."""

    node: _Node


_Node: TypeAlias = _Character | _Start | _End | _Sequence | _Choice | _Repeated
_NOTHING: Final = _Sequence(())


class TopicPattern:
    """A pattern that names are matched against. Raises PatternError."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._root = _Parser(source).parse()
        self._steps: dict[tuple[frozenset[_Node], str], frozenset[_Node]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name fits."""
        if not name:
            return _is_optional(self._root, is_start=True, is_end=True)
        states = self._first.get(name[0], frozenset())
        for character in name[1:]:
            if not states:
                return False
            states = self._step(states, character)
        return any(_is_optional(state, is_start=False, is_end=True) for state in states)

    @cached_property
    def _first(self) -> dict[str, frozenset[_Node]]:
        return {character: frozenset(_rests(self._root, character, is_start=True)) for character in ALPHABET}

    def _step(self, states: frozenset[_Node], character: str) -> frozenset[_Node]:
        known = self._steps.get((states, character))
        if known is None:
            known = frozenset(rest for state in states for rest in _rests(state, character, is_start=False))
            if len(self._steps) >= REMEMBERED_STEPS:
                self._steps.clear()
            self._steps[states, character] = known
        return known


def _is_optional(node: _Node, *, is_start: bool, is_end: bool) -> bool:
    """Whether the node is satisfied by no character here."""
    match node:
        case _Character():
            return False
        case _Start():
            return is_start
        case _End():
            return is_end
        case _Sequence(parts):
            return all(_is_optional(part, is_start=is_start, is_end=is_end) for part in parts)
        case _Choice(options):
            return any(_is_optional(option, is_start=is_start, is_end=is_end) for option in options)
        case _Repeated():
            return True


def _rests(node: _Node, character: str, *, is_start: bool) -> Iterator[_Node]:
    """What may remain of the node to be matched after this character: its partial derivatives."""
    match node:
        case _Character(allowed):
            if character in allowed:
                yield _NOTHING
        case _Sequence(parts):
            for index, part in enumerate(parts):
                for rest in _rests(part, character, is_start=is_start):
                    yield _sequence(rest, *parts[index + 1 :])
                if not _is_optional(part, is_start=is_start, is_end=False):
                    return
        case _Choice(options):
            for option in options:
                yield from _rests(option, character, is_start=is_start)
        case _Repeated(repeated):
            for rest in _rests(repeated, character, is_start=is_start):
                yield _sequence(rest, node)


def _sequence(*nodes: _Node) -> _Node:
    parts = [part for node in nodes for part in (node.parts if isinstance(node, _Sequence) else (node,))]
    return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))


class _Parser:
    """Reads one pattern, from left to right."""

    def __init__(self, source: str) -> None:
        self._ignores_case = source.startswith("(?i)")
        self._source = source.removeprefix("(?i)")
        self._position = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice()
        if self._position < len(self._source):
            raise PatternError("unexpected )")
        return node

    # --- characters of the pattern

    def _next(self) -> str:
        """The next character; the empty text at the end."""
        return self._source[self._position : self._position + 1]

    def _take(self) -> str:
        character = self._next()
        if not character:
            raise PatternError("it ends too early")
        self._position += 1
        return character

    def _took(self, text: str) -> bool:
        found = self._source.startswith(text, self._position)
        if found:
            self._position += len(text)
        return found

    # --- structure

    def _choice(self) -> _Node:
        options = [self._branch()]
        while self._took("|"):
            options.append(self._branch())
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _branch(self) -> _Node:
        parts: list[_Node] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repetition())
        branch = _sequence(*parts)
        if _size(branch) > SIZE_LIMIT:
            raise PatternError("it is too large")
        return branch

    def _repetition(self) -> _Node:
        node = self._atom()
        while self._next() in ("*", "+", "?", "{") and self._next():
            bounds = self._bounds()
            if bounds is None:
                return _sequence(node, self._character("{"))
            node = _repeat(node, *bounds)
            self._took("?")
        return node

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often, at least and at most; None if a brace is just a brace (then it has been read)."""
        match self._take():
            case "*":
                return 0, None
            case "+":
                return 1, None
            case "?":
                return 0, 1
        end = self._source.find("}", self._position)
        least, comma, most = self._source[self._position : end if end >= 0 else None].partition(",")
        if end < 0 or not least.isdecimal() or (most and not most.isdecimal()):
            return None
        self._position = end + 1
        highest = (int(most) if most else None) if comma else int(least)
        if int(least) > SIZE_LIMIT or (highest is not None and not int(least) <= highest <= SIZE_LIMIT):
            raise PatternError("a repetition is out of bounds")
        return int(least), highest

    def _atom(self) -> _Node:
        match self._take():
            case "(":
                return self._group()
            case "[":
                return _Character(self._class())
            case ".":
                return _Character(ALPHABET)
            case "^":
                return _Start()
            case "$":
                return _End()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise PatternError("there is nothing to repeat")
            case literal:
                return self._character(literal)

    def _group(self) -> _Node:
        if self._took("?") and not self._took(":"):
            raise PatternError("groups beginning with (? are not supported, but for (?: and a leading (?i)")
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise PatternError("groups are nested too deeply")
        node = self._choice()
        self._depth -= 1
        if not self._took(")"):
            raise PatternError("a group does not end")
        return node

    # --- sets of characters

    def _character(self, literal: str) -> _Character:
        return _Character(self._with_case(frozenset(literal)))

    def _with_case(self, characters: frozenset[str]) -> frozenset[str]:
        if self._ignores_case:
            characters = frozenset("".join(characters).lower() + "".join(characters).upper())
        return characters & ALPHABET

    def _escape(self) -> _Node:
        escaped = self._take()
        if escaped == "A":
            return _Start()
        if escaped == "z":
            return _End()
        return _Character(self._escaped_set(escaped))

    def _escaped_set(self, escaped: str) -> frozenset[str]:
        if escaped.lower() in _ESCAPED:
            characters = _ESCAPED[escaped.lower()]
            return ALPHABET - characters if escaped.isupper() else characters
        if escaped.isalnum():
            raise PatternError(f"unknown escape \\{escaped}")
        return self._with_case(frozenset(escaped))

    def _class(self) -> frozenset[str]:
        is_negated = self._took("^")
        characters: set[str] = set()
        is_first = True
        while is_first or self._next() != "]":
            is_first = False
            characters |= self._class_item()
        self._take()
        allowed = self._with_case(frozenset(characters))
        return ALPHABET - allowed if is_negated else allowed

    def _class_item(self) -> frozenset[str]:
        if self._took("[:"):
            name, separator, _ = self._source[self._position :].partition(":]")
            self._position += len(name) + len(separator)
            if name.removeprefix("^") not in _NAMED:
                raise PatternError(f"unknown class [:{name}:]")
            characters = _NAMED[name.removeprefix("^")]
            return ALPHABET - characters if name.startswith("^") else characters
        first = self._take()
        if first == "\\":
            return self._escaped_set(self._take())
        if self._next() != "-" or self._source[self._position + 1 : self._position + 2] in ("]", ""):
            return frozenset(first)
        self._take()
        last = self._take()
        if last == "\\":
            last = self._take()
        if last < first:
            raise PatternError(f"the range {first}-{last} is empty")
        return frozenset(character for character in ALPHABET if first <= character <= last)


def _repeat(node: _Node, least: int, most: int | None) -> _Node:
    if _size(node) * max(least, most or 0, 1) > SIZE_LIMIT:
        raise PatternError("it is too large")
    if most is None:
        return _sequence(*[node] * least, _Repeated(node))
    return _sequence(*[node] * least, *[_Choice((node, _NOTHING))] * (most - least))


def _size(node: _Node) -> int:
    match node:
        case _Sequence(nodes) | _Choice(nodes):
            return 1 + sum(map(_size, nodes))
        case _Repeated(repeated):
            return 1 + _size(repeated)
        case _:
            return 1
