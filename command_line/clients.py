"""`gregor clients`: the clients of a Gregor broker, their API versions, and the ones that Kafka 4 would refuse.

The broker is asked over its Kafka port, by an API that only Gregor has (`protocol.apis.GregorApiKey`).
"""

from __future__ import annotations

import argparse

from ..client.admin import Admin
from ..client.errors import ConnectionLostError
from ..protocol.apis import AnyApiKey, ApiKey, api_key, api_name
from ..protocol.messages.describe_clients import ConversionWork, DescribedClient
from ..protocol.spoken_versions import SOFTWARE_NAME
from .asking import UsageError, add_connection_options, add_json_option, client_properties, run_client, say, say_json
from .client_verdicts import client_verdict, is_refused
from .text_table import format_table

HEAD = ("CLIENT-ID", "HOST", "SOFTWARE", "OPEN", "REQUESTS", "DOWN-CONVERTED", "UP-CONVERTED")
MIB = 1 << 20


EXAMPLES = """\
examples:
  gregor clients
  gregor clients --refused --versions
  gregor clients --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "clients",
        help="list the clients of a Gregor broker, and what Kafka 4 would refuse",
        epilog=EXAMPLES,
    )
    add_connection_options(parser)
    add_json_option(parser)
    parser.add_argument("--refused", action="store_true", help="list only clients that Kafka 4 would refuse")
    parser.add_argument(
        "--versions", action="store_true", help="list all API versions of each client, with request counts"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the list; the exit code is 1 if there is no answer."""

    async def work() -> None:
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            try:
                answers = await admin.describe_clients()
            except ConnectionLostError as error:
                raise UsageError(f"{error}; only Gregor brokers list their clients") from error
        clients = [client for answer in answers for client in answer.clients]
        if arguments.json:
            say_json([_as_object(client) for client in _shown(clients, only_refused=arguments.refused)])
            return
        _show(clients, only_refused=arguments.refused, with_versions=arguments.versions)
        forgotten = sum(answer.forgotten_clients for answer in answers)
        if forgotten:
            say(f"{forgotten} more clients are not listed: the limit is gregor.client.census.max.clients")

    return run_client(work, arguments.bootstrap_server)


def _show(clients: list[DescribedClient], *, only_refused: bool, with_versions: bool) -> None:
    shown = _shown(clients, only_refused=only_refused)
    table = format_table(HEAD, [_row(client) for client in shown])
    say(table[0])
    for line, client in zip(table[1:], shown, strict=True):
        say(line)
        say(f"    {client_verdict(client)}")
        if client.refused_down_conversions:
            say(
                f"    {client.refused_down_conversions} fetches were refused by message.downconversion.enable=false: "
                "set it to true for the topic, or upgrade the client to Kafka 0.11.0 or newer"
            )
        if client.refused_zstd:
            say(
                f"    {client.refused_zstd} fetches were refused, as the client does not read zstd: set "
                "gregor.message.downconversion.zstd.codec, or upgrade the client to Kafka 2.1 or newer"
            )
        if with_versions:
            say(f"    sends {_versions(client)}")


def _shown(clients: list[DescribedClient], *, only_refused: bool) -> list[DescribedClient]:
    """Return the clients of the list, those that Kafka 4 would refuse first."""
    return sorted(
        (client for client in clients if _is_shown(client, only_refused=only_refused)),
        key=lambda client: (not is_refused(client), client.client_id, client.host),
    )


def _as_object(client: DescribedClient) -> dict[str, object]:
    used = _used(client)
    return {
        "client_id": client.client_id,
        "host": client.host,
        "software_name": client.software_name,
        "software_version": client.software_version,
        "open": client.connection_count,
        "first_seen_ms": client.first_seen_ms,
        "last_seen_ms": client.last_seen_ms,
        "refused_by_kafka_4": is_refused(client),
        "verdict": client_verdict(client),
        "api_versions": [
            {"api": api_name(key), "version": version, "requests": entry.request_count}
            for (key, version), entry in zip(used, client.api_versions, strict=True)
        ],
        "down_conversion": _work_object(client.down_conversion),
        "up_conversion": _work_object(client.up_conversion),
        "refused_down_conversions": client.refused_down_conversions,
        "refused_zstd": client.refused_zstd,
    }


def _work_object(work: ConversionWork) -> dict[str, int]:
    return {
        "records": work.record_count,
        "stored_bytes": work.stored_bytes,
        "cpu_micros": work.cpu_micros,
        "temporary_memory_bytes": work.temporary_bytes,
    }


def _is_shown(client: DescribedClient, *, only_refused: bool) -> bool:
    if only_refused:
        return is_refused(client)
    # A client that only asks for the list of clients is not listed.
    return client.software_name != SOFTWARE_NAME or any(
        entry.api_key in (ApiKey.PRODUCE, ApiKey.FETCH) for entry in client.api_versions
    )


def _row(client: DescribedClient) -> tuple[object, ...]:
    software = f"{client.software_name} {client.software_version}".strip()
    requests = sum(entry.request_count for entry in client.api_versions)
    return (
        client.client_id or None,
        client.host,
        software or None,
        client.connection_count,
        requests,
        _work(client.down_conversion),
        _work(client.up_conversion),
    )


def _work(work: ConversionWork) -> str | None:
    if not work.record_count:
        return None
    return (
        f"{work.record_count} records, {work.stored_bytes / MIB:.1f} MiB, {work.cpu_micros / 1000:.0f} ms CPU, "
        f"{work.temporary_bytes / MIB:.1f} MiB through memory"
    )


def _used(client: DescribedClient) -> list[tuple[AnyApiKey, int]]:
    return [(api_key(entry.api_key), entry.api_version) for entry in client.api_versions]


def _versions(client: DescribedClient) -> str:
    return ", ".join(
        f"{api_name(api_key(entry.api_key))} v{entry.api_version} x{entry.request_count}"
        for entry in client.api_versions
    )
