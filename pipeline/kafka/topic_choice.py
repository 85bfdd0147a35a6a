"""The selected partitions and offsets: the connector's options, resolved against a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...protocol.topic_partition import AnyTopicPartition
from ..errors import DataLossError, OptionError
from ..options import names_of, parse_assign
from .cluster_view import ClusterView, TopicView
from .offset_options import EARLIEST, LATEST, Bound, Bounds, WhenNoneIsYounger

CHOICES = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The selection of topics: exactly one of topic names, a pattern, or partitions by topic.

    As in the connector, a pattern selects the topics in whose names it is found; `^name$` is a pattern of whole names.
    Source: ConsumerStrategy.scala.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> TopicChoice:
        """Parse `subscribe`, `subscribePattern` or `assign`. Raises OptionError."""
        given = [name for name in CHOICES if name in options]
        if len(given) != 1:
            number = "Only one" if given else "One"
            verb = "can" if given else "must"
            raise OptionError(
                f"{number} of the following options {verb} be specified for Kafka source: {', '.join(CHOICES)}"
            )
        text = options[given[0]]
        if given[0] == "subscribe":
            names = tuple(names_of(text))
            if not names:
                raise OptionError(f"No topics to subscribe to as specified value for option 'subscribe' is {text!r}")
            return cls(names=names)
        if given[0] == "subscribePattern":
            text = text.strip()
            if not text:
                raise OptionError("Pattern to subscribe is empty as specified value for option 'subscribePattern'")
            try:
                re.compile(text)
            except re.error as fault:
                raise OptionError(f"subscribePattern {text!r}: {fault}") from fault
            return cls(pattern=text)
        return cls(partitions=parse_assign(text))

    def find(self, cluster: ClusterView) -> dict[str, TopicView]:
        """Return the topics, each with its selected partitions.

        Raises PipelineError for a topic that does not exist.
        """
        if self.pattern is not None:
            pattern = re.compile(self.pattern)
            return {name: topic for name, topic in cluster.topics().items() if pattern.search(name)}
        if self.partitions is None:
            return cluster.topics(self.names)
        found = cluster.topics(self.partitions)
        chosen = {}
        for name, partitions in self.partitions.items():
            unknown = set(partitions) - set(found[name].partitions)
            if unknown:
                raise OptionError(f"assign: topic {name} has no partition {min(unknown)}")
            chosen[name] = TopicView(name, found[name].topic_id, partitions)
        return chosen


def partitions_of(topics: Mapping[str, TopicView]) -> list[AnyTopicPartition]:
    """Return the partitions of topics, in order."""
    return [(name, partition) for name in sorted(topics) for partition in topics[name].partitions]


def check_named(option: str, places: Iterable[AnyTopicPartition], bounds: Bounds) -> None:
    """Check that bounds by partition name each selected partition, and no other. Raises OptionError.

    Source: KafkaOffsetReaderAdmin.fetchSpecificOffsets.
    """
    selected = set(places)
    if bounds.by_partition and bounds.by_partition.keys() != selected:
        raise OptionError(
            f"{option}: you must specify all partitions of the selected topics and no others; use -1 for latest, -2 "
            f"for earliest. Specified: {_listed(bounds.by_partition)}. Selected: {_listed(selected)}"
        )


def _listed(places: Iterable[AnyTopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)) or "none"


def resolve_start(
    cluster: ClusterView,
    places: Iterable[AnyTopicPartition],
    bounds: Bounds,
    when_none_is_younger: WhenNoneIsYounger,
    *,
    fails_on_data_loss: bool,
) -> dict[AnyTopicPartition, int]:
    """Return the offsets to start at.

    Raises DataLossError for offsets that do not exist, OptionError, PipelineError.
    """
    places = list(places)
    offsets = _resolve(cluster, places, bounds)
    missing = [place for place, offset in offsets.items() if offset is None]
    if missing and when_none_is_younger is WhenNoneIsYounger.ERROR:
        topic, partition = missing[0]
        raise OptionError(
            f"{topic}-{partition}: no record has a timestamp of at least {bounds.of(topic, partition).timestamp}; "
            "set startingOffsetsByTimestampStrategy=latest to begin at the end of the log"
        )
    ends = _known(cluster.list_offsets(dict.fromkeys(missing, LATEST)))
    named = [place for place in places if bounds.of(*place).timestamp is None and bounds.of(*place).offset >= 0]
    earliest = _known(cluster.list_offsets(dict.fromkeys(named, EARLIEST)))
    latest = _known(cluster.list_offsets(dict.fromkeys(named, LATEST)))
    start: dict[AnyTopicPartition, int] = {}
    for place in places:
        offset = offsets[place]
        if offset is None:
            offset = ends[place]
        elif place in earliest and not earliest[place] <= offset <= latest[place]:
            if fails_on_data_loss:
                raise DataLossError(*place, offset, earliest[place], latest[place])
            offset = min(max(offset, earliest[place]), latest[place])
        start[place] = offset
    return start


def resolve_end(
    cluster: ClusterView, places: Iterable[AnyTopicPartition], bounds: Bounds, *, read_committed: bool
) -> dict[AnyTopicPartition, int]:
    """Return the exclusive end offsets; the log's end where no record is as young as the ending time.

    Raises PipelineError.
    """
    places = list(places)
    latest = _known(cluster.list_offsets(dict.fromkeys(places, LATEST), read_committed=read_committed))
    offsets = _resolve(cluster, [place for place in places if bounds.of(*place) != Bound(LATEST)], bounds)
    ends = {}
    for place in places:
        offset = offsets.get(place)
        ends[place] = latest[place] if offset is None else min(offset, latest[place])
    return ends


def _resolve(
    cluster: ClusterView, places: Iterable[AnyTopicPartition], bounds: Bounds
) -> dict[AnyTopicPartition, int | None]:
    """Return the offsets of the bounds: explicit offsets unchanged, the others looked up in the cluster."""
    asked: dict[AnyTopicPartition, int] = {}
    offsets: dict[AnyTopicPartition, int | None] = {}
    for place in places:
        bound = bounds.of(*place)
        if bound.timestamp is not None:
            asked[place] = bound.timestamp
        elif bound.offset in (EARLIEST, LATEST):
            asked[place] = bound.offset
        else:
            offsets[place] = bound.offset
    offsets.update(cluster.list_offsets(asked))
    return offsets


def _known(offsets: Mapping[AnyTopicPartition, int | None]) -> dict[AnyTopicPartition, int]:
    return {place: offset or 0 for place, offset in offsets.items()}
