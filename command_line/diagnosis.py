"""The checks of `gregor doctor`: each looks at one thing and yields findings, with what to change."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import trio

from ..client.admin import Admin
from ..client.admin.cluster import ClusterDescription
from ..client.errors import ClientError, ConnectionLostError
from ..client.wire.dialling import open_stream
from ..protocol.apis import AnyApiKey, ApiKey, api_name
from ..protocol.errors import BrokerError
from ..protocol.kafka_4_floor import verdict
from ..protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..protocol.spoken_versions import PINNED_RELEASES, SOFTWARE_NAME
from .asking import counted

FEW_FILES, ENOUGH_FILES = 1024, 65536
"""Limits of open files below which a broker with many partitions or clients fails, and may fail."""
LITTLE_SPACE = 1 << 30
LITTLE_SPACE_PERCENT = 5
MIB = 1 << 20
CONNECT_S = 3


class Level(Enum):
    """The severity of a finding."""

    GOOD = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """A result of a check: what it is about, and one sentence."""

    level: Level
    subject: str
    text: str


def check_limits() -> Iterator[Finding]:
    """Yield findings about the limits of this process, which a broker started from here would have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files are allowed"
    if soft <= FEW_FILES:
        advice = "`ulimit -n 65536`" if hard >= ENOUGH_FILES or hard == resource.RLIM_INFINITY else "limits.conf"
        yield Finding(Level.WARNING, "limits", f"only {text}: raise the limit with {advice} for many clients or logs")
    else:
        yield Finding(Level.GOOD, "limits", text)


