"""The census of clients by itself: distinguished clients, sums, eviction."""

from __future__ import annotations

import logging

import pytest
import trio

from gregor.broker.server.client_census import NAME_LIMIT, OTHER_SOFTWARE, ClientCensus, ClientUsage
from gregor.broker.server.client_connection import ClientConnection
from gregor.protocol.apis import AnyApiKey, ApiKey
from gregor.storage.clock import ManualClock


class People:
    """A census with connections that it counts."""

    def __init__(self, max_clients: int = 100) -> None:
        self.clock = ManualClock(1000)
        self.census = ClientCensus(self.clock, max_clients)

    def connect(self, client_id: str | None, *, host: str = "10.0.0.1", software: str = "") -> ClientConnection:
        client = ClientConnection((host, 40000), ("10.0.0.9", 9092), "PLAINTEXT", "connection", trio.Event())
        self.census.connected(client)
        self.census.client_id_changed(client, client_id)
        client.software_name, client.software_version = software, "1.0" if software else ""
        return client

    def usage(self, client_id: str) -> ClientUsage:
        (found,) = [usage for usage in self.census.usages() if usage.identity.client_id == client_id]
        return found


def request(client: ClientConnection, key: AnyApiKey, version: int, times: int = 1) -> None:
    client.request_counts[key, version] += times


@pytest.fixture
def people() -> People:
    return People()


def test_connections_of_one_client_add_up(people: People) -> None:
    first, second = people.connect("shop"), people.connect("shop")
    request(first, ApiKey.FETCH, 1, 3)
    request(second, ApiKey.FETCH, 1)
    request(second, ApiKey.METADATA, 0)
    people.census.disconnected(first)
    usage = people.usage("shop")
    assert usage.requests == {(ApiKey.FETCH, 1): 4, (ApiKey.METADATA, 0): 1}
    assert usage.connection_count == 1


def test_reading_the_census_twice_counts_requests_once(people: People) -> None:
    request(people.connect("shop"), ApiKey.FETCH, 1, 3)
    people.census.usages()
    assert people.usage("shop").requests[ApiKey.FETCH, 1] == 3
    assert people.census.request_counts() == {(ApiKey.FETCH, 1): 3}


@pytest.mark.parametrize(
    ("host", "software"), [("10.0.0.2", ""), ("10.0.0.1", "sarama")], ids=["another host", "other software"]
)
def test_clients_with_one_client_id_are_distinguished_by_host_and_software(
    people: People, host: str, software: str
) -> None:
    request(people.connect("shop"), ApiKey.FETCH, 1)
    request(people.connect("shop", host=host, software=software), ApiKey.FETCH, 12)
    assert len(people.census.usages()) == 2


def test_requests_count_for_the_client_id_at_the_time_of_the_request(people: People) -> None:
    proxy = people.connect("first")
    request(proxy, ApiKey.PRODUCE, 0)
    people.census.client_id_changed(proxy, "second")
    request(proxy, ApiKey.PRODUCE, 9)
    assert people.usage("first").requests == {(ApiKey.PRODUCE, 0): 1}
    assert people.usage("second").requests == {(ApiKey.PRODUCE, 9): 1}


def test_connections_without_requests_are_not_listed(people: People) -> None:
    people.census.disconnected(people.connect("port scanner"))
    assert people.census.usages() == []


def test_numbers_of_apis_become_names(people: People) -> None:
    people.connect("short cut").request_counts[0, 9] += 2
    assert [key.name for key, _ in people.usage("short cut").requests] == ["PRODUCE"]


def test_the_times_when_a_client_was_first_and_last_seen_are_recorded(people: People) -> None:
    client = people.connect("shop")
    request(client, ApiKey.FETCH, 1)
    people.census.usages()
    people.clock.advance(500)
    people.census.disconnected(client)
    people.clock.advance(9000)
    usage = people.usage("shop")
    assert (usage.first_seen_ms, usage.last_seen_ms) == (1000, 1500)


def test_the_least_recently_seen_client_is_evicted_and_total_counts_stay() -> None:
    people = People(max_clients=2)
    for name in ("a", "b", "a", "c"):
        client = people.connect(name)
        request(client, ApiKey.FETCH, 0)
        people.census.disconnected(client)
    assert [usage.identity.client_id for usage in people.census.usages()] == ["a", "c"]
    assert people.census.forgotten_clients == 1
    assert people.census.request_counts() == {(ApiKey.FETCH, 0): 4}


def test_deprecated_requests_are_counted_by_software(people: People) -> None:
    client = people.connect("shop", software="sarama")
    request(client, ApiKey.FETCH, 2, 5)
    request(client, ApiKey.FETCH, 4)
    assert people.census.deprecated_request_counts() == {(ApiKey.FETCH, 2, "sarama", "1.0"): 5}
    assert people.usage("shop").deprecated_count == 5


def test_the_number_of_software_names_in_the_metrics_is_bounded() -> None:
    people = People(max_clients=2)
    for name in ("x", "y", "z", "w"):
        request(people.connect("shop", software=name), ApiKey.FETCH, 0)
    assert people.census.deprecated_request_counts()[ApiKey.FETCH, 0, *OTHER_SOFTWARE] == 2
    assert len(people.census.deprecated_request_counts()) == 3


def test_long_names_are_cut(people: People) -> None:
    request(people.connect("n" * 30_000), ApiKey.FETCH, 0)
    assert [usage.identity.client_id for usage in people.census.usages()] == ["n" * NAME_LIMIT]


def test_down_conversion_costs_are_summed_for_each_client(people: People) -> None:
    client = people.connect("old")
    request(client, ApiKey.FETCH, 0)
    client.down_conversion.add(10, 4096, 2_000_000)
    people.census.usages()
    client.down_conversion.add(5, 1024, 1_000_000)
    cost = people.usage("old").down_conversion
    assert (cost.record_count, cost.stored_bytes, cost.cpu_ns) == (15, 5120, 3_000_000)


def test_a_refused_down_conversion_is_logged_once_for_each_client(
    people: People, caplog: pytest.LogCaptureFixture
) -> None:
    old, other = people.connect("old"), people.connect("other")
    with caplog.at_level(logging.WARNING):
        for client in (old, old, other):
            people.census.down_conversion_refused(client, 2, "orders")
    assert len(caplog.messages) == 2
    assert "'old' at 10.0.0.1" in caplog.messages[0]
    assert "set message.downconversion.enable=true for the topic" in caplog.messages[0]
    assert people.usage("old").refused_down_conversions == 2
