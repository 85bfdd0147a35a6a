"""Kafka's command-line tools by their names, for scripts that call them: `kafka-topics`, `kafka-configs` and others.

Each is a command of `gregor` with the same options. This module has what differs: options that Kafka gives another
name, and those that have no meaning here, which are refused by name. Oracle: the options of Kafka 3.9.1's tools.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import main

VERSION = ("--version",)
PRODUCER_PROPERTY = "--producer-property"
VALUE = "{}"
"""The place of an option's value in the words that replace the option."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of Kafka: its command, the options that other words replace, and those that are refused."""

    command: tuple[str, ...]
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Words that replace an option without a value."""
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Words that replace an option and its value, which `VALUE` stands for."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Options of Kafka's tool that are refused, with the reason."""


NO_CLASSES = "it names a Java class"
NO_ZOOKEEPER = "Gregor's tools connect to brokers: use --bootstrap-server"
NO_LOGGERS = "loggers are changed with any Kafka client's IncrementalAlterConfigs"
NO_TIERS = "Gregor has no tiered storage"

TOOLS = {
    "kafka-topics": Tool(
        ("topics",),
        options={"--partition-size-limit-per-response": ()},
        refused={
            "--zookeeper": NO_ZOOKEEPER,
            "--topic-id": "describe topics by name",
            "--delete-config": "use kafka-configs --alter --delete-config",
            "--at-min-isr-partitions": "use --under-replicated-partitions",
            "--under-min-isr-partitions": "use --under-replicated-partitions",
        },
    ),
    "kafka-configs": Tool(
        ("configs",),
        flags={
            "--broker-defaults": ("--entity-type", "brokers", "--entity-default"),
            "--user-defaults": ("--entity-type", "users", "--entity-default"),
            "--client-defaults": ("--entity-type", "clients", "--entity-default"),
            "--ip-defaults": ("--entity-type", "ips", "--entity-default"),
            "--force": (),
        },
        refused={
            "--zookeeper": NO_ZOOKEEPER,
            "--zk-tls-config-file": NO_ZOOKEEPER,
            "--bootstrap-controller": "use --bootstrap-server",
            "--broker-logger": NO_LOGGERS,
            "--add-config-file": "use --add-config",
        },
    ),
    "kafka-console-producer": Tool(
        ("produce",),
        options={
            "--broker-list": ("--bootstrap-server", VALUE),
            "--max-block-ms": (PRODUCER_PROPERTY, f"max.block.ms={VALUE}"),
            "--max-memory-bytes": (PRODUCER_PROPERTY, f"buffer.memory={VALUE}"),
            "--max-partition-memory-bytes": (PRODUCER_PROPERTY, f"batch.size={VALUE}"),
            "--message-send-max-retries": (PRODUCER_PROPERTY, f"retries={VALUE}"),
            "--metadata-expiry-ms": (PRODUCER_PROPERTY, f"metadata.max.age.ms={VALUE}"),
            "--request-timeout-ms": (PRODUCER_PROPERTY, f"request.timeout.ms={VALUE}"),
            "--retry-backoff-ms": (PRODUCER_PROPERTY, f"retry.backoff.ms={VALUE}"),
            "--socket-buffer-size": (PRODUCER_PROPERTY, f"send.buffer.bytes={VALUE}"),
        },
        refused={"--line-reader": NO_CLASSES, "--reader-config": "use --property"},
    ),
    "kafka-console-consumer": Tool(
        ("consume",),
        options={"--whitelist": ("--include", VALUE)},
        refused={
            "--zookeeper": NO_ZOOKEEPER,
            "--formatter": NO_CLASSES,
            "--formatter-config": "use --property",
            "--key-deserializer": NO_CLASSES,
            "--value-deserializer": NO_CLASSES,
            "--skip-message-on-error": "each record can be printed",
            "--enable-systest-events": "it is for Kafka's own tests",
        },
    ),
    "kafka-consumer-groups": Tool(
        ("groups",),
        refused={
            "--zookeeper": NO_ZOOKEEPER,
            "--type": "use --list and --state",
            "--validate-regex": "list the groups",
        },
    ),
    "kafka-acls": Tool(
        ("acls",),
        refused={
            "--authorizer": NO_ZOOKEEPER,
            "--authorizer-properties": NO_ZOOKEEPER,
            "--bootstrap-controller": "use --bootstrap-server",
            "--zk-tls-config-file": NO_ZOOKEEPER,
        },
    ),
    "kafka-reassign-partitions": Tool(
        ("reassign",),
        options={"--timeout": (), "--replica-alter-log-dirs-throttle": ()},
        flags={"--disable-rack-aware": ()},
        refused={"--bootstrap-controller": "use --bootstrap-server"},
    ),
    "kafka-transactions": Tool(("transactions",)),
    "kafka-features": Tool(
        ("features",),
        refused={
            "--bootstrap-controller": "use --bootstrap-server",
            "--metadata": "use --feature metadata.version=N",
            "--release-version": "use --feature NAME=VERSION",
        },
    ),
    "kafka-dump-log": Tool(
        ("dump-log",),
        options={"--max-message-size": ()},
        refused={
            "--key-decoder-class": NO_CLASSES,
            "--value-decoder-class": NO_CLASSES,
            "--index-sanity-check": "use gregor log verify",
            "--verify-index-only": "use gregor log verify",
            "--remote-log-metadata-decoder": NO_TIERS,
        },
    ),
    "kafka-storage": Tool(("storage",)),
    "kafka-broker-api-versions": Tool(("api-versions",)),
    "kafka-producer-perf-test": Tool(
        ("perf-test", "producer"),
        refused={"--payload-delimiter": "each line of --payload-file is a payload"},
    ),
    "kafka-consumer-perf-test": Tool(
        ("perf-test", "consumer"),
        options={
            "--broker-list": ("--bootstrap-server", VALUE),
            # Kafka's tool ignores them too.
            "--num-fetch-threads": (),
            "--threads": (),
        },
        refused={
            "--date-format": "the format is Kafka's default",
            "--fetch-size": "set max.partition.fetch.bytes in --consumer.config",
            "--socket-buffer-size": "set receive.buffer.bytes in --consumer.config",
        },
    ),
    "kafka-server-start": Tool(
        ("serve",), refused={"-daemon": "the broker runs in the foreground: use your shell's & or a service"}
    ),
}


