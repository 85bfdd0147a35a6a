"""Patterns over topic names: the language of RE2, full matches, and no pattern that takes the event loop."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from gregor.broker.coordinators.groups import current_topics
from gregor.broker.coordinators.groups.current_topics import REMEMBERED_PATTERNS, CurrentTopics
from gregor.broker.coordinators.groups.topic_patterns import LONGEST_PATTERN, PatternError, check_pattern, compiled
from gregor.protocol.errors import BrokerError, ErrorCode

names = st.text("ab1.-_A", max_size=6)
atoms = st.sampled_from(["a", "b", "1", r"\.", ".", "[ab]", "[^a]", "[a-b1]", r"\d", r"\w", r"[\d_-]", "^", "$", "A"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("({})".format, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("{}{}".format, inner, inner),
        st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?"])),
    ),
    max_leaves=8,
)


def matches(pattern: str, name: str) -> bool:
    return compiled(pattern).fullmatch(name.encode()) is not None


@given(patterns, names)
def test_subscription_patterns_match_the_names_that_python_matches(pattern: str, name: str) -> None:
    assert matches(pattern, name) == (re.fullmatch(pattern, name) is not None)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("logs.*", ["logs", "logs.a"], ["log", "my-logs"]),
        ("^logs-[0-9]{1,3}$", ["logs-1", "logs-123"], ["logs-", "logs-1234", "xlogs-1"]),
        ("(^foo$|^bar$)", ["foo", "bar"], ["foobar", ""]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("[[:alpha:]]+", ["abc"], ["a1"]),
        (r"a{b", ["a{b"], ["ab"]),
        ("", [""], ["a"]),
        ("x^y", [], ["xy", "x^y"]),
        (r"\Aab\z", ["ab"], ["b"]),
        ("[]a]", ["a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("(?P<n>a)", ["a"], ["b"]),
    ],
)
def test_subscription_patterns_match_the_example_names(pattern: str, matching: list[str], others: list[str]) -> None:
    assert all(matches(pattern, name) for name in matching)
    assert not any(matches(pattern, name) for name in others)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[a",
        "[b-a]",
        "*a",
        "a{3,2}",
        r"\q",
        "\\",
        r"(a)\1",
        "(?=a)",
        "a{1001}",
        "(a{100}){100}",
        "[[:x:]]",
        "\ud800",
        "(\\pL{30}){30}",
        "a" * (LONGEST_PATTERN + 1),
    ],
)
def test_patterns_that_re2_cannot_parse_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compiled(pattern)
    with pytest.raises(BrokerError) as refused:
        check_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_without_google_re2_subscription_patterns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(PatternError, match="lacks the package google-re2"):
        compiled("a")


# --- many topics


SLOW = "([ab]?){990}c?"
"""Two milliseconds for a name of 249 characters: its states do not fit into re2's memory."""


@pytest.fixture
async def known_topics(bench: Any) -> Any:
    return bench.known_topics


@pytest.fixture
async def many(known_topics: Any) -> Any:
    for number in range(500):
        known_topics.add(f"{number:0249b}".replace("0", "a").replace("1", "b"), 1)
    return known_topics


@pytest.mark.slow
async def test_the_event_loop_turns_while_a_slow_pattern_is_matched(many: Any) -> None:
    topics = CurrentTopics(many)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        assert topics.matching(SLOW) is None, "the names are matched in several turns of the event loop"
        await topics.match([SLOW])
        nursery.cancel_scope.cancel()
    assert topics.matching(SLOW) == frozenset(many.topics)
    assert turns > 100


@pytest.mark.slow
async def test_a_quick_pattern_does_not_wait_for_a_slow_one(many: Any) -> None:
    topics = CurrentTopics(many)
    order = []

    async def match(pattern: str) -> None:
        await topics.match([pattern])
        order.append(pattern)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(match, SLOW)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(match, "a.*")
    assert order == ["a.*", SLOW]


@pytest.mark.slow
async def test_topics_created_and_deleted_during_matching_are_taken_into_account(many: Any) -> None:
    topics = CurrentTopics(many)
    names = list(many.topics)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(topics.match, [SLOW])
        nursery.start_soon(topics.match, [SLOW])
        await trio.testing.wait_all_tasks_blocked()
        for gone in (names[0], names[-1]):
            del many.topics[gone]
        many.add("a", 1)
        many.add("x", 1)
    assert topics.matching(SLOW) == frozenset({*names[1:-1], "a"})


async def test_only_new_names_are_matched(many: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = CurrentTopics(many)
    await topics.match(["a+"])
    looked_at: list[str] = []

    def spy(pattern: Any, names: list[str], longest_s: float) -> tuple[int, list[str]]:
        looked_at.extend(names)
        return len(names), [name for name in names if pattern.fullmatch(name.encode())]

    monkeypatch.setattr(current_topics, "matching_names", spy)
    many.add("aaa", 1)
    many.changes += 1
    assert topics.matching("a+") == frozenset({"aaa", "a" * 249})
    assert looked_at == ["aaa"]


async def test_the_memory_of_patterns_is_bounded(known_topics: Any) -> None:
    known_topics.add("t", 1)
    topics = CurrentTopics(known_topics)
    await topics.match([f"t|{number}" for number in range(REMEMBERED_PATTERNS + 10)])
    assert topics.matching("t|0") == frozenset({"t"})
    assert len(topics._matches) <= REMEMBERED_PATTERNS


async def test_a_pattern_that_took_minutes_in_an_earlier_engine_is_matched(known_topics: Any) -> None:
    """The pattern `(a?){300}` took an earlier regular expression engine of Gregor minutes."""
    for number in range(1000):
        known_topics.add("a" * 20 + str(number), 1)
    check_pattern("(a?){300}")
    topics = CurrentTopics(known_topics)
    await topics.match(["(a?){300}", "(a?){300}[0-9]"])
    assert len(topics.matching("(a?){300}[0-9]") or ()) == 10
