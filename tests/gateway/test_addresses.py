"""Node ids and addresses of every answer, in every version, replaced in both modes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from gregor.broker.server.client_connection import Address
from gregor.gateway.addresses import has_brokers, rewrite_brokers
from gregor.protocol.apis import ApiKey, response_class, valid_versions
from gregor.protocol.codec import decode, encode
from gregor.protocol.field_meanings import field_meanings
from gregor.protocol.schema import Entity, Message, Struct
from tests.protocol.random_messages import random_message

KNOWN = range(1, 4)
"""The brokers that clients can reach."""


class Shown:
    """Addresses behind one address (``changes_node_ids``), or with a port for each broker."""

    def __init__(self, *, changes_node_ids: bool) -> None:
        self.changes_node_ids = changes_node_ids

    def bound_node(self, _: object) -> int | None:
        return None

    def node(self, node: int) -> int:
        return 77 if self.changes_node_ids and node >= 0 else node

    def address(self, node: int, _: object) -> Address | None:
        return ("gateway", 1000 + node) if node in KNOWN or self.changes_node_ids else None


def structs_in(struct: Struct) -> Iterator[Struct]:
    """Yield a structure and all structures in it."""
    yield struct
    for name in struct.FIELD_DEFAULTS:
        value = getattr(struct, name)
        for inside in value if isinstance(value, list) else [value]:
            if isinstance(inside, Struct):
                yield from structs_in(inside)


def nodes_in(struct: Struct) -> Iterator[int]:
    """Yield the node ids that a structure itself names."""
    for name, meaning in field_meanings(type(struct)).items():
        if meaning.entity is Entity.BROKER_ID:
            value: Any = getattr(struct, name)
            yield from value if isinstance(value, list) else () if value is None else (value,)


def is_sent(struct: Struct, name: str) -> bool:
    """Return whether a random answer has a field in its version: others have their defaults."""
    return bool(getattr(struct, name) != struct.FIELD_DEFAULTS[name])


def all_nodes_in(message: Message) -> set[int]:
    """Return the node ids in a message; one below 0 stands for no broker, as does the default of an absent field."""
    nodes = {node for struct in structs_in(message) for node in nodes_in(struct)}
    return {max(node, -1) for node in nodes}


def answers() -> Iterator[tuple[ApiKey, int, Message]]:
    """Yield random answers of every API and version that names brokers."""
    chance = Random(5)
    for key in ApiKey:
        oldest, newest = valid_versions(key)
        for version in range(oldest, newest + 1):
            if has_brokers(key, version):
                for _ in range(5):
                    yield key, version, random_message(response_class(key), version, chance)


@pytest.mark.parametrize("changes_node_ids", [True, False])
def test_no_answer_names_an_upstream_address(changes_node_ids: bool) -> None:
    shown: Any = Shown(changes_node_ids=changes_node_ids)
    client: Any = None
    seen = set()
    for key, version, message in answers():
        for struct in structs_in(message):
            for name, meaning in field_meanings(type(struct)).items():
                value = getattr(struct, name)
                if meaning.entity is Entity.BROKER_ID and isinstance(value, int) and is_sent(struct, name):
                    setattr(struct, name, KNOWN[value % len(KNOWN)])
            if "host" in struct.FIELD_DEFAULTS and is_sent(struct, "host") and any(nodes_in(struct)):
                struct.host = "upstream"  # type: ignore[attr-defined]
        if b"upstream" in encode(message, version):
            seen.add(key)
        rewrite_brokers(message, version, shown, client)
        sent = encode(message, version)
        assert b"upstream" not in sent, (key, version)
        assert not changes_node_ids or {-1, 0, 77} >= all_nodes_in(decode(type(message), sent, version)), (key, version)
    assert {ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.PRODUCE} <= seen
