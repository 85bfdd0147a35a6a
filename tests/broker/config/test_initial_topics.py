"""`gregor.create.topics`: its syntax, and that the topics exist before clients are served."""

from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig, ConfigError
from gregor.broker.config.initial_topics import UNTOLD, InitialTopic, parse_initial_topics
from gregor.protocol.errors import BrokerError


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("orders", InitialTopic("orders", UNTOLD, UNTOLD, {})),
        ("orders:3", InitialTopic("orders", 3, UNTOLD, {})),
        ("orders:3:2", InitialTopic("orders", 3, 2, {})),
        ("users:1:1:compact", InitialTopic("users", 1, 1, {"cleanup.policy": "compact"})),
        (
            "users:1:cleanup.policy=compact:segment.ms=10",
            InitialTopic("users", 1, UNTOLD, {"cleanup.policy": "compact", "segment.ms": "10"}),
        ),
    ],
)
def test_an_initial_topic_is_parsed_with_its_partitions_replicas_and_configs(text: str, topic: InitialTopic) -> None:
    assert parse_initial_topics([text]) == [topic]


def test_commas_and_line_ends_separate_topics() -> None:
    assert [topic.name for topic in BrokerConfig({"gregor.create.topics": "a:1, b\n c:2:1\n"}).initial_topics] == [
        "a",
        "b",
        "c",
    ]


@pytest.mark.parametrize("text", [":1", "a:0", "a:b", "a:1:1:compacted", "a:1:=x", "a,a"])
def test_initial_topics_in_another_syntax_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"gregor\.create\.topics"):
        BrokerConfig({"gregor.create.topics": text})


def config(tmp_path: Path, **properties: str) -> BrokerConfig:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "logs"), **named})


async def test_the_topics_exist_when_the_broker_is_ready(tmp_path: Path, nursery: trio.Nursery) -> None:
    broker = Broker(config(tmp_path, gregor_create_topics="orders:3:3,users:1:compact"))
    await nursery.start(broker.run)
    orders, users = broker.services.metadata.topics["orders"], broker.services.metadata.topics["users"]
    assert [partition.replicas for partition in orders.partitions] == [[1]] * 3, (
        "one broker holds one replica of each partition"
    )
    assert users.configs == {"cleanup.policy": "compact"}
    broker.stop()


async def test_a_topic_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    for partitions in (2, 5):
        async with trio.open_nursery() as nursery:
            broker = Broker(config(tmp_path, gregor_create_topics=f"orders:{partitions}"))
            await nursery.start(broker.run)
            assert len(broker.services.metadata.topics["orders"].partitions) == 2
            broker.stop()


async def test_a_topic_that_cannot_be_created_ends_the_start_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"gregor\.create\.topics: Topic name is invalid") as caught:
        await Broker(config(tmp_path, gregor_create_topics="a b:1")).run()
    assert "\n" not in str(caught.value)


async def test_the_cluster_id_of_the_first_start_is_kept_and_another_one_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for cluster_id in ("first-cluster", "another"):
        async with trio.open_nursery() as nursery:
            broker = Broker(config(tmp_path, gregor_cluster_id=cluster_id))
            await nursery.start(broker.run)
            assert broker.services.metadata.cluster_id == "first-cluster"
            broker.stop()
    assert "log.dirs belong to cluster first-cluster: gregor.cluster.id=another is ignored" in caplog.text
