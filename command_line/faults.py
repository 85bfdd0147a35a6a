"""`gregor faults`: add, list and clear fault rules of a Gregor broker: delays, errors, disconnects and others."""

from __future__ import annotations

import argparse

from ..broker.config.fault_keys import RULE_PREFIX
from ..broker.faults.rule import SPARED_CLIENT_ID
from ..broker.faults.rule_syntax import WORDS, FaultRuleError, join_words, parse_time_ms
from ..client.admin import Admin
from .asking import UsageError, add_connection_options, add_json_option, client_properties, run_client, say, say_json
from .fault_rules import ALL_BROKERS, clear_faults, list_rules, set_clock_offset, set_rule
from .named_brokers import check_brokers
from .text_table import as_objects, format_table

HEAD = ("BROKER", "NAME", "FROM", "RULE")

DESCRIPTION = """\
Set fault rules on a Gregor broker, to test how clients react. The broker must have been started with
gregor.fault.injection.enable=true. Rules are dynamic broker configurations (gregor.fault.rule.NAME), so any Kafka admin
client can set them too.

  gregor faults add slow api=Produce topic=orders delay=20ms
  gregor faults add moved api=Produce topic=orders partition=0 error=NOT_LEADER_OR_FOLLOWER first=3
  gregor faults add lost-acks api=Produce at=answer disconnect probability=0.01
  gregor faults add full-disk disk=append error=ENOSPC topic=orders until=30s
  gregor faults add --broker 1 cut broker=3 stall           broker 1 no longer answers broker 3
  gregor faults list
  gregor faults clear slow
  gregor faults clear                                       remove all rules and the clock's offset
  gregor faults clock 90m                                   set the brokers' clocks ahead
  gregor faults clock 1h --behind
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "faults",
        help="make a Gregor broker slow, refuse requests or close connections, for tests of clients",
        description=DESCRIPTION,
        epilog=_words_epilog(),
    )
    actions = parser.add_subparsers(dest="action", metavar="add|list|clear|clock", required=True)
    adding = _action(actions, "add", "set a rule, or replace the rule of that name", epilog=_words_epilog())
    adding.add_argument("name", metavar="NAME", help="name of the rule, also in the log and in metrics")
    adding.add_argument("words", metavar="WORD", nargs="+", help="a word of the rule; see below")
    add_json_option(_action(actions, "list", "list the rules of each broker, and where each rule was set"))
    clearing = _action(actions, "clear", "remove rules")
    clearing.add_argument(
        "names", metavar="NAME", nargs="*", help="rules to remove (default: all rules and the clock's offset)"
    )
    moving = _action(actions, "clock", "shift the clocks of the brokers")
    moving.add_argument("offset", metavar="TIME", help="difference from the right time: 90m, 1h, 0")
    moving.add_argument("--behind", action="store_true", help="set the clock behind the right time instead of ahead")
    parser.set_defaults(run=run)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, sentence: str, epilog: str | None = None
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        help=sentence,
        description=sentence,
        epilog=epilog,
    )
    add_connection_options(parser)
    parser.add_argument("--broker", type=int, metavar="ID", help="only this broker (default: all brokers)")
    return parser


def _words_epilog() -> str:
    lines = [f"  {word:<12} {meaning}" for word, meaning in WORDS.items()]
    return "words of a rule:\n" + "\n".join(lines)


def run(arguments: argparse.Namespace) -> int:
    """Run the action and return the exit code: 1 if the broker refused."""

    async def work() -> None:
        properties = {**client_properties(arguments), "client.id": SPARED_CLIENT_ID}
        async with Admin(arguments.bootstrap_server, **properties) as admin:
            if arguments.broker is not None:
                await check_brokers(admin, "--broker", [arguments.broker])
            await {"add": _add, "list": _list, "clear": _clear, "clock": _move_clock}[arguments.action](
                admin, arguments
            )

    return run_client(work, arguments.bootstrap_server)


def _target(arguments: argparse.Namespace) -> str:
    return ALL_BROKERS if arguments.broker is None else str(arguments.broker)


async def _add(admin: Admin, arguments: argparse.Namespace) -> None:
    words: list[str] = arguments.words
    # A quoted rule is one word of the shell.
    text = words[0] if len(words) == 1 else join_words(words)
    try:
        await set_rule(admin, arguments.name, text, target=_target(arguments))
    except FaultRuleError as error:
        raise UsageError(str(error)) from None
    say(f"{arguments.name}: {text}")


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    rules = await list_rules(admin, await _brokers(admin, arguments))
    if arguments.json:
        say_json(as_objects(HEAD, rules))
        return
    for line in format_table(HEAD, rules):
        say(line)


async def _clear(admin: Admin, arguments: argparse.Namespace) -> None:
    wanted = {RULE_PREFIX + name for name in arguments.names}
    broker = None if arguments.broker is None else str(arguments.broker)
    known = await clear_faults(admin, wanted, broker=broker)
    missing = sorted(name.removeprefix(RULE_PREFIX) for name in wanted - known)
    if missing:
        raise UsageError(f"no such rule: {', '.join(missing)}")
    names = sorted(name.removeprefix(RULE_PREFIX) for name in known)
    say(f"cleared {', '.join(names) if names else 'nothing: no rule was set'}")


async def _move_clock(admin: Admin, arguments: argparse.Namespace) -> None:
    try:
        offset_ms = round(parse_time_ms(arguments.offset)) * (-1 if arguments.behind else 1)
    except FaultRuleError as error:
        raise UsageError(str(error)) from None
    await set_clock_offset(admin, offset_ms, target=_target(arguments))
    say(f"clock {offset_ms:+} ms")


async def _brokers(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    if arguments.broker is not None:
        return [str(arguments.broker)]
    return [str(broker) for broker in sorted((await admin.describe_cluster()).brokers)]
