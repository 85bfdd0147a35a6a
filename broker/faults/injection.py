"""The active fault rules of a broker, for the code that serves requests or files."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from ...protocol.internal_topics import CLUSTER_METADATA
from ...storage.clock import Clock
from ...storage.disk.files import OsFiles
from .clock import MovableClock
from .disk import DiskPlace, FaultyFiles
from .occasions import RuleInForce
from .rule import Action, DiskOperation
from .rule_syntax import parse_rule

logger = logging.getLogger(__name__)


class FaultInjection:
    """A set of the active fault rules of one broker."""

    def __init__(self, clock: Clock, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """Move `self.clock` relative to `clock`, and count the time of schedules by `now_s`."""
        self.clock = MovableClock(clock)
        self.files = FaultyFiles(OsFiles(), self._strike_disk)
        self._now_s = now_s
        self._rules: dict[str, RuleInForce] = {}
        self._request_rules: tuple[RuleInForce, ...] = ()
        self._disk_rules: tuple[RuleInForce, ...] = ()
        self._apis: frozenset[int] | None = frozenset()
        self._strikes_of_the_past: Counter[str] = Counter()

    def take(self, texts: Mapping[str, str], clock_offset_ms: int) -> None:
        """Replace the active rules by these, given by name; rules that stay active keep their counts.

        Raises FaultRuleError.
        """
        rules = {}
        for name, text in sorted(texts.items()):
            known = self._rules.get(name)
            rule = parse_rule(text) if known is None or known.text != text else known.rule
            if known is not None and known.text == text:
                rules[name] = known
            elif rule is not None:
                rules[name] = RuleInForce(name, text, rule, self._now_s())
                logger.warning("fault rule %s is in force: %s", name, text)
        for name, known in self._rules.items():
            if rules.get(name) is not known:
                known.has_ended.set()
                self._strikes_of_the_past[name] += known.strike_count
                logger.warning("fault rule %s has ended after %d injections", name, known.strike_count)
        if clock_offset_ms != self.clock.offset_ms:
            logger.warning("this broker's clock is moved by %d ms", clock_offset_ms)
            self.clock.offset_ms = clock_offset_ms
        self._rules = rules
        self._request_rules = tuple(known for known in rules.values() if known.rule.disk is None)
        self._disk_rules = tuple(known for known in rules.values() if known.rule.disk is not None)
        apis = [known.rule.apis for known in self._request_rules]
        self._apis = frozenset().union(*apis) if all(apis) else None

    def strike_counts(self) -> Mapping[str, int]:
        """Return the number of injections of each rule since the start, including rules that have ended."""
        counts = Counter(self._strikes_of_the_past)
        for name, known in self._rules.items():
            counts[name] += known.strike_count
        return counts

    def concerns(self, api_key: int) -> bool:
        """Return whether any rule may match requests of this API."""
        return self._apis is None or api_key in self._apis

    def striking(self, matches: Callable[[RuleInForce], bool]) -> list[RuleInForce]:
        """Return the request rules that match and apply now, in the order of their names."""
        now_s = self._now_s()
        return [known for known in self._request_rules if matches(known) and known.strikes(now_s)]

    def remaining_s(self, known: RuleInForce) -> float:
        """Return the remaining seconds of a rule's present period, if it is not removed before."""
        return known.remaining_s(self._now_s())

    def _strike_disk(self, operation: DiskOperation, place: DiskPlace) -> None:
        if not self._disk_rules:
            return
        now_s = self._now_s()
        for known in self._matching_disk_rules(operation, place):
            if not known.strikes(now_s):
                continue
            if known.rule.action is Action.DELAY:
                time.sleep(known.delay_s())
            else:
                reason = os.strerror(known.rule.errno)
                raise OSError(known.rule.errno, f"{reason} (fault rule {known.name})")

    def _matching_disk_rules(self, operation: DiskOperation, place: DiskPlace) -> Iterator[RuleInForce]:
        for known in self._disk_rules:
            rule = known.rule
            if rule.disk is not operation:
                continue
            if rule.directories and place.directory not in map(os.path.abspath, rule.directories):
                continue
            # Exempt the metadata log, which stores the rules: else a rule that fails all writes could never be removed.
            if place.topic == CLUSTER_METADATA and not rule.topics:
                continue
            if not rule.names_places or rule.strikes_place(place.topic, place.partition):
                yield known
