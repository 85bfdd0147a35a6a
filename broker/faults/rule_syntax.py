"""A fault rule as text, such as ``api=Produce topic=orders* delay=20ms``, or as a JSON object with the same words."""

from __future__ import annotations

import difflib
import errno
import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ...protocol.apis import AnyApiKey, ApiKey, ControllerApiKey, GregorApiKey, api_name
from ...protocol.errors import ErrorCode
from .rule import Action, DiskOperation, FaultRule, Moment, Occasions

T = TypeVar("T")

OFF = "off"
"""The text of a rule without effect, which disables one of the same name from a file."""
LONGEST_TEXT = 4096
LONGEST_TIME_MS = 366 * 24 * 3_600_000.0
NEEDS_QUOTES = re.compile(r"""[\s"'\\]""")
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")

WORDS: Mapping[str, str] = {
    "api": "APIs by Kafka's names: api=Produce,Fetch",
    "topic": "topics, * for any text: topic=orders,payments-*",
    "partition": "partitions: partition=0,2",
    "client": "client ids, * for any text: client=analytics-*",
    "listener": "listeners by name: listener=INTERNAL",
    "broker": "requests sent by these brokers: broker=2,3",
    "isolate": "requests between these brokers and all others, both ways: isolate=3",
    "disk": "operations on files instead of requests: disk=append, disk=fsync or disk=read",
    "dir": "log directories, with disk: dir=/data/1",
    "delay": "wait before continuing: delay=20ms, or delay=10ms..50ms for a random time between",
    "error": "refuse with a Kafka error code: error=NOT_LEADER_OR_FOLLOWER; with disk: error=ENOSPC or error=EIO",
    "disconnect": "close the connection (a word without a value)",
    "stall": "never answer, and close the connection when the rule ends (a word without a value)",
    "truncate": "close the connection after this many bytes of the answer: truncate=10",
    "at": "at=request: before the request is executed; at=answer: after it, affecting the answer only",
    "every": "only each N-th time: every=10",
    "first": "only the first N times: first=3",
    "probability": "only with this probability: probability=0.05",
    "seed": "seed of the random choices: seed=7",
    "from": "start of the rule, as a time after it was set: from=30s",
    "until": "end of the rule, as a time after it was set: until=60s",
    "period": "repeat from and until each time this time has passed: period=5m",
}
"""The meaning of every word of a rule."""
ACTIONS = tuple(action.value for action in Action)
FLAGS = (Action.DISCONNECT.value, Action.STALL.value)
UNITS_MS = {"": 1.0, "ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0}
STORAGE_ERROR = "KAFKA_STORAGE_ERROR"
"""The error that clients get for a failing disk; as a disk error it stands for EIO."""
API_KEYS: Mapping[str, AnyApiKey] = {
    key.name.replace("_", "").lower(): key for keys in (ApiKey, ControllerApiKey, GregorApiKey) for key in keys
}


class FaultRuleError(ValueError):
    """An error for an invalid rule; its text is one line that says what to change."""


def parse_rule(text: str) -> FaultRule | None:
    """Return the rule in a text; None for `OFF`. Raises FaultRuleError."""
    if len(text) > LONGEST_TEXT:
        raise FaultRuleError(f"a rule is at most {LONGEST_TEXT} characters long")
    if text.strip() == OFF:
        return None
    return rule_of_words(_words_of_json(text) if text.lstrip().startswith("{") else _words_of_text(text))


def check_rule_name(name: str) -> None:
    """Raise FaultRuleError unless the name is valid for a rule."""
    if not NAME.fullmatch(name):
        raise FaultRuleError(f"a rule's name is 1 to 100 letters, digits, '.', '_' and '-', not {name[:100]!r}")


def words_of_mapping(values: Mapping[Any, Any]) -> dict[str, str]:
    """Return a rule's words from JSON or YAML: lists become commas, true a word without a value.

    Raises FaultRuleError.
    """
    words = {}
    for word, value in values.items():
        if value is False or value is None:
            continue
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, str | int | float) for part in parts):
            raise FaultRuleError(f"{word}: expected a word, a number or a list of them")
        words[str(word)] = "" if value is True else ",".join(str(part) for part in parts)
    return words


