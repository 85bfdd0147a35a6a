"""Large answers to Fetch v16 and later: they pass while they arrive, with the addresses that clients know."""

from __future__ import annotations

import random
from typing import cast

import pytest

from gregor.broker.server.client_connection import Address, ClientConnection, UnanswerableError
from gregor.gateway.fetching.leader_hints import HintScanner
from gregor.protocol.codec import decode, encode
from gregor.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

CLIENT = cast(ClientConnection, None)
"""A client that no address depends on."""


class Shown:
    """Addresses at one host, behind one node id (``changes_node_ids``), or with a port for each broker."""

    def __init__(self, host: str, *, changes_node_ids: bool) -> None:
        self.changes_node_ids = changes_node_ids
        self.host = host

    def bound_node(self, _: object) -> int | None:
        return None

    def node(self, node: int) -> int:
        return 0x01020304 if self.changes_node_ids and node >= 0 else node

    def address(self, node: int, _: object) -> Address | None:
        return (self.host, 1000 + node) if node < 3 or self.changes_node_ids else None


def response(*endpoints: NodeEndpoint, leader: int = 2) -> FetchResponse:
    """Return an answer with every kind of field."""
    parts = [
        PartitionData(partition_index=0, records=memoryview(bytes(3000)), aborted_transactions=None),
        PartitionData(
            partition_index=1, error_code=6, current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=7)
        ),
        PartitionData(
            partition_index=2,
            records=b"",
            aborted_transactions=[AbortedTransaction(producer_id=n, first_offset=n) for n in range(3)],
            diverging_epoch=EpochEndOffset(epoch=1, end_offset=2),
        ),
    ]
    topics = [FetchableTopicResponse(partitions=parts), FetchableTopicResponse()]
    return FetchResponse(responses=topics, node_endpoints=list(endpoints))


def passed_on(body: bytes, seed: int, shown: Shown, *, version: int = 16, has_pipe: bool = False) -> bytes:
    """Return what a client gets of a body that arrives in pieces; with a pipe some pass unseen."""
    scanner, chance = HintScanner(len(body), version, shown, CLIENT), random.Random(seed)
    found, position, arriving = b"", 0, memoryview(bytearray(body))
    while position < len(body):
        if has_pipe and scanner.unseen_bytes:
            size = chance.randint(1, scanner.unseen_bytes)
            scanner.pass_over(size)
            found += body[position : position + size]
            position += size
            continue
        piece = arriving[position : position + chance.choice((1, 2, 7, 500, 5000))]
        found += scanner.pass_on(piece)
        position += len(piece)
    return found + scanner.end()


def decoded(body: bytes, version: int) -> FetchResponse:
    """Return an answer of these bytes."""
    return decode(FetchResponse, memoryview(body)[1:], version)


@pytest.mark.parametrize("version", [16, 17, 18])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("has_pipe", [False, True])
@pytest.mark.parametrize("changes_node_ids", [False, True])
@pytest.mark.parametrize("host", ["k", "kafka-", "kafka-2"])
def test_hints_have_the_addresses_that_clients_know(
    version: int, seed: int, has_pipe: bool, changes_node_ids: bool, host: str
) -> None:
    """The size was announced before, so it stays."""
    endpoints = [NodeEndpoint(node_id=node, host="kafka-22", port=9092) for node in (2, 9)]
    hinted = b"\0" + encode(response(*endpoints), version)
    shown = Shown(host, changes_node_ids=changes_node_ids)
    found = passed_on(hinted, seed, shown, version=version, has_pipe=has_pipe)
    assert len(found) == len(hinted)
    node = shown.node(2)
    # With a port for each broker, broker 9 is one that clients cannot reach.
    known = NodeEndpoint(node_id=node, host=host, port=1002)
    expected = encode(response(known, leader=node), version)
    assert encode(decoded(found, version), version) == expected


@pytest.mark.parametrize("version", [16, 18])
@pytest.mark.parametrize("host", ["kafka-2", "a-much-longer-name-than-that-of-the-broker"])
def test_addresses_that_do_not_fit_are_left_out(version: int, host: str) -> None:
    """One byte is too little for a field that fills it."""
    hinted = b"\0" + encode(response(NodeEndpoint(node_id=2, host="kafka-22", port=9092)), version)
    found = passed_on(hinted, 0, Shown(host, changes_node_ids=False), version=version)
    assert len(found) == len(hinted)
    assert encode(decoded(found, version), version) == encode(response(), version)


@pytest.mark.parametrize("left_bytes", [0, 2, 3, 120, 127, 128, 129, 130, 131, 132, 400, 17_000])
def test_an_unknown_field_fills_the_place_of_longer_addresses(left_bytes: int) -> None:
    hinted = b"\0" + encode(response(NodeEndpoint(node_id=2, host="k" * (left_bytes + 1), port=9092)), 16)
    found = passed_on(hinted, 0, Shown("k", changes_node_ids=False))
    assert len(found) == len(hinted)
    assert [endpoint.host for endpoint in decoded(found, 16).node_endpoints] == ["k"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("leader", [-1, 0, 200])
def test_a_node_id_is_replaced_wherever_pieces_end(seed: int, leader: int) -> None:
    shown = Shown("gateway", changes_node_ids=True)
    found = passed_on(b"\0" + encode(response(leader=leader), 16), seed, shown)
    assert encode(decoded(found, 16), 16) == encode(response(leader=shown.node(leader)), 16)


@pytest.mark.parametrize("has_pipe", [False, True])
def test_answers_without_a_hint_pass_unchanged(has_pipe: bool) -> None:
    plain = b"\0" + encode(response(), 16)
    assert passed_on(plain, 0, Shown("k", changes_node_ids=False), has_pipe=has_pipe) == plain


def test_a_malformed_answer_is_not_taken_for_a_complete_one() -> None:
    body, shown = b"\0" + encode(response(), 16), Shown("k", changes_node_ids=False)
    with pytest.raises(UnanswerableError):
        passed_on(body[:-1], 0, shown)
    with pytest.raises(UnanswerableError):
        passed_on(body + bytes(70_000), 0, shown)
    with pytest.raises(UnanswerableError, match="malformed"):
        passed_on(body[:-1] + b"\1\0\5\2\2\2\2\2", 0, shown)
