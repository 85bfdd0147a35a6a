"""The pytest plugin: a broker for the test session, and topics for each test.

Both fixtures are plain functions, so they serve plain, asyncio and trio tests alike; with pytest-xdist each worker has
a broker of its own. The modules of the broker are imported only when a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from .broker import Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of a project's pytest configuration."""
    parser.addini("gregor_topics", "topics of gregor_broker, as NAME[:PARTITIONS][:KEY=VALUE]...", "linelist")
    parser.addini("gregor_load", "files and directories of seed data, relative to the root directory", "linelist")
    parser.addini("gregor_settings", "broker configurations of gregor_broker, as KEY=VALUE", "linelist")


@pytest.fixture(scope="session")
def gregor_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker process for all tests of the session (of each worker of pytest-xdist)."""
    from .broker import Broker

    config = request.config
    settings = dict(_assignment(line) for line in config.getini("gregor_settings"))
    load: list[Path] = [config.rootpath / path for path in config.getini("gregor_load")]
    with Broker(topics=config.getini("gregor_topics"), load=load, settings=settings) as broker:
        yield broker


def _assignment(line: str) -> tuple[str, str]:
    key, equals, value = line.partition("=")
    if not equals:
        raise pytest.UsageError(f"gregor_settings: write {line!r} as KEY=VALUE")
    return key.strip(), value.strip()


@pytest.fixture
def gregor_topics(gregor_broker: Broker) -> Iterator[Callable[..., str]]:
    """A function that creates a topic with a name of its own; the topics are deleted after the test.

    ``gregor_topics(partitions=1, prefix="test", **{"cleanup.policy": "compact"})`` returns the topic's name.
    """
    from .topics import create_topic, delete_topics

    names: list[str] = []

    def create(partitions: int = 1, prefix: str = "test", **configs: str) -> str:
        name = f"{prefix}-{uuid4().hex[:12]}"
        create_topic(gregor_broker.bootstrap_servers, name, partitions, configs)
        names.append(name)
        return name

    yield create
    delete_topics(gregor_broker.bootstrap_servers, names)
