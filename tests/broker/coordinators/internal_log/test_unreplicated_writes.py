"""Answers wait for the followers of the partitions that hold the state of their groups and transactional ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gregor.broker.coordinators.internal_log.coordinator_log import InternalTopics
from gregor.broker.coordinators.internal_log.unreplicated_writes import (
    InternalKey,
    NotReplicatedError,
    partitions_led_here,
    replication_of,
)
from gregor.broker.replicas.partition import Partition
from gregor.broker.server.pending import Pending
from gregor.protocol.errors import ErrorCode

TIMEOUT_S = 5.0


class Led:
    """A partition with three records, of which the followers have two."""

    is_leader = True
    log = SimpleNamespace(log_end_offset=3)

    def __init__(self, copied: int = 2) -> None:
        self.copied = copied
        self.waiting: list[tuple[int, float, Pending[ErrorCode]]] = []

    def is_replicated(self, offset: int) -> bool:
        return offset < self.copied

    def replicated(self, offset: int, timeout_s: float) -> Pending[ErrorCode]:
        self.waiting.append((offset, timeout_s, Pending()))
        return self.waiting[-1][-1]

    def settle(self, code: ErrorCode) -> None:
        for _, _, pending in self.waiting:
            pending.complete(code)


def replication(*partitions: Led) -> Pending[None] | None:
    return replication_of(cast(list[Partition], partitions), TIMEOUT_S)


def test_replicated_writes_need_not_wait() -> None:
    assert replication() is None
    assert replication(Led(copied=3)) is None


def test_an_answer_waits_for_replication_up_to_the_end_offset_of_each_partition() -> None:
    first, second = Led(), Led()
    pending = replication(first, Led(copied=3), second)
    assert pending is not None
    assert [entry[:2] for entry in first.waiting] == [(2, TIMEOUT_S)]
    first.settle(ErrorCode.NONE)
    assert not pending.is_complete
    second.settle(ErrorCode.NONE)
    pending.result()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_records_that_are_not_replicated_fail_the_answer(code: ErrorCode, told: ErrorCode) -> None:
    led = Led()
    pending = replication(led)
    assert pending is not None
    led.settle(code)
    with pytest.raises(NotReplicatedError) as caught:
        pending.result()
    assert caught.value.code is told


class Topics:
    """An internal topic of 4 partitions, of which this broker leads one and follows one, with replicas of no others."""

    def __init__(self) -> None:
        self.led, self.followed = Led(), Led()
        self.followed.is_leader = False
        self.here = {0: self.led, 1: self.followed}

    def ensure_internal_topic(self, name: str) -> int:
        raise AssertionError("an answer creates no topic")

    def internal_topic_partitions(self, name: str) -> int:
        return 4 if name == "internal" else 0

    def internal_partition(self, name: str, index: int) -> Led | None:
        return self.here.get(index)


def test_internal_keys_are_mapped_to_the_partitions_led_by_this_broker() -> None:
    topics = Topics()
    # Java's hash of a string of one character is its code.
    keys = [InternalKey("internal", chr(64 + index)) for index in (0, 1, 2, 4)]
    led = partitions_led_here([*keys, InternalKey("absent", "@")], cast(InternalTopics, topics))
    assert cast(object, led) == [topics.led]
