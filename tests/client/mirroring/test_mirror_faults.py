"""The mirror continues when brokers die, leaders move and answers are cut; the copy stays exact."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from gregor.client import Producer
from gregor.client.mirroring import Mirror, MirrorOptions
from tests.broker_process import BrokerProcess, running_broker
from tests.client.faulty_proxy import broker_for_proxy, faulty_proxy
from tests.client.mirroring.scenes import create, difference, fill
from tests.client.two_addresses import two_addresses
from tests.waiting import PATIENCE_S

OVERRIDES = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
QUICK = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("source"), *OVERRIDES) as broker:
        yield broker


def once(source: str, target: str, topic: str, *, keeps_offsets: bool = False) -> Mirror:
    settings = MirrorOptions(
        re.compile(topic),
        keeps_offsets=keeps_offsets,
        once=True,
        max_bytes_per_second=100_000,
        source_config=QUICK,
        target_config=QUICK,
    )
    return Mirror(source, target, settings)


@pytest.mark.parametrize("keeps_offsets", [False, True])
async def test_the_mirror_continues_after_kills_of_the_target_broker(
    source: BrokerProcess, tmp_path: Path, keeps_offsets: bool
) -> None:
    topic = f"target-dies-{keeps_offsets}"
    await create(source.bootstrap, topic, 2)
    await fill(source.bootstrap, topic, 2, 2_000)
    with running_broker(tmp_path, *OVERRIDES) as target:
        mirror = once(source.bootstrap, target.bootstrap, topic, keeps_offsets=keeps_offsets)
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mirror.run)
                for _ in range(2):
                    seen = mirror.progress.records
                    while mirror.progress.records == seen and mirror.progress.records < 1_000:
                        await trio.lowlevel.checkpoint()
                    await trio.to_thread.run_sync(target.kill)
                    await trio.to_thread.run_sync(target.start_again)
        if not keeps_offsets:
            assert await difference(source.bootstrap, target.bootstrap, topic, 2) is None
        assert mirror.progress.lag == 0


async def test_the_mirror_continues_when_the_leader_of_the_target_moves(source: BrokerProcess, tmp_path: Path) -> None:
    await create(source.bootstrap, "leader-moves", 1)
    await fill(source.bootstrap, "leader-moves", 1, 2_000)
    with running_broker(tmp_path, *OVERRIDES) as target:
        async with two_addresses(target) as cluster, trio.open_nursery() as nursery:
            mirror = once(source.bootstrap, cluster.bootstrap, "leader-moves")
            nursery.start_soon(mirror.run)
            with trio.fail_after(PATIENCE_S):
                seen = -1
                while mirror.progress.lag or not mirror.progress.records:
                    if mirror.progress.records > seen:
                        seen = mirror.progress.records
                        cluster.leader = 3 - cluster.leader
                    await trio.lowlevel.checkpoint()
            assert cluster.refusals
        assert await difference(source.bootstrap, target.bootstrap, "leader-moves", 1) is None


async def test_the_mirror_continues_after_responses_cut_in_the_middle(source: BrokerProcess, tmp_path: Path) -> None:
    await create(source.bootstrap, "cut", 1)
    async with Producer(source.bootstrap) as producer:
        for n in range(3_000):
            await producer.send("cut", b"%d" % n * 10)
    with broker_for_proxy(tmp_path, *OVERRIDES) as (target, port):
        async with faulty_proxy(target, port) as proxy, trio.open_nursery() as nursery:
            mirror = once(source.bootstrap, f"127.0.0.1:{port}", "cut")
            nursery.start_soon(mirror.run)
            with trio.fail_after(PATIENCE_S):
                seen = -1
                while mirror.progress.lag or not mirror.progress.records:
                    if mirror.progress.records > seen:
                        seen = mirror.progress.records
                        proxy.cut_after_bytes = 5 + seen % 50
                    await trio.lowlevel.checkpoint()
            proxy.cut_after_bytes = None
            assert proxy.cuts
        async with faulty_proxy(target, port):
            assert await difference(source.bootstrap, f"127.0.0.1:{port}", "cut", 1) is None
