"""`gregor api-versions`: the versions of each API that each broker serves, as kafka-broker-api-versions prints them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from ..client.admin import Admin
from ..protocol.apis import ApiKey, api_name, request_class
from ..protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ..protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from .asking import add_connection_options, add_json_option, client_properties, run_client, say, say_json

NAMES = {int(key): api_name(key) for key in ApiKey}


EXAMPLES = """\
examples:
  gregor api-versions
  gregor api-versions --bootstrap-server kafka:9092 --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "api-versions",
        help="print the versions of each API that each broker serves",
        description="Print the versions of each API that each broker serves, and the newest that `gregor` would use.",
        epilog=EXAMPLES,
    )
    add_connection_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the versions and return the exit code."""

    async def work() -> None:
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            metadata = await admin.ask_any(MetadataRequest(topics=[]), MetadataResponse)
            request = ApiVersionsRequest(client_software_name="gregor", client_software_version="1")
            answers = await admin.ask_each(request, ApiVersionsResponse)
            if arguments.json:
                say_json([_as_object(broker, answers[broker.node_id].api_keys) for broker in metadata.brokers])
                return
            for broker in sorted(metadata.brokers, key=lambda broker: broker.node_id):
                say(f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'}) -> (")
                lines = list(api_lines(answers[broker.node_id].api_keys))
                say(",\n".join(f"\t{line}" for line in lines))
                say(")")

    return run_client(work, arguments.bootstrap_server)


def _as_object(broker: MetadataResponseBroker, served: Iterable[ApiVersion]) -> dict[str, object]:
    apis = [
        {
            "api": NAMES.get(api.api_key, "UNKNOWN"),
            "api_key": api.api_key,
            "min_version": api.min_version,
            "max_version": api.max_version,
        }
        for api in served
    ]
    return {"host": broker.host, "port": broker.port, "id": broker.node_id, "rack": broker.rack, "apis": apis}


def api_lines(served: Iterable[ApiVersion]) -> Iterator[str]:
    """Yield a line for each API that a broker serves or this client knows, in the form of Kafka's `NodeApiVersions`."""
    by_key = {api.api_key: api for api in served}
    for key in sorted({*NAMES, *by_key}):
        name = f"{NAMES.get(key, 'UNKNOWN')}({key})"
        if key not in by_key:
            yield f"{name}: UNSUPPORTED"
            continue
        least, newest = by_key[key].min_version, by_key[key].max_version
        versions = str(least) if least == newest else f"{least} to {newest}"
        yield f"{name}: {versions} [usable: {_usable(key, least, newest)}]"


def _usable(key: int, least: int, newest: int) -> str:
    if key not in NAMES:
        return "UNKNOWN"
    known = request_class(ApiKey(key)).VERSIONS
    usable = min(newest, known.last)
    return str(usable) if usable >= max(least, known.first) else "UNSUPPORTED"
