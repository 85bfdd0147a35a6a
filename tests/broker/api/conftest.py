"""A running broker for the tests of handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from tests.asking import Asking, a_client


@pytest.fixture
def properties() -> dict[str, str]:
    """Return the broker's configuration; a test parametrises this fixture to change it."""
    return {}


@pytest.fixture(autouse=True)
def turns_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no answer be divided because the machine is loaded; tests of turns shorten them."""
    monkeypatch.setattr("gregor.broker.api.handlers.fetch.LONGEST_TURN_S", 3600.0)


@pytest.fixture
async def asking(tmp_path: Path, nursery: trio.Nursery, properties: dict[str, str]) -> AsyncIterator[Asking]:
    """Provide a client of a broker with an empty log directory."""
    defaults = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "logs"), "broker.rack": "r1"}
    broker = Broker(BrokerConfig({**defaults, **properties}))
    await nursery.start(broker.run)
    yield Asking(broker, a_client())
    broker.stop()
    assert broker.services.metrics.recompressions_on_append == 0, "batches are stored as they were produced"
