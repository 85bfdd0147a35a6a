"""Fault rules as text and JSON: valid rules, refused rules and their messages."""

from __future__ import annotations

import contextlib
import errno
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.broker.faults.rule import Action, DiskOperation, FaultRule, Moment, Occasions, fits
from gregor.broker.faults.rule_syntax import (
    API_KEYS,
    LONGEST_TEXT,
    WORDS,
    FaultRuleError,
    check_rule_name,
    format_rule,
    parse_rule,
    rule_of_words,
    words_of_mapping,
)
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode

NAMES = st.text(st.characters(exclude_characters=",", exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=12)
TIMES_MS = st.floats(0, 3_600_000, allow_subnormal=False).map(lambda ms: round(ms, 3))


@st.composite
def occasions(draw: st.DrawFn) -> Occasions:
    start, length, pause = draw(st.tuples(TIMES_MS, TIMES_MS, TIMES_MS))
    until = draw(st.none() | st.just(round(start + length + 1, 3)))
    period = None if until is None else draw(st.none() | st.just(round(until + pause, 3)))
    return Occasions(
        every=draw(st.integers(1, 1000)),
        probability=draw(st.floats(0, 1, allow_subnormal=False)),
        seed=draw(st.integers(0, 2**32)),
        first=draw(st.none() | st.integers(0, 100)),
        from_ms=start,
        until_ms=until,
        period_ms=period,
    )


@st.composite
def rules(draw: st.DrawFn) -> FaultRule:
    disk = draw(st.none() | st.sampled_from(DiskOperation))
    action = draw(st.sampled_from(Action if disk is None else (Action.DELAY, Action.ERROR)))
    low = draw(TIMES_MS)
    usual = Moment.ANSWER if action in (Action.DELAY, Action.TRUNCATE) else Moment.REQUEST
    may_choose = disk is None and action is not Action.TRUNCATE
    request_names = st.lists(NAMES, max_size=3).map(tuple) if disk is None else st.just(())
    return FaultRule(
        action,
        moment=draw(st.sampled_from(Moment)) if may_choose else usual,
        delay_ms=(low, round(low + draw(TIMES_MS), 3)) if action is Action.DELAY else (0.0, 0.0),
        error=draw(st.sampled_from(ErrorCode).filter(bool)) if action is Action.ERROR and not disk else ErrorCode.NONE,
        errno=draw(st.sampled_from([errno.ENOSPC, errno.EIO])) if action is Action.ERROR and disk else 0,
        kept_bytes=draw(st.integers(0, 2**31)) if action is Action.TRUNCATE else 0,
        apis=draw(st.frozensets(st.sampled_from(ApiKey), max_size=3)) if disk is None else frozenset(),
        topics=draw(st.lists(NAMES, max_size=3).map(tuple)),
        partitions=draw(st.frozensets(st.integers(0, 1000), max_size=3)),
        clients=draw(request_names),
        listeners=draw(request_names),
        brokers=draw(st.frozensets(st.integers(0, 100), max_size=3)) if disk is None else frozenset(),
        isolated=draw(st.frozensets(st.integers(0, 100), max_size=3)) if disk is None else frozenset(),
        disk=disk,
        directories=draw(st.lists(NAMES, max_size=2).map(tuple)) if disk else (),
        occasions=draw(occasions()),
    )


@settings(max_examples=150)
@given(rules())
def test_a_formatted_rule_is_parsed_to_the_same_rule(rule: FaultRule) -> None:
    assert parse_rule(format_rule(rule)) == rule


@settings(max_examples=200)
@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(st.sampled_from([f"{word}={v}" for word in WORDS for v in ("1", "x")] + list(WORDS)), max_size=6).map(
            " ".join
        ),
    )
)
def test_any_text_is_a_rule_or_refused_in_one_line(text: str) -> None:
    refusal = None
    try:
        parse_rule(text)
    except FaultRuleError as error:
        refusal = str(error)
    assert refusal is None or "\n" not in refusal.replace(text, "")


@settings(max_examples=100)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(WORDS)), inner, max_size=3),
    )
)
def test_any_json_is_a_rule_or_refused(value: object) -> None:
    with contextlib.suppress(FaultRuleError):
        parse_rule(json.dumps({"api": "Produce", "delay": value}))


