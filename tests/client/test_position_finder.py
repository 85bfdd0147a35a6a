"""The first offsets of partitions, with the brokers' answers given by the test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from gregor.client.config import ConsumerConfig
from gregor.client.consumer import position_finder
from gregor.client.consumer.poll_boundary import PollBoundary
from gregor.client.consumer.position_finder import PositionFinder
from gregor.client.consumer.subscription import Subscription
from gregor.client.wire.group_offsets import CommittedOffset

READABLE, WITHOUT_LEADER = ("topic", 0), ("topic", 1)


async def test_a_partition_with_a_committed_offset_is_read_while_another_has_no_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subscription = Subscription()
    subscription.assign([READABLE, WITHOUT_LEADER])
    offsets_at_wakes: list[int | None] = []
    fetcher: Any = SimpleNamespace(
        resets=set(), wake=lambda: offsets_at_wakes.append(subscription.positions[READABLE].offset)
    )

    async def fetch_committed(*_: object, **__: object) -> dict[tuple[str, int], CommittedOffset]:
        return {READABLE: CommittedOffset(7)}

    async def list_offsets(*_: object, **__: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(position_finder, "fetch_committed", fetch_committed)
    monkeypatch.setattr(position_finder, "list_offsets", list_offsets)
    config = ConsumerConfig.from_properties({"group_id": "group"})
    cluster: Any = SimpleNamespace()
    finder = PositionFinder(cluster, subscription, fetcher, config, PollBoundary())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(finder.run)
        await trio.testing.wait_all_tasks_blocked()
        assert 7 in offsets_at_wakes
        nursery.cancel_scope.cancel()
