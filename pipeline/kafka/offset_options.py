"""The starting and ending offsets: the options of Spark's own connector, with its JSON.

    startingOffsets, endingOffsets                         earliest | latest | {"topic": {"0": 23, "1": -1}}
    startingTimestamp, endingTimestamp                     1700000000000
    startingOffsetsByTimestamp, endingOffsetsByTimestamp   {"topic": {"0": 1700000000000}}
    startingOffsetsByTimestampStrategy                     error | latest

-2 is the earliest offset and -1 the latest. A single time takes precedence over times by partition, and these over
offsets. For `kafka_raw` JSON names all selected partitions, as for the connector (`topic_choice.check_named`); in
`kafka_log` partitions missing in the JSON are read from the earliest or to the latest offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ...protocol.topic_partition import AnyTopicPartition
from ..errors import OptionError

LATEST = -1
EARLIEST = -2

STARTING = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
STRATEGY = "startingOffsetsByTimestampStrategy"
OFFSET_OPTIONS = (*STARTING, *ENDING, STRATEGY)

MOST = 2**63 - 1
"""The largest offset, time or number of any option: Java's largest long."""
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")
_MOST_DIGITS = 1000


_UNITS_US = {
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""The units of a duration. Source: Spark's JavaUtils.timeStringAs."""
_DURATION = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")


class WhenNoneIsYounger(StrEnum):
    """The choice for partitions without a record as young as the starting time."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of the offset range: an offset, EARLIEST, LATEST, or the first record not older than a time (ms)."""

    offset: int = EARLIEST
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bound of all partitions, except for partitions with one of their own; `option` has set these bounds."""

    default: Bound
    by_partition: Mapping[AnyTopicPartition, Bound] = field(default_factory=dict)
    option: str = ""

    def of(self, topic: str, partition: int) -> Bound:
        """Return the bound of one partition."""
        return self.by_partition.get((topic, partition), self.default)


def starting_bounds(options: Mapping[str, str], *, default: int = EARLIEST) -> Bounds:
    """Return the starting bounds of the options. Raises OptionError."""
    return _bounds(options, STARTING, default)


def ending_bounds(options: Mapping[str, str]) -> Bounds:
    """Return the ending bounds of the options; offsets are exclusive. Raises OptionError."""
    bounds = _bounds(options, ENDING, LATEST)
    if Bound(EARLIEST) in (bounds.default, *bounds.by_partition.values()):
        raise OptionError("ending offset can't be earliest for batch queries on Kafka")
    return bounds


def check_batch_bounds(starting: Bounds, ending: Bounds) -> None:
    """Check the bounds of a batch query, before any offset is looked up. Raises OptionError.

    Source: KafkaSourceProvider.validateBatchOptions and checkOffsetLimitValidity.
    """
    if Bound(LATEST) in (starting.default, *starting.by_partition.values()):
        raise OptionError("starting offset can't be latest for batch queries on Kafka")
    for (topic, partition), first in starting.by_partition.items():
        last = ending.by_partition.get((topic, partition))
        if last is None:
            continue
        what, start, end = "offset", first.offset, last.offset
        if first.timestamp is not None and last.timestamp is not None:
            what, start, end = "timestamp", first.timestamp, last.timestamp
        elif first.timestamp is not None or last.timestamp is not None:
            continue
        if start > end >= 0:
            raise OptionError(
                f"The specified start {what} {start} is greater than the end {what} {end} for topic {topic} partition "
                f"{partition}."
            )


def strategy(options: Mapping[str, str]) -> WhenNoneIsYounger:
    """Return the value of `startingOffsetsByTimestampStrategy`. Raises OptionError."""
    text = options.get(STRATEGY, "error")
    try:
        return WhenNoneIsYounger(text.lower())
    except ValueError:
        raise OptionError(f"{STRATEGY} must be error or latest, not {text!r}") from None


def _bounds(options: Mapping[str, str], names: tuple[str, str, str], default: int) -> Bounds:
    offsets_name, timestamp_name, by_timestamp_name = names
    general = Bound(default)
    if timestamp_name in options:
        return Bounds(Bound(timestamp=parse_int(timestamp_name, options[timestamp_name])), option=timestamp_name)
    if by_timestamp_name in options:
        times = parse_partition_map(by_timestamp_name, options[by_timestamp_name])
        by_time = {partition: Bound(timestamp=time) for partition, time in times.items()}
        return Bounds(general, by_time, by_timestamp_name)
    if offsets_name not in options:
        return Bounds(general)
    text = options[offsets_name].strip()
    if text.lower() in ("earliest", "latest"):
        return Bounds(Bound(EARLIEST if text.lower() == "earliest" else LATEST), option=offsets_name)
    offsets = parse_partition_map(offsets_name, text)
    for (topic, partition), offset in offsets.items():
        if offset < EARLIEST:
            raise OptionError(f"{offsets_name}: {topic}-{partition} cannot have offset {offset}")
    return Bounds(general, {partition: Bound(offset) for partition, offset in offsets.items()}, offsets_name)


def parse_partition_map(name: str, text: str) -> dict[AnyTopicPartition, int]:
    """Parse numbers by topic and partition from JSON. Raises OptionError."""
    try:
        topics = json.loads(text)
        numbers: dict[AnyTopicPartition, int] = {}
        for topic, partitions in topics.items():
            for partition, number in partitions.items():
                if type(number) is not int or abs(number) > MOST:
                    raise TypeError
                numbers[topic, int(partition)] = number
        if not numbers:
            raise ValueError
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f'{name} must be like {{"topic": {{"0": 23, "1": -1}}}}, not {text!r}') from None
    return numbers


def parse_int(name: str, text: str, *, least: int | None = None, most: int = MOST) -> int:
    """Parse a whole number as Java does, with blanks around it allowed. Raises OptionError."""
    if _WHOLE_NUMBER.fullmatch(text) is None:
        raise OptionError(f"{name} must be a whole number, not {text!r}")
    # Python itself refuses to parse thousands of digits.
    number = int(text) if len(text) <= _MOST_DIGITS else most + 1
    if number > most:
        raise OptionError(f"{name} must be at most {most}, not {text.strip()}")
    if least is not None and number < least:
        raise OptionError(f"{name} must be at least {least}, not {number}")
    return number


def parse_duration_ms(name: str, text: str) -> int:
    """Return the milliseconds of a duration in Spark's notation: 15m, 10s, 500ms, or a number of milliseconds.

    Raises OptionError.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise OptionError(f"{name} must be a duration such as 15m, 10s or 500ms, not {text!r}")
    return int(found[1]) * _UNITS_US[found[2] or "ms"] // 1000


def parse_bool(name: str, text: str) -> bool:
    """Parse true or false. Raises OptionError."""
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not {text!r}")
    return text.lower() == "true"
