"""Regular expressions with which members subscribe (ConsumerGroupHeartbeat v1, KIP-848), compiled by RE2.

Kafka compiles them with re2j, which has the same syntax: no look-around, no back references, and matching in time
linear in the length of a name. A pattern must match the whole topic name.

Source: Kafka 4 `GroupMetadataManager.throwIfRegularExpressionIsInvalid`.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Protocol, cast

from ....protocol.errors import BrokerError, ErrorCode

LONGEST_PATTERN = 32_767
"""Characters of a pattern: as many as any string of a protocol version that is not flexible has bytes."""
PATTERN_MEMORY_BYTES = 256 * 1024
"""Memory of one compiled pattern and of the states that its matching caches; re2 caches 128 compiled patterns."""


class PatternError(ValueError):
    """An error for a pattern that cannot be compiled; its text is the reason."""


class CompiledPattern(Protocol):
    """A compiled regular expression over encoded names, safe to use in any thread."""

    def fullmatch(self, text: bytes) -> object | None:
        """Return a match of the whole text; None if it does not match."""


def compiled(pattern: str) -> CompiledPattern:
    """Compile a pattern, or take it from re2's cache.

    Raises PatternError, also if re2 is not installed: the broker needs re2 for nothing else.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"it has {len(pattern)} characters, more than {LONGEST_PATTERN}")
    try:
        # Imported on first use: few brokers ever receive a pattern.
        import re2
    except ImportError as error:
        raise PatternError(f"this broker lacks the package google-re2 ({error})") from error
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PATTERN_MEMORY_BYTES
    try:
        return cast(CompiledPattern, re2.compile(pattern.encode(), options))
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0]
        raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)) from error


def is_valid_pattern(pattern: str) -> bool:
    """Return whether `compiled` accepts the pattern."""
    try:
        compiled(pattern)
    except PatternError:
        return False
    return True


def check_pattern(pattern: str) -> None:
    """Check that a member may subscribe with this pattern. Raises BrokerError INVALID_REGULAR_EXPRESSION."""
    try:
        compiled(pattern)
    except PatternError as error:
        raise BrokerError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error


def matching_names(pattern: CompiledPattern, names: Sequence[str], longest_s: float) -> tuple[int, list[str]]:
    """Match names in order for about ``longest_s`` seconds; return how many were tested, and the matching ones."""
    end = monotonic() + longest_s
    found: list[str] = []
    for count, name in enumerate(names, 1):
        if pattern.fullmatch(name.encode()) is not None:
            found.append(name)
        if monotonic() >= end:
            return count, found
    return len(names), found