def check_disk(directory: Path) -> Iterator[Finding]:
    """Yield findings about the disk of a log directory, or of its nearest parent if there is none yet."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    percent = 100 * usage.free // max(usage.total, 1)
    text = f"{directory}: {usage.free // MIB:,} MiB of {usage.total // MIB:,} MiB are free ({percent} %)"
    is_short = usage.free < LITTLE_SPACE or percent < LITTLE_SPACE_PERCENT
    yield Finding(Level.WARNING if is_short else Level.GOOD, "disk", text)
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding(Level.PROBLEM, "disk", f"{place} is not writable for this user")
    files = os.statvfs(place)
    if files.f_files and files.f_favail < FEW_FILES:
        yield Finding(Level.PROBLEM, "disk", f"{place}: only {files.f_favail} more files can be created (inodes)")


def check_names() -> Iterator[Finding]:
    """Yield findings about the name of this machine, and about localhost."""
    name = socket.gethostname()
    addresses = resolved(name)
    if not addresses:
        yield Finding(Level.WARNING, "DNS", f"this machine's name {name!r} cannot be resolved: advertise an address")
    elif all(ip_address(address).is_loopback for address in addresses):
        text = (
            f"this machine's name {name!r} is a loopback address on this machine: "
            "advertise another address to other machines"
        )
        yield Finding(Level.GOOD, "DNS", text)
    else:
        yield Finding(Level.GOOD, "DNS", f"{name} is {', '.join(addresses)}")
    if "127.0.0.1" not in resolved("localhost"):
        yield Finding(Level.WARNING, "DNS", "localhost is not 127.0.0.1 here: clients that use only IPv4 fail")


async def check_address(host: str, port: int) -> AsyncIterator[Finding]:
    """Yield findings about one address: DNS, and a connection to each of its addresses."""
    addresses = await trio.to_thread.run_sync(resolved, host)
    if not addresses:
        yield Finding(Level.PROBLEM, "DNS", f"{host} cannot be resolved: check the name, DNS and /etc/hosts")
        return
    open_addresses = []
    refused = {}
    for address in addresses:
        reason = await _refusal(address, port)
        if reason is None:
            open_addresses.append(address)
        else:
            refused[address] = reason
    for address, reason in refused.items():
        if open_addresses:
            text = f"{host} is also {address}, where {reason}: clients that try that address first are slower"
            yield Finding(Level.WARNING, "ports", text)
        else:
            hint = "is the broker running, and is this its port?" if "refused" in reason else "is there a firewall?"
            yield Finding(Level.PROBLEM, "ports", f"{host}:{port} ({address}): {reason}; {hint}")
    if open_addresses:
        yield Finding(Level.GOOD, "ports", f"{host}:{port} accepts connections")


async def check_cluster(admin: Admin, host: str) -> AsyncIterator[Finding]:
    """Yield findings about the cluster behind a bootstrap server: advertised addresses, leaders, replicas."""
    try:
        cluster = await admin.describe_cluster()
    except (ClientError, BrokerError) as error:
        yield Finding(Level.PROBLEM, "broker", str(error))
        return
    yield Finding(Level.GOOD, "broker", f"{counted(len(cluster.brokers), 'broker')}, cluster id {cluster.cluster_id}")
    async for finding in _check_advertised(cluster, host, admin):
        yield finding
    try:
        topics = await admin.describe_topics()
    except (ClientError, BrokerError) as error:
        yield Finding(Level.PROBLEM, "topics", str(error))
        return
    partitions = [(topic.name, state) for topic in topics for state in topic.partitions]
    leaderless = [f"{name}-{state.index}" for name, state in partitions if state.leader is None]
    behind = [
        f"{name}-{state.index}" for name, state in partitions if len(state.in_sync_replicas) < len(state.replicas)
    ]
    if leaderless:
        found = f"{counted(len(leaderless), 'partition')} without a leader, such as {leaderless[0]}"
        yield Finding(Level.PROBLEM, "topics", found)
    if behind:
        found = f"{counted(len(behind), 'partition')} with replicas behind, such as {behind[0]}"
        yield Finding(Level.WARNING, "topics", found)
    if not leaderless and not behind:
        found = f"{counted(len(partitions), 'partition')}, all with their leader and replicas"
        yield Finding(Level.GOOD, "topics", found)


async def _check_advertised(cluster: ClusterDescription, host: str, admin: Admin) -> AsyncIterator[Finding]:
    """Yield findings about the addresses that Metadata tells clients (advertised.listeners)."""
    is_remote = not _is_loopback(host)
    for node, (advertised, port) in sorted(cluster.brokers.items()):
        place = f"broker {node} advertises {advertised}:{port}"
        advice = "set advertised.listeners to an address that clients can reach"
        if advertised in ("", "0.0.0.0", "::"):  # noqa: S104 (the mistake that is looked for)
            yield Finding(Level.PROBLEM, "advertised", f"{place}, which is not an address: {advice}")
            continue
        if is_remote and _is_loopback(advertised):
            text = f"{place}, and you connected to {host}: each client would connect to itself; {advice}"
            yield Finding(Level.PROBLEM, "advertised", text)
            continue
        if not await trio.to_thread.run_sync(resolved, advertised):
            yield Finding(Level.PROBLEM, "advertised", f"{place}, which this machine cannot resolve; {advice}")
            continue
        try:
            stream = await open_stream(advertised, port, admin.config)
        except ConnectionLostError as error:
            yield Finding(Level.PROBLEM, "advertised", f"{place}, which this machine cannot reach: {error}; {advice}")
            continue
        await trio.aclose_forcefully(stream)
        yield Finding(Level.GOOD, "advertised", f"{place}, which this machine can reach")


async def check_release(admin: Admin, release: str) -> AsyncIterator[Finding]:
    """Yield what a client of an old release would meet at this broker, and at Kafka 4."""
    subject = f"client {release}"
    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")
    answer = await admin.ask_any(request, ApiVersionsResponse)
    offered = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    sent: list[tuple[AnyApiKey, int]] = sorted(PINNED_RELEASES[release].items())
    refused = []
    for key, version in sent:
        # Only brokers ask one another for these.
        least, most = offered.get(key, (0, -1))
        if not least <= version <= most:
            refused.append(f"{api_name(key)} v{version}")
    if refused:
        yield Finding(Level.PROBLEM, subject, f"this broker refuses {', '.join(refused)}")
    else:
        yield Finding(Level.GOOD, subject, "this broker serves all its requests")
    versions = dict(sent)
    if versions[ApiKey.FETCH] < 4:
        magic = 0 if versions[ApiKey.FETCH] < 2 else 1
        text = f"it reads message format v{magic}: newer records are converted for it, which costs CPU at each fetch"
        yield Finding(Level.GOOD, subject, text)
    if ApiKey.API_VERSIONS not in versions:
        yield Finding(Level.GOOD, subject, "it does not ask for the broker's API versions")
    sentence = verdict(sent)
    yield Finding(Level.WARNING if "refuses" in sentence else Level.GOOD, subject, sentence)


def resolved(host: str) -> list[str]:
    """Return the addresses of a name; none if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _refusal(address: str, port: int) -> str | None:
    """Return why an address does not accept a connection, None if it does."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with trio.socket.socket(family, socket.SOCK_STREAM) as connecting, trio.move_on_after(CONNECT_S):
        try:
            await connecting.connect((address, port))
        except OSError as error:
            return (error.strerror or str(error)).lower()
        return None
    return f"no answer within {CONNECT_S} s"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
