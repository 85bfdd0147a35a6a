"""The broker's listening addresses: ``listeners`` and related keys, in Kafka's syntax."""

from __future__ import annotations

import errno
import logging
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from .keys import ConfigError

logger = logging.getLogger(__name__)

ENDPOINT = re.compile(r"(?P<name>[^:/]+)://(?:\[(?P<v6>[0-9a-fA-F:.%]*)\]|(?P<host>[^:\[\]]*)):(?P<port>-?\d+)")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ListenerError(ValueError):
    """An error for a listener that cannot be opened as configured; its text says what to change."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address ``NAME://host:port``; an empty host means all interfaces, port 0 any free port."""

    name: str
    host: str
    port: int
    key: str = field(default="listeners", compare=False)
    """The configuration key that has this address, for error messages."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_endpoints(key: str, items: Iterable[str]) -> list[Endpoint]:
    """Return the endpoints in the value of the configuration ``key``; empty items are skipped, as in Kafka (`Csv`).

    Raises ListenerError for a malformed one.
    """
    endpoints = []
    for item in filter(str.strip, items):
        found = ENDPOINT.fullmatch(item.strip())
        if found is None or not 0 <= int(found["port"]) <= 65535:
            raise ListenerError(f"{key}: {item!r} is not of the form NAME://host:port")
        host = found["v6"] or found["host"] or ""
        endpoints.append(Endpoint(found["name"].upper(), host, int(found["port"]), key))
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise ListenerError(f"{key}: each listener must have a different name")
    return endpoints


def parse_protocol_map(entries: Iterable[str]) -> dict[str, str]:
    """Return the security protocol of each listener, from the entries of ``listener.security.protocol.map``."""
    pairs = (entry.partition(":") for entry in entries)
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def security_protocol(name: str, protocol_map: Mapping[str, str]) -> str:
    """Return a listener's security protocol, from ``listener.security.protocol.map``. Raises ListenerError."""
    protocol = protocol_map.get(name, name).upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise ListenerError(f"listener {name} has no security protocol: add it to listener.security.protocol.map")
    return protocol


ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""The errors of an address that this machine does not have, such as ::1 of localhost in a container without IPv6."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """A set of options of listening sockets; a buffer size of -1 leaves it to the operating system."""

    backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


def open_sockets(endpoint: Endpoint, options: SocketOptions) -> list[socket.socket]:
    """Return listening, non-blocking sockets for every address of the endpoint's host that this machine has.

    All interfaces are one socket for both IP versions if the system has IPv6. Raises ListenerError, whose text names
    the configuration key of the endpoint.
    """
    sockets: list[socket.socket] = []
    port = endpoint.port
    absent: OSError | None = None
    try:
        for family, address in _addresses(endpoint):
            try:
                listening = _bind(family, address, port)
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                absent = error
                continue
            sockets.append(listening)
            _set_buffers(listening, options)
            listening.listen(options.backlog)
            port = port or listening.getsockname()[1]
        if absent is not None and not sockets:
            raise absent
    except OSError as error:
        for opened in sockets:
            opened.close()
        reason = error.strerror or str(error)
        raise ListenerError(
            f"cannot listen on {endpoint}: {reason}; change {endpoint.key} or free that port"
        ) from error
    return sockets


def _addresses(endpoint: Endpoint) -> list[tuple[socket.AddressFamily, str]]:
    if endpoint.host in ("", "0.0.0.0"):  # noqa: S104 (this is what an empty host asks for)
        if endpoint.host == "" and socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, "::")]
        return [(socket.AF_INET, "0.0.0.0")]  # noqa: S104
    # Python looks up a name given as text with its IDNA codec, whose tables few names need.
    host = endpoint.host.encode() if endpoint.host.isascii() else endpoint.host
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    unique = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    usable = [entry for entry in unique if entry[0] == socket.AF_INET or socket.has_ipv6]
    return sorted(usable, key=lambda entry: entry[0] != socket.AF_INET)


def _bind(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address == "::" else 1)
        listening.bind((address, port))
    except OSError:
        listening.close()
        raise
    return listening


def _set_buffers(listening: socket.socket, options: SocketOptions) -> None:
    """Set the buffer sizes, which the sockets of accepted clients inherit."""
    sizes = {socket.SO_SNDBUF: options.send_buffer_bytes, socket.SO_RCVBUF: options.receive_buffer_bytes}
    for option, size_bytes in sizes.items():
        if size_bytes >= 0:
            listening.setsockopt(socket.SOL_SOCKET, option, size_bytes)


@lru_cache(maxsize=1)
def parse_counts(text: str) -> Mapping[str, int]:
    """Return the connections by address of ``max.connections.per.ip.overrides``; each name is resolved once.

    Raises ListenerError.
    """
    return {address: count for host, count in _counts_by_host(text) for address in _resolved(host)}


@lru_cache(maxsize=1)
def known_counts(text: str) -> Mapping[str, int]:
    """Return the counts as `parse_counts` does, at run time: unknown hosts are left out, with a warning."""
    counts = {}
    for host, count in _counts_by_host(text):
        try:
            counts.update(dict.fromkeys(_resolved(host), count))
        except ListenerError as error:
            logger.warning("%s", error)
    return counts


def check_counts(text: str) -> None:
    """Check the form of ``max.connections.per.ip.overrides``, without resolving names. Raises ConfigError."""
    try:
        _counts_by_host(text)
    except ListenerError as error:
        raise ConfigError(str(error)) from None


def _counts_by_host(text: str) -> list[tuple[str, int]]:
    found = []
    for item in filter(None, map(str.strip, text.split(","))):
        host, colon, count = item.rpartition(":")
        if not colon or not (count.isascii() and count.isdecimal()) or len(count) > 10:
            raise ListenerError(f"max.connections.per.ip.overrides: {item!r} is not of the form host:count")
        found.append((host.strip("[]"), int(count)))
    return found


def _resolved(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError as error:
        raise ListenerError(f"max.connections.per.ip.overrides: host {host} cannot be found") from error


def plain_address(address: tuple[str, int] | tuple[str, int, int, int]) -> tuple[str, int]:
    """Return host and port of a socket's address; an IPv4 client of a dual-stack socket is shown as IPv4."""
    host, port = address[0], address[1]
    return host.removeprefix("::ffff:") if "." in host else host, port
