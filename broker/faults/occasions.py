"""Whether it is a rule's turn: counts, chance and schedule of one rule in force."""

from __future__ import annotations

import math
import random
import threading

import trio

from .rule import FaultRule

MS_PER_S = 1000


class RuleInForce:
    """A rule, since when it has been in force, and how often it was asked. Any thread may ask."""

    def __init__(self, name: str, text: str, rule: FaultRule, now_s: float) -> None:
        """`now_s` is any clock that only goes forward, the same that `strikes` is given."""
        self.name = name
        self.text = text
        self.rule = rule
        self._since_s = now_s
        self._random = random.Random(f"{name} {rule.occasions.seed}")
        self._lock = threading.Lock()
        self._matches = 0
        self.has_ended = trio.Event()
        """Set by whoever takes the rule back."""
        self.strike_count = 0
        """How often it has struck."""

    def strikes(self, now_s: float) -> bool:
        """Whether it strikes the request or disk operation that matches it now; each call counts as a match."""
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
        """How long its present turn still lasts, by `until`."""
        until_ms = self.rule.occasions.until_ms
        return math.inf if until_ms is None else max(0.0, (until_ms - self._age_ms(now_s)) / MS_PER_S)

    def delay_s(self) -> float:
        """How long to wait this time."""
        low_ms, high_ms = self.rule.delay_ms
        return (low_ms if low_ms == high_ms else self._random.uniform(low_ms, high_ms)) / MS_PER_S

    def _is_scheduled(self, now_s: float) -> bool:
        occasions = self.rule.occasions
        age_ms = self._age_ms(now_s)
        return age_ms >= occasions.from_ms and (occasions.until_ms is None or age_ms < occasions.until_ms)

    def _age_ms(self, now_s: float) -> float:
        """Since when it has been in force, or since when its present period lasts."""
        age_ms = (now_s - self._since_s) * MS_PER_S
        period_ms = self.rule.occasions.period_ms
        return age_ms if period_ms is None else age_ms % period_ms
