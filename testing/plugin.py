"""The pytest plugin: a broker for the test session; topics, faults and a clock for each test.

All fixtures are plain functions, so they serve plain, asyncio and trio tests alike; with pytest-xdist each worker has
a broker of its own. The modules of the broker are imported only when a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
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
    parser.addini("gregor_runs_in", "where gregor_broker runs: thread (the default) or process", default="thread")


@pytest.fixture(scope="session")
def gregor_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for all tests of the session (of each worker of pytest-xdist), in a thread unless configured."""
    from .broker import Broker

    config = request.config
    settings = dict(_assignment(line) for line in config.getini("gregor_settings"))
    load: list[Path] = [config.rootpath / path for path in config.getini("gregor_load")]
    runs_in = config.getini("gregor_runs_in")
    if runs_in not in ("process", "thread"):
        raise pytest.UsageError(f"gregor_runs_in: write process or thread, not {runs_in!r}")
    with Broker(topics=config.getini("gregor_topics"), load=load, settings=settings, runs_in=runs_in) as broker:
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
    from .administration import create_topic, delete_topics

    names: list[str] = []

    def create(partitions: int = 1, prefix: str = "test", **configs: str) -> str:
        name = f"{prefix}-{uuid4().hex[:12]}"
        create_topic(gregor_broker.bootstrap_servers, name, partitions, configs)
        names.append(name)
        return name

    yield create
    delete_topics(gregor_broker.bootstrap_servers, names)


@pytest.fixture
def gregor_faults(gregor_broker: Broker) -> Iterator[Callable[..., None]]:
    """A function that sets a fault rule until the end of the test: `gregor_faults("api=Produce delay=20ms")`.

    It takes what `Broker.fault` takes.
    """
    with ExitStack() as until_the_end:

        def add(rule: str = "", **words: object) -> None:
            until_the_end.enter_context(gregor_broker.fault(rule, **words))

        yield add


@pytest.fixture
def gregor_clock(gregor_broker: Broker) -> Iterator[Callable[[timedelta], None]]:
    """A function that shifts the broker's clock until the end of the test: `gregor_clock(timedelta(hours=1))`."""
    with ExitStack() as until_the_end:

        def shift(ahead: timedelta) -> None:
            until_the_end.enter_context(gregor_broker.clock(ahead))

        yield shift