def test_a_delay_rule_for_produce_requests_of_some_topics_is_parsed() -> None:
    assert parse_rule("api=Produce topic=orders,pay-* delay=20ms") == FaultRule(
        Action.DELAY,
        moment=Moment.ANSWER,
        delay_ms=(20.0, 20.0),
        apis=frozenset({ApiKey.PRODUCE}),
        topics=("orders", "pay-*"),
    )


def test_json_says_the_same_as_text() -> None:
    as_json = (
        '{"api": ["Produce", "fetch"], "partition": [0, 2], "disconnect": true, "probability": 0.5, "stall": false}'
    )
    assert parse_rule(as_json) == parse_rule("api=Produce,Fetch partition=0,2 disconnect probability=0.5")


def test_off_is_no_rule() -> None:
    assert parse_rule(" off ") is None


@pytest.mark.parametrize("name", ["OFFSET_COMMIT", "OffsetCommit", "offsetcommit", "offset_commit"])
def test_apis_may_be_spelled_in_any_way(name: str) -> None:
    rule = parse_rule(f"api={name} stall")
    assert rule is not None
    assert rule.apis == {ApiKey.OFFSET_COMMIT}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a rule has one action of delay, error, disconnect, stall, truncate, and this rule has none"),
        ("delay=1ms stall", "not both delay and stall"),
        ("dely=1ms", "unknown word 'dely'; did you mean delay?"),
        ("api=Produse stall", "api=Produse: Kafka has no such API; did you mean Produce?"),
        ("error=NOT_LEADER", "did you mean NOT_LEADER_OR_FOLLOWER?"),
        ("error=NONE", "Kafka has no such error code"),
        ("delay", "delay needs a value"),
        ("delay=", "delay needs a value"),
        ("stall=1", "stall takes no value"),
        ("delay=soon", "delay=soon: expected a time of at most a year, such as 20ms, 1.5s, 2m or 1h"),
        ("delay=9000000h", "at most a year"),
        ("delay=20ms..10ms", "the shorter delay must be first"),
        ("truncate=-1", "truncate=-1: expected a number"),
        ("truncate=1 at=request", "truncate works on answers only"),
        ("stall at=noon", "expected one of request, answer"),
        ("stall every=0", "count from 1 on"),
        ("stall probability=2", "expected a number from 0 to 1"),
        ("stall probability=nan", "expected a number from 0 to 1"),
        ("stall from=2s until=1s", "until must be later than from"),
        ("stall period=1s", "period repeats from and until"),
        ("stall until=2s period=1s", "period must not be shorter"),
        ("stall api=Produce api=Fetch", "api is given twice"),
        ("stall topic=a,,b", "a value before or after a comma is missing"),
        ("stall topic='a", "close every quote"),
        ("disk=append stall", "with disk only delay and error can be used, not stall"),
        ("disk=write delay=1ms", "expected one of append, fsync, read"),
        ("disk=append error=NOT_LEADER_OR_FOLLOWER", "expected the name of an errno"),
        ("disk=append error=errorcode", "expected the name of an errno"),
        ("disk=append delay=1ms api=Produce", "api is for requests"),
        ("disk=append delay=1ms isolate=1", "isolate is for requests"),
        ("delay=1ms dir=/data", "dir needs disk=append"),
        ('{"delay": ', "begins as JSON does"),
        ('{"delay": {}}', "delay: expected a word, a number or a list"),
        ('{"a":' + "[" * 3000, "begins as JSON does"),
        ("x" * (LONGEST_TEXT + 1), "at most 4096 characters"),
    ],
)
def test_errors_of_rules_name_the_mistake(text: str, says: str) -> None:
    with pytest.raises(FaultRuleError) as refusal:
        parse_rule(text)
    assert says in str(refusal.value)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 101, "ä"])
def test_invalid_rule_names_are_refused(name: str) -> None:
    with pytest.raises(FaultRuleError):
        check_rule_name(name)


def test_every_api_can_be_named() -> None:
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.CONSUMER_GROUP_HEARTBEAT} <= set(API_KEYS.values())


def test_a_rule_in_yaml_equals_the_same_rule_as_text() -> None:
    assert rule_of_words(words_of_mapping({"delay": 20, "partition": [1, 2]})) == parse_rule("delay=20ms partition=1,2")


def test_only_a_star_is_a_wildcard_in_name_patterns() -> None:
    assert fits(("a*c",), "abbc")
    assert fits(("x", "*"), "anything\nat all")
    assert not fits(("a.c",), "abc")
    assert not fits(("a*c",), "abcd")
