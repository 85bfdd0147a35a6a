"""Tests of the addresses of a host name at which a listener accepts connections."""

from __future__ import annotations

import socket

import pytest

from gregor.broker.config.listeners import Endpoint, ListenerError, SocketOptions, open_sockets

ABSENT = "192.0.2.1"
"""An address for documentation (RFC 5737), which no machine has."""


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> Endpoint:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    return Endpoint("PLAINTEXT", "some-host", 0)


@pytest.mark.parametrize(
    "addresses", [("127.0.0.1", ABSENT), (ABSENT, "127.0.0.1"), (ABSENT, "127.0.0.1", "127.0.0.2")]
)
def test_addresses_that_this_machine_does_not_have_are_left_out(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    sockets = open_sockets(resolve_to(monkeypatch, *addresses), SocketOptions())
    try:
        bound = [opened.getsockname() for opened in sockets]
        assert [address for address, _ in bound] == [address for address in addresses if address != ABSENT]
        assert len({port for _, port in bound}) == 1
    finally:
        for opened in sockets:
            opened.close()


def test_a_host_without_any_address_of_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ListenerError, match=r"cannot listen on .*: Cannot assign requested address"):
        open_sockets(resolve_to(monkeypatch, ABSENT), SocketOptions())


def test_a_port_in_use_at_one_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.2", 0))
        other.listen()
        endpoint = resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
        with pytest.raises(ListenerError, match="in use"):
            open_sockets(Endpoint(endpoint.name, endpoint.host, other.getsockname()[1]), SocketOptions())