def rule_of_words(words: Mapping[str, str]) -> FaultRule:
    """Return the rule that consists of the words. Raises FaultRuleError."""
    for word in words:
        if word not in WORDS:
            raise FaultRuleError(f"unknown word {word!r}{_nearest(word, WORDS)}; a rule is made of {', '.join(WORDS)}")
        if (word in FLAGS) == bool(words[word]):
            raise FaultRuleError(f"{word} takes no value" if word in FLAGS else f"{word} needs a value")
    action = _action(words)
    disk = _value(words, "disk", _one_of(DiskOperation))
    _check_company(words, action, disk)
    rule = FaultRule(
        action,
        moment=_value(words, "at", _one_of(Moment)) or _usual_moment(action),
        delay_ms=_value(words, "delay", _delay_range) or (0.0, 0.0),
        error=(_value(words, "error", _error_code) if disk is None else None) or ErrorCode.NONE,
        errno=(_value(words, "error", _errno) if disk is not None else None) or 0,
        kept_bytes=_value(words, "truncate", _count) or 0,
        apis=frozenset(map(_api, _list(words, "api"))),
        topics=_list(words, "topic"),
        partitions=frozenset(map(_count, _list(words, "partition"))),
        clients=_list(words, "client"),
        listeners=_list(words, "listener"),
        brokers=frozenset(map(_count, _list(words, "broker"))),
        isolated=frozenset(map(_count, _list(words, "isolate"))),
        disk=disk,
        directories=_list(words, "dir"),
        occasions=_occasions(words),
    )
    if action is Action.TRUNCATE and rule.moment is Moment.REQUEST:
        raise FaultRuleError("truncate works on answers only: leave out at=request")
    return rule


def format_rule(rule: FaultRule) -> str:
    """Return the text that `parse_rule` parses to the same rule."""
    occasions = rule.occasions
    values: dict[str, object] = {
        "api": ",".join(sorted(api_name(api) for api in rule.apis)),
        "topic": ",".join(rule.topics),
        "partition": ",".join(map(str, sorted(rule.partitions))),
        "client": ",".join(rule.clients),
        "listener": ",".join(rule.listeners),
        "broker": ",".join(map(str, sorted(rule.brokers))),
        "isolate": ",".join(map(str, sorted(rule.isolated))),
        "disk": rule.disk.value if rule.disk else "",
        "dir": ",".join(rule.directories),
        **_action_words(rule),
        "at": rule.moment.value if rule.disk is None and rule.moment is not _usual_moment(rule.action) else "",
        "every": occasions.every if occasions.every != 1 else "",
        "first": "" if occasions.first is None else occasions.first,
        "probability": occasions.probability if occasions.probability != 1 else "",
        "seed": occasions.seed or "",
        "from": _time_text(occasions.from_ms) if occasions.from_ms else "",
        "until": "" if occasions.until_ms is None else _time_text(occasions.until_ms),
        "period": "" if occasions.period_ms is None else _time_text(occasions.period_ms),
    }
    words = [word if value is True else f"{word}={value}" for word, value in values.items() if value != ""]
    return join_words(words)


def join_words(words: Iterable[str]) -> str:
    """Return a rule's text from its words, with quotes around words that contain blanks or quotes."""
    return " ".join(shlex.quote(word) if NEEDS_QUOTES.search(word) else word for word in words)


def _action_words(rule: FaultRule) -> dict[str, object]:
    low_ms, high_ms = rule.delay_ms
    match rule.action:
        case Action.DELAY:
            return {"delay": _time_text(low_ms) + ("" if low_ms == high_ms else f"..{_time_text(high_ms)}")}
        case Action.ERROR:
            return {"error": errno.errorcode[rule.errno] if rule.errno else rule.error.name}
        case Action.TRUNCATE:
            return {"truncate": rule.kept_bytes}
        case _:
            return {rule.action.value: True}


# --- from text to words


def _words_of_text(text: str) -> dict[str, str]:
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise FaultRuleError(f"{str(error).lower()}: close every quote") from None
    words: dict[str, str] = {}
    for part in parts:
        word, equals, value = part.partition("=")
        if word in words:
            raise FaultRuleError(f"{word} is given twice: give several values as {word}=A,B")
        if equals and not value:
            raise FaultRuleError(f"{word} needs a value")
        words[word] = value
    return words


def _words_of_json(text: str) -> dict[str, str]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FaultRuleError(f"this begins as JSON does, but is not JSON: {error}") from None
    return words_of_mapping(values)


# --- combinations of words


def _action(words: Mapping[str, str]) -> Action:
    given = [word for word in ACTIONS if word in words]
    if len(given) != 1:
        said = f"not both {' and '.join(given)}" if given else "and this rule has none"
        raise FaultRuleError(f"a rule has one action of {', '.join(ACTIONS)}, {said}")
    return Action(given[0])


