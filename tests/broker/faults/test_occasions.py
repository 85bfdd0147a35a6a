"""The occasions at which a rule applies: counts, probability, schedule."""

from __future__ import annotations

import math

from gregor.broker.faults.occasions import RuleInForce
from gregor.broker.faults.rule_syntax import parse_rule


def in_force(text: str, name: str = "r") -> RuleInForce:
    rule = parse_rule(text)
    assert rule is not None
    return RuleInForce(name, text, rule, 100.0)


def pattern(text: str, count: int, *, step_s: float = 0.0, name: str = "r") -> str:
    """Return `x` for each match to which the rule applied, the first at second 0, then each `step_s` later."""
    rule = in_force(text, name)
    return "".join("x" if rule.strikes(100.0 + step_s * number) else "." for number in range(count))


def test_a_rule_without_occasions_applies_to_every_match() -> None:
    assert pattern("stall", 4) == "xxxx"


def test_first_limits_a_rule_to_the_first_matches() -> None:
    assert pattern("stall first=2", 4) == "xx.."
    assert pattern("stall first=0", 2) == ".."


def test_every_applies_a_rule_to_each_nth_match_and_first_limits_the_total() -> None:
    assert pattern("stall every=3", 7) == "..x..x."
    assert pattern("stall every=3 first=1", 7) == "..x...."


def test_a_schedule_is_counted_from_when_the_rule_was_set() -> None:
    assert pattern("stall from=2s until=4s", 7, step_s=1) == "..xx..."
    assert pattern("stall from=2s", 4, step_s=1) == "..xx"


def test_a_schedule_may_repeat() -> None:
    assert pattern("stall from=1s until=2s period=3s", 9, step_s=1) == ".x..x..x."


def test_the_remaining_time_of_a_rule_ends_with_its_schedule() -> None:
    assert in_force("stall").remaining_s(107.0) == math.inf
    assert in_force("stall until=4s").remaining_s(101.0) == 3.0
    assert in_force("stall until=4s").remaining_s(107.0) == 0.0
    assert in_force("stall from=1s until=2s period=3s").remaining_s(107.5) == 0.5


def test_requests_outside_the_schedule_are_not_counted_by_every() -> None:
    assert pattern("stall from=2s every=2", 6, step_s=1) == "...x.x"


def test_probability_is_reproducible_and_depends_on_the_seed_and_the_rule_name() -> None:
    text = "stall probability=0.3"
    first = pattern(text, 400)
    assert first == pattern(text, 400)
    assert first != pattern(f"{text} seed=1", 400)
    assert first != pattern(text, 400, name="other")
    assert 80 < first.count("x") < 160
    assert "x" not in pattern("stall probability=0", 50)


def test_delays_lie_between_their_bounds() -> None:
    assert in_force("delay=20ms").delay_s() == 0.02
    rule = in_force("delay=10ms..20ms")
    delays = [rule.delay_s() for _ in range(50)]
    assert 0.01 <= min(delays) < max(delays) <= 0.02
