"""The mirror killed with kill -9 at random moments, while its source grows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker_process import running_broker
from tests.client.mirroring.scenes import contents, difference, killed_again_and_again, read_all

pytestmark = pytest.mark.peer

OVERRIDES = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")


@pytest.fixture(scope="module")
def gregor_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("source"), *OVERRIDES) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def gregor_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("target"), *OVERRIDES) as broker:
        yield broker.bootstrap


async def test_kills_of_the_mirror_lose_and_duplicate_no_records(gregor_source: str, gregor_target: str) -> None:
    await killed_again_and_again(gregor_source, gregor_target, "killed")
    assert await difference(gregor_source, gregor_target, "killed", 3) is None


async def test_kills_of_the_mirror_with_kept_offsets_lose_and_duplicate_no_records(
    gregor_source: str, gregor_target: str
) -> None:
    await killed_again_and_again(gregor_source, gregor_target, "kept", "--keep-offsets")
    wanted = await read_all(gregor_source, "kept", 3, isolation_level="read_committed")
    found = await read_all(gregor_target, "kept", 3)
    for partition in range(3):
        assert contents(found[partition]) == contents(wanted[partition])
        assert [record.offset for record in found[partition]] == [record.offset for record in wanted[partition]]
