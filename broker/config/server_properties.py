"""The table of keys as text: a commented ``server.properties``, and the output of ``gregor config``."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Iterator

from .authorization import AuthorizationKeys
from .cluster import ClusterKeys
from .controller import ControllerKeys
from .coordinators import CoordinatorKeys
from .gateway_keys import GatewayKeys
from .gregor_keys import GregorKeys
from .ignored_keys import ignored_keys
from .keys import Key, Update
from .log import LogKeys
from .network import NetworkKeys
from .replication import ReplicationKeys
from .security_keys import SecurityKeys
from .table import SECTIONS, SUPPORTED_KEYS, section_keys
from .zookeeper_keys import ZooKeeperKeys

TITLES: dict[type, str] = {
    ClusterKeys: "The node and its cluster",
    ControllerKeys: "The controller, and the brokers that follow it",
    ReplicationKeys: "Replication: copies of partitions on several brokers",
    NetworkKeys: "Listeners, connections, requests",
    SecurityKeys: "Encryption and authentication (for one listener: listener.name.NAME.KEY)",
    LogKeys: "Topics and their logs (most are defaults that a topic may override)",
    CoordinatorKeys: "Groups, offsets, transactions",
    AuthorizationKeys: "Authorization",
    GregorKeys: "Keys that only Gregor has",
    ZooKeeperKeys: "ZooKeeper's protocol, for consumers of Kafka 0.8 and 0.9",
    GatewayKeys: "The gateway (docs/gateway.md)",
}
UPDATES = {
    Update.READ_ONLY: "",
    Update.PER_BROKER: "may change while the broker runs",
    Update.CLUSTER_WIDE: "may change while the broker runs",
}
PREAMBLE = """\
# Configuration of a Gregor broker: every key that has an effect, with its default and, if it has one, its range.
#
# Lines that begin with # are comments: remove the # to set a key. The broker also runs without this file. Keys and
# their meanings are Kafka's. A server.properties of Kafka works unchanged: Gregor ignores keys that it does not need.
# This file is generated from the table in broker/config by `gregor config --write`.
"""


def server_properties() -> str:
    """Return the whole file: each key commented out, with its default."""
    return PREAMBLE + "".join(_section(section) for section in SECTIONS)


def described(words: Iterable[str] = ()) -> Iterator[str]:
    """Yield one paragraph for each key whose name contains one of ``words``, or for all keys."""
    wanted = list(words)
    for key in SUPPORTED_KEYS.values():
        if not key.internal and (not wanted or any(word in key.name for word in wanted)):
            notes = [key.type.name, *_notes(key)]
            yield f"{_assignment(key)}\n    {key.sentence} ({'; '.join(notes)})"


def as_objects(words: Iterable[str] = ()) -> Iterator[dict[str, object]]:
    """Yield the keys that `described` describes, as JSON objects."""
    wanted = list(words)
    for key in SUPPORTED_KEYS.values():
        if not key.internal and (not wanted or any(word in key.name for word in wanted)):
            yield {
                "name": key.name,
                "type": key.type.name,
                "default": key.render(key.default),
                "valid_values": key.valid_values or None,
                "update": key.update.name.lower(),
                "description": key.sentence,
            }


def why_none(word: str) -> str | None:
    """Return a message why no key is described for ``word``; None if some are."""
    if any(word in key.name for key in SUPPORTED_KEYS.values() if not key.internal):
        return None
    ignored = [name for name in ignored_keys() if word in name]
    if ignored:
        return f"{', '.join(ignored)}: accepted for Kafka's sake, without effect"
    nearest = difflib.get_close_matches(word, [*SUPPORTED_KEYS, *ignored_keys()], n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"no configuration has {word} in its name{hint}"


def _section(section: type) -> str:
    title = TITLES[section]
    lines = ["", f"# {'-' * len(title)}", f"# {title}", f"# {'-' * len(title)}", ""]
    for key in section_keys(section):
        if key.internal:
            continue
        notes = _notes(key)
        text = key.sentence + (f" ({'; '.join(notes)})" if notes else "")
        lines += [f"# {line}" for line in textwrap.wrap(text, 110)]
        lines += [f"#{_assignment(key)}", ""]
    return "\n".join(lines)


def _assignment(key: Key) -> str:
    return f"{key.name}={key.render(key.default) or ''}"


def _notes(key: Key) -> list[str]:
    return [note for note in (key.valid_values, UPDATES[key.update]) if note]