class RefusedOptionError(Exception):
    """An error for an option of a tool that Gregor does not have; the text says what to use instead."""


def words_of(tool: Tool, arguments: Sequence[str]) -> list[str]:
    """Return the words of the command of `gregor` that does what a tool's arguments say. Raises RefusedOptionError."""
    words = list(tool.command)
    pending = list(arguments)
    while pending:
        name, equals, value = pending.pop(0).partition("=")
        if name in VERSION:
            return list(VERSION)
        if name in tool.refused:
            raise RefusedOptionError(f"{name} is not supported: {tool.refused[name]}")
        if name in tool.flags:
            words += tool.flags[name]
        elif name in tool.options:
            if not equals:
                if not pending:
                    raise RefusedOptionError(f"{name} needs a value")
                value = pending.pop(0)
            words += (word.replace(VALUE, value) for word in tool.options[name])
        else:
            words.append(name + equals + value)
    return words


def run_tool(name: str, arguments: Sequence[str]) -> int:
    """Run a tool and return its exit status: that of the command, or 1 after a line on standard error."""
    if name not in TOOLS:
        print(f"{name}: Gregor has no tool of this name", file=sys.stderr)  # noqa: T201
        return 1
    try:
        words = words_of(TOOLS[name], arguments)
    except RefusedOptionError as refused:
        print(f"{name}: {refused}", file=sys.stderr)  # noqa: T201
        return 1
    return main(words)


if __name__ == "__main__":
    sys.exit(run_tool(sys.argv[1].removesuffix(".sh"), sys.argv[2:]))
