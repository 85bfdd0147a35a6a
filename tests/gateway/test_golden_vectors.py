"""Golden vectors of Kafka's lazy down-conversion, fetched through a gateway."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from gregor.protocol.records.batches import iter_batches
from tests.gateway.golden_upstream import GoldenUpstream, golden_upstream
from tests.gateway.kafka_4 import gateway_before
from tests.wire import Wire

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "golden" / "lazy.jsonl.gz"
FETCH_OF_MAGIC = {0: 1, 1: 3}
"""A Fetch version of readers of each format."""
NOTHING_BYTES = 12
"""Size of Kafka's answer where no batch gives a message; a gateway fetches on instead, and answers with no byte."""


def cases() -> Iterator[Any]:
    """Yield the vectors whose bytes do not depend on a codec's library."""
    if VECTORS.exists():
        with gzip.open(VECTORS, "rt", encoding="utf-8") as lines:
            yield from (case for case in map(json.loads, lines) if case["exact"] or "error" in case)


@pytest.fixture(scope="module")
def golden() -> Iterator[tuple[GoldenUpstream, Wire]]:
    """Provide an upstream for golden bytes, and a client of a gateway in front of it."""
    with (
        golden_upstream() as upstream,
        gateway_before(f"127.0.0.1:{upstream.port}") as gateway,
        Wire(("127.0.0.1", gateway.listening[0].port)) as wire,
    ):
        yield upstream, wire


@pytest.mark.skipif(not VECTORS.exists(), reason="../shared/golden is not here")
@pytest.mark.parametrize("case", list(cases()), ids=lambda case: str(case["name"]))
def test_down_converted_records_have_the_same_bytes_as_in_kafka(golden: tuple[GoldenUpstream, Wire], case: Any) -> None:
    """Kafka's own bytes, or those without its two faults where the vector has them; padding may be shorter."""
    upstream, wire = golden
    upstream.records = base64.b64decode(case["input"])
    part = FetchPartition(partition=0, fetch_offset=case["first_offset"], partition_max_bytes=1 << 30)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[part])])
    answer = wire.ask(ApiKey.FETCH, FETCH_OF_MAGIC[case["to_magic"]], request).responses[0].partitions[0]
    assert isinstance(answer, PartitionData)
    if "error" in case:
        assert answer.error_code == case["error"]["code"]
        return
    expected = base64.b64decode(case.get("clean_output") or case["output"])
    found = bytes(answer.records or b"")  # type: ignore[arg-type]
    assert len(found) <= len(expected)
    assert complete_part(found) == complete_part(b"" if len(expected) == NOTHING_BYTES else expected)


def complete_part(messages: bytes) -> bytes:
    """Return the messages that an old client reads: those before the first partial one, as padding is."""
    end = max((batch.end for batch in iter_batches(messages)), default=0)
    return messages[:end]
