"""The fault rules of a broker that are in force, for those who ask on behalf of a request or a file."""

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
    """What goes wrong in one broker on purpose."""

    def __init__(self, clock: Clock, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """`clock` is what `self.clock` moves away from; `now_s` is what schedules count by."""
        self.clock = MovableClock(clock)
        self.files = FaultyFiles(OsFiles(), self._strike_disk)
        self._now_s = now_s
        self._rules: dict[str, RuleInForce] = {}
        self._request_rules: tuple[RuleInForce, ...] = ()
        self._disk_rules: tuple[RuleInForce, ...] = ()
        self._apis: frozenset[int] | None = frozenset()
        self._strikes_of_the_past: Counter[str] = Counter()

    def take(self, texts: Mapping[str, str], clock_offset_ms: int) -> None:
        """Let these rules, by name, and no others be in force from now on; those that were so before go on counting.

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
                logger.warning("fault rule %s has ended after %d strikes", name, known.strike_count)
        if clock_offset_ms != self.clock.offset_ms:
            logger.warning("this broker's clock is moved by %d ms", clock_offset_ms)
            self.clock.offset_ms = clock_offset_ms
        self._rules = rules
        self._request_rules = tuple(known for known in rules.values() if known.rule.disk is None)
        self._disk_rules = tuple(known for known in rules.values() if known.rule.disk is not None)
        apis = [known.rule.apis for known in self._request_rules]
        self._apis = frozenset().union(*apis) if all(apis) else None

    def strike_counts(self) -> Mapping[str, int]:
        """How often each rule has struck since the broker was started, those that have ended included."""
        counts = Counter(self._strikes_of_the_past)
        for name, known in self._rules.items():
            counts[name] += known.strike_count
        return counts

    def concerns(self, api_key: int) -> bool:
        """Whether any rule may strike requests of this API."""
        return self._apis is None or api_key in self._apis

    def striking(self, matches: Callable[[RuleInForce], bool]) -> list[RuleInForce]:
        """The rules for requests that match one and strike it now, in the order of their names."""
        now_s = self._now_s()
        return [known for known in self._request_rules if matches(known) and known.strikes(now_s)]

    def remaining_s(self, known: RuleInForce) -> float:
        """How long a rule's present turn still lasts, if nobody takes it back."""
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
            # A disk on which nothing can be written would otherwise be so for ever: rules are kept there.
            if place.topic == CLUSTER_METADATA and not rule.topics:
                continue
            if not rule.names_places or rule.strikes_place(place.topic, place.partition):
                yield known
