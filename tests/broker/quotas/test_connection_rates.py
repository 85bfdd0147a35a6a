"""Connections per second, of the broker and of an address (KIP-612)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gregor.broker.metadata.state import Entity
from gregor.broker.quotas.connection_rates import UNLIMITED, ConnectionRates
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.storage.clock import ManualClock
from tests.broker_process import running_broker
from tests.wire import Wire


@dataclass
class Settings:
    """Settings that measure a rate over two samples of a second, so that a burst of one second is allowed."""

    max_connection_creation_rate: int = UNLIMITED
    quota_window_num: int = 2
    quota_window_size_seconds: int = 1
    of_listeners: dict[str, int] = field(default_factory=dict)

    def listener_limit(self, name: str, listener: str) -> int:
        assert name == "max.connection.creation.rate"
        return self.of_listeners.get(listener, UNLIMITED)


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def rates(settings: Settings, clock: ManualClock) -> ConnectionRates:
    return ConnectionRates(settings, clock)


def of(name: str | None, rate: float) -> dict[Entity, dict[str, float]]:
    """Return a quota of an address, or of all other addresses."""
    return {(("ip", name),): {"connection_creation_rate": rate}}


def test_without_limits_no_connection_is_delayed(rates: ConnectionRates) -> None:
    assert {rates.connected("A") for _ in range(1000)} == {0}
    assert {rates.connected_from("10.0.0.1") for _ in range(1000)} == {0}


def test_the_brokers_rate_may_change_at_any_time(rates: ConnectionRates, settings: Settings) -> None:
    settings.max_connection_creation_rate = 10
    assert [rates.connected("A") for _ in range(12)] == [0] * 10 + [100, 200]
    settings.max_connection_creation_rate = UNLIMITED
    assert rates.connected("A") == 0


def test_a_listener_may_have_a_rate_of_its_own(rates: ConnectionRates, settings: Settings) -> None:
    settings.of_listeners["B"] = 10
    assert [rates.connected("B") for _ in range(12)] == [0] * 10 + [100, 200]
    assert rates.connected("A") == 0


def test_the_inter_broker_listener_is_delayed_only_by_its_own_rate(rates: ConnectionRates, settings: Settings) -> None:
    settings.max_connection_creation_rate = 10
    assert {rates.connected("B", is_protected=True) for _ in range(12)} == {0}
    assert rates.connected("A") == 300
    settings.of_listeners["B"] = 1
    assert max(rates.connected("B", is_protected=True) for _ in range(5)) == 1000


def test_no_wait_is_longer_than_a_sample(rates: ConnectionRates, settings: Settings) -> None:
    settings.max_connection_creation_rate = 1
    assert max(rates.connected("A") for _ in range(100)) == 1000
    settings.max_connection_creation_rate = 0
    assert rates.connected("A") == 1000


def test_refused_connections_do_not_count_against_an_address(rates: ConnectionRates, clock: ManualClock) -> None:
    rates.take(of("10.0.0.1", 5))
    assert [rates.connected_from("10.0.0.1") for _ in range(9)] == [0] * 5 + [200] * 4
    assert rates.connected_from("10.0.0.2") == 0
    clock.advance(2000)
    assert rates.connected_from("10.0.0.1") == 0


def test_an_address_of_its_own_goes_before_the_default(rates: ConnectionRates) -> None:
    rates.take(of(None, 1) | of("0:0:0:0:0:0:0:1", 3))
    assert [rates.connected_from("10.0.0.1") > 0 for _ in range(3)] == [False, True, True]
    assert [rates.connected_from("10.0.0.2") > 0 for _ in range(3)] == [False, True, True]
    assert [rates.connected_from("::1") > 0 for _ in range(4)] == [False, False, False, True]


def test_user_quotas_do_not_limit_connections_of_ip_addresses(rates: ConnectionRates) -> None:
    rates.take({(("user", None),): {"request_percentage": 1.0}})
    assert {rates.connected_from("10.0.0.1") for _ in range(100)} == {0}


def test_connections_over_the_ip_quota_are_refused_until_the_quota_is_removed(tmp_path: Path) -> None:
    """One connection in ten seconds, which is the length of the default window."""
    with running_broker(tmp_path) as broker, Wire(broker.address) as admin:

        def set_quota(*, remove: bool) -> None:
            entry = EntryData(
                entity=[EntityData(entity_type="ip", entity_name=None)],
                ops=[OpData(key="connection_creation_rate", value=0.1, remove=remove)],
            )
            answer = admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=[entry]))
            assert answer.entries[0].error_code == 0

        def is_served() -> bool:
            try:
                with Wire(broker.address) as wire:
                    return wire.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[])) is not None
            except ConnectionError:
                return False

        set_quota(remove=False)
        assert [is_served() for _ in range(3)] == [True, False, False]
        set_quota(remove=True)
        assert is_served()
