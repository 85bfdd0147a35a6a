"""Large answers to Fetch v16 and later: they pass while they arrive, without the addresses of upstream brokers."""

from __future__ import annotations

import random

import pytest

from gregor.broker.server.connection import UnanswerableError
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


def response(*endpoints: NodeEndpoint) -> FetchResponse:
    """Return an answer with every kind of field."""
    parts = [
        PartitionData(partition_index=0, records=memoryview(bytes(3000)), aborted_transactions=None),
        PartitionData(partition_index=1, error_code=6, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=7)),
        PartitionData(
            partition_index=2,
            records=b"",
            aborted_transactions=[AbortedTransaction(producer_id=n, first_offset=n) for n in range(3)],
            diverging_epoch=EpochEndOffset(epoch=1, end_offset=2),
        ),
    ]
    topics = [FetchableTopicResponse(partitions=parts), FetchableTopicResponse()]
    return FetchResponse(responses=topics, node_endpoints=list(endpoints))


def passed_on(body: bytes, seed: int, *, has_pipe: bool = False) -> bytes:
    """Return what a client gets of a body that arrives in pieces; with a pipe some pass unseen."""
    scanner, chance, found, position = HintScanner(len(body)), random.Random(seed), b"", 0
    while position < len(body):
        if has_pipe and scanner.unseen_bytes:
            size = chance.randint(1, scanner.unseen_bytes)
            scanner.pass_over(size)
            found += body[position : position + size]
            position += size
            continue
        piece = memoryview(body)[position : position + chance.choice((1, 2, 7, 500, 5000))]
        found += scanner.pass_on(piece)
        position += len(piece)
    return found + scanner.end()


@pytest.mark.parametrize("version", [16, 17, 18])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("has_pipe", [False, True])
def test_only_node_endpoints_are_removed_from_a_fetch_response(version: int, seed: int, has_pipe: bool) -> None:
    """The size was announced before, so it stays."""
    hinted = b"\0" + encode(response(NodeEndpoint(node_id=2, host="kafka-2", port=9092)), version)
    assert b"kafka-2" in hinted
    found = passed_on(hinted, seed, has_pipe=has_pipe)
    assert len(found) == len(hinted)
    assert encode(decode(FetchResponse, memoryview(found)[1:], version), version) == encode(response(), version)
    plain = b"\0" + encode(response(), version)
    assert passed_on(plain, seed, has_pipe=has_pipe) == plain


def test_a_malformed_answer_is_not_taken_for_a_complete_one() -> None:
    body = b"\0" + encode(response(), 16)
    with pytest.raises(UnanswerableError):
        passed_on(body[:-1], 0)
    with pytest.raises(UnanswerableError):
        passed_on(body + bytes(70_000), 0)
