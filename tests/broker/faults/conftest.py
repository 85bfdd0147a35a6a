"""A broker that injects faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.storage.clock import ManualClock
from tests.broker.faults.faulty_broker import START_MS, FaultyBroker


@pytest.fixture
def properties() -> dict[str, str]:
    """Return the broker's configuration; a test parametrises this fixture to change it, `{tmp}` being its directory."""
    return {}


@pytest.fixture
async def faulty(tmp_path: Path, nursery: trio.Nursery, properties: dict[str, str]) -> AsyncIterator[FaultyBroker]:
    """Provide a broker with topics `orders` (2 partitions) and `payments`, whose clock the tests set."""
    defaults = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "logs"),
        "gregor.fault.injection.enable": "true",
        "gregor.shutdown.timeout.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    own = {key: value.replace("{tmp}", str(tmp_path)) for key, value in properties.items()}
    broker = Broker(BrokerConfig({**defaults, **own}), ManualClock(START_MS))
    await nursery.start(broker.run)
    broker.services.metadata.create_topic("orders", partitions=2)
    broker.services.metadata.create_topic("payments")
    faulty = FaultyBroker(broker)
    yield faulty
    faulty.close()
    broker.stop()
