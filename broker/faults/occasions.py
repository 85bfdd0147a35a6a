"""The occasions of an active rule: counts, probability and schedule."""

from __future__ import annotations

import math
import random
import threading

import trio

from .rule import FaultRule

MS_PER_S = 1000


class RuleInForce:
    """An active rule with its start time and its counts; any thread may use it."""

    def __init__(self, name: str, text: str, rule: FaultRule, now_s: float) -> None:
        """Start the rule; `now_s` is a time of the monotonic clock that is also passed to `strikes`."""
        self.name = name
        self.text = text
        self.rule = rule
        self._since_s = now_s
        self._random = random.Random(f"{name} {rule.occasions.seed}")
        self._lock = threading.Lock()
        self._matches = 0
        self.has_ended = trio.Event()
        """Set when the rule is removed."""
        self.strike_count = 0
        """The number of injections."""

    def strikes(self, now_s: float) -> bool:
        """Return whether the rule applies to a matching request or disk operation now; each call counts as a match."""
        occasions = self.rule.occasions
        with self._lock:
            if not self._is_scheduled(now_s):
                return False
            self._matches += 1
            if self._matches % occasions.every:
                return False
            if occasions.probability < 1 and self._random.random() >= occasions.probability:
                return False
            if occasions.first is not None and self.strike_count >= occasions.first:
                return False
            self.strike_count += 1
            return True

    def remaining_s(self, now_s: float) -> float:
        """Return the remaining seconds of the present period, from `until`."""
        until_ms = self.rule.occasions.until_ms
        return math.inf if until_ms is None else max(0.0, (until_ms - self._age_ms(now_s)) / MS_PER_S)

    def delay_s(self) -> float:
        """Return the delay of this injection, in seconds."""
        low_ms, high_ms = self.rule.delay_ms
        return (low_ms if low_ms == high_ms else self._random.uniform(low_ms, high_ms)) / MS_PER_S

    def _is_scheduled(self, now_s: float) -> bool:
        occasions = self.rule.occasions
        age_ms = self._age_ms(now_s)
        return age_ms >= occasions.from_ms and (occasions.until_ms is None or age_ms < occasions.until_ms)

    def _age_ms(self, now_s: float) -> float:
        """Return the time since the rule, or its present period, started."""
        age_ms = (now_s - self._since_s) * MS_PER_S
        period_ms = self.rule.occasions.period_ms
        return age_ms if period_ms is None else age_ms % period_ms
