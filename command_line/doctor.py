"""`gregor doctor`: look for the usual mistakes around a broker, and say what to change."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import trio

from ..client.admin import Admin
from ..client.wire.cluster import parse_servers
from ..protocol.spoken_versions import PINNED_RELEASES
from .asking import (
    DEFAULT_SERVER,
    SERVER_VARIABLE,
    add_json_option,
    client_id,
    counted,
    default_server,
    read_client_properties,
    run_tool,
    say,
    say_json,
)
from .colours import GREEN, RED, YELLOW, coloured
from .diagnosis import (
    Finding,
    Level,
    check_address,
    check_cluster,
    check_disk,
    check_limits,
    check_names,
    check_release,
)

TIMEOUT_MS = 5000
COLOURS = {Level.GOOD: GREEN, Level.WARNING: YELLOW, Level.PROBLEM: RED}
EXAMPLES = """\
examples:
  gregor doctor
  gregor doctor kafka:9092
  gregor doctor kafka:9092 --client-version 0.9 --json
  gregor doctor --dir /var/lib/gregor

The exit status is 1 if there is a problem.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "doctor",
        help="look for the usual mistakes around a broker",
        description="Check DNS, ports, advertised listeners, leaders and replicas of a cluster, and the limits and the "
        "disk of this machine.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "server",
        nargs="?",
        metavar="HOST:PORT",
        help=f"a broker (default: ${SERVER_VARIABLE}, or {DEFAULT_SERVER})",
    )
    parser.add_argument(
        "--bootstrap-server", dest="named_server", metavar="HOST:PORT,...", help="the same, as other commands take it"
    )
    parser.add_argument("--command-config", dest="client_config", metavar="FILE", help="client configurations")
    parser.add_argument("--dir", type=Path, default=Path("gregor-data"), metavar="DIR", help="log directory to check")
    parser.add_argument(
        "--client-version",
        choices=sorted(PINNED_RELEASES, key=lambda release: [int(part) for part in release.split(".")]),
        help="also say what a client of this Kafka release would meet",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; the exit code is 1 if one of them is a problem."""
    findings: list[Finding] = []

    def report(finding: Finding) -> None:
        findings.append(finding)
        if not arguments.json:
            level = coloured(f"{finding.level.value:<8}", COLOURS[finding.level], sys.stdout)
            say(f"{level} {finding.subject}: {finding.text}")

    async def examine() -> None:
        for check in (check_limits(), check_disk(arguments.dir), check_names()):
            for finding in check:
                report(finding)
        servers = arguments.server or arguments.named_server or default_server()
        properties = {
            "client.id": client_id(arguments.command),
            "default.api.timeout.ms": TIMEOUT_MS,
            **read_client_properties(arguments.client_config),
        }
        for host, port in parse_servers(servers):
            is_open = False
            async for finding in check_address(host, port):
                report(finding)
                is_open = is_open or (finding.subject == "ports" and finding.level is Level.GOOD)
            if not is_open:
                continue
            async with Admin(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", **properties) as admin:
                async for finding in check_cluster(admin, host):
                    report(finding)
                if arguments.client_version is not None:
                    async for finding in check_release(admin, arguments.client_version):
                        report(finding)

    status = run_tool(lambda: trio.run(examine))
    if status:
        return status
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    if arguments.json:
        say_json([{"level": level.value, "subject": subject, "text": text} for level, subject, text in findings])
    else:
        say(counted(problems, "problem") if problems else "no problem found")
    return 1 if problems else 0