def _check_company(words: Mapping[str, str], action: Action, disk: DiskOperation | None) -> None:
    if disk is None:
        if "dir" in words:
            raise FaultRuleError("dir needs disk=append, disk=fsync or disk=read")
        return
    if action not in (Action.DELAY, Action.ERROR):
        raise FaultRuleError(f"with disk only delay and error can be used, not {action.value}")
    for word in ("api", "client", "listener", "broker", "isolate", "at"):
        if word in words:
            raise FaultRuleError(f"{word} is for requests and cannot be used with disk")


def _occasions(words: Mapping[str, str]) -> Occasions:
    every = _value(words, "every", _count)
    if every == 0:
        raise FaultRuleError("every=0: count from 1 on")
    probability = _value(words, "probability", _probability)
    occasions = Occasions(
        every=every or 1,
        probability=1.0 if probability is None else probability,
        seed=_value(words, "seed", _count) or 0,
        first=_value(words, "first", _count),
        from_ms=_value(words, "from", parse_time_ms) or 0.0,
        until_ms=_value(words, "until", parse_time_ms),
        period_ms=_value(words, "period", parse_time_ms),
    )
    if occasions.until_ms is not None and occasions.until_ms <= occasions.from_ms:
        raise FaultRuleError("until must be later than from")
    if occasions.period_ms is not None:
        if "from" not in words and "until" not in words:
            raise FaultRuleError("period repeats from and until: give one of them as well")
        if occasions.period_ms < (occasions.until_ms or occasions.from_ms) or not occasions.period_ms:
            raise FaultRuleError("period must not be shorter than from and until")
    return occasions


def _usual_moment(action: Action) -> Moment:
    return Moment.ANSWER if action in (Action.DELAY, Action.TRUNCATE) else Moment.REQUEST


# --- values of words


def _value(words: Mapping[str, str], word: str, parse: Callable[[str], T]) -> T | None:
    if word not in words:
        return None
    try:
        return parse(words[word])
    except FaultRuleError as error:
        raise FaultRuleError(f"{word}={words[word]}: {error}") from None


def _list(words: Mapping[str, str], word: str) -> tuple[str, ...]:
    if word not in words:
        return ()
    values = tuple(value.strip() for value in words[word].split(","))
    if not all(values):
        raise FaultRuleError(f"{word}={words[word]}: a value before or after a comma is missing")
    return values


def _one_of(choices: type[T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        try:
            return choices(text)  # type: ignore[call-arg]
        except ValueError:
            values = ", ".join(choice.value for choice in choices)  # type: ignore[attr-defined]
            raise FaultRuleError(f"expected one of {values}") from None

    return parse


def _api(text: str) -> AnyApiKey:
    key = API_KEYS.get(text.replace("_", "").lower())
    if key is None:
        names = [api_name(key) for key in API_KEYS.values()]
        raise FaultRuleError(f"api={text}: Kafka has no such API{_nearest(text, names)}")
    return key


def _error_code(text: str) -> ErrorCode:
    if text not in ErrorCode.__members__ or text == ErrorCode.NONE.name:
        raise FaultRuleError(f"Kafka has no such error code{_nearest(text, ErrorCode.__members__)}")
    return ErrorCode[text]


def _errno(text: str) -> int:
    if text == STORAGE_ERROR:
        return errno.EIO
    number = getattr(errno, text, None) if text.isupper() else None
    if not isinstance(number, int):
        raise FaultRuleError("expected the name of an errno, such as ENOSPC or EIO")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise FaultRuleError(f"expected a number of at most 10 digits, not {text!r}")
    return int(text)


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise FaultRuleError("expected a number from 0 to 1")
    return value


def parse_time_ms(text: str) -> float:
    """Return the milliseconds of a time such as 20ms, 1.5s, 2m or 1h. Raises FaultRuleError."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(ms|s|m|h|)", text, re.ASCII)
    if match is None or (time_ms := float(match[1]) * UNITS_MS[match[2]]) > LONGEST_TIME_MS:
        raise FaultRuleError("expected a time of at most a year, such as 20ms, 1.5s, 2m or 1h")
    return time_ms


def _delay_range(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    low_ms = parse_time_ms(low)
    high_ms = parse_time_ms(high) if dots else low_ms
    if high_ms < low_ms:
        raise FaultRuleError("the shorter delay must be first")
    return low_ms, high_ms


def _time_text(time_ms: float) -> str:
    text = f"{time_ms:.15f}".rstrip("0").rstrip(".")
    return f"{text}ms"


def _nearest(word: str, known: Mapping[str, Any] | list[str]) -> str:
    nearest = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""
