"""`gregor features`: show and change the finalized features of a cluster, with the options of kafka-features."""

from __future__ import annotations

import argparse

from ..client.admin import Admin
from ..client.admin.cluster import UpgradeType
from .asking import UsageError, add_connection_options, add_json_option, client_properties, run_client, say, say_json

EXAMPLES = """\
examples:
  gregor features describe
  gregor features upgrade --feature transaction.version=2
  gregor features downgrade --feature transaction.version=1 --dry-run
  gregor features disable --feature transaction.version
"""
ACTIONS = {
    "describe": "show the supported and the finalized versions",
    "upgrade": "finalize features at higher versions",
    "downgrade": "finalize features at lower versions",
    "disable": "remove finalized features",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "features",
        help="show and change the features of a cluster",
        epilog=EXAMPLES,
    )
    add_connection_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="|".join(ACTIONS), required=True)
    for name, text in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        add_connection_options(action, is_repeated=True)
        if name == "describe":
            add_json_option(action)
            continue
        action.add_argument(
            "--feature",
            action="append",
            required=True,
            metavar="NAME" if name == "disable" else "NAME=VERSION",
            help="a feature; repeatable",
        )
        action.add_argument("--dry-run", action="store_true", help="validate only, change nothing")
        if name != "upgrade":
            action.add_argument("--unsafe", action="store_true", help="allow a downgrade that may lose metadata")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit code is 1 if the cluster refused."""

    async def work() -> None:
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            await (_describe if arguments.action == "describe" else _update)(admin, arguments)

    return run_client(work, arguments.bootstrap_server)


async def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    features = sorted((await admin.describe_features()).items())
    if arguments.json:
        say_json(
            [
                {
                    "feature": name,
                    "supported_min": found.min_version,
                    "supported_max": found.max_version,
                    "finalized": found.finalized,
                }
                for name, found in features
            ]
        )
        return
    for name, found in features:
        say(
            f"Feature: {name}\tSupportedMinVersion: {found.min_version}\tSupportedMaxVersion: {found.max_version}"
            f"\tFinalizedVersionLevel: {found.finalized}"
        )


async def _update(admin: Admin, arguments: argparse.Namespace) -> None:
    updates = dict(_parsed(text, disables=arguments.action == "disable") for text in arguments.feature)
    if arguments.action == "upgrade":
        kind = UpgradeType.UPGRADE
    else:
        kind = UpgradeType.UNSAFE_DOWNGRADE if arguments.unsafe else UpgradeType.SAFE_DOWNGRADE
    await admin.update_features(updates, upgrade_type=kind, validate_only=arguments.dry_run)
    for name, version in updates.items():
        done = "would be" if arguments.dry_run else "was"
        say(f"{name} {done} disabled." if version == 0 else f"{name} {done} {arguments.action}d to {version}.")


def _parsed(text: str, *, disables: bool) -> tuple[str, int]:
    """Return a feature and its version, 0 to disable it. Raises UsageError."""
    name, equals, version = text.partition("=")
    if disables and not equals:
        return name, 0
    if disables or not version.isdecimal():
        raise UsageError(f"--feature must look like {'NAME' if disables else 'NAME=VERSION'}, not {text!r}")
    return name, int(version)
