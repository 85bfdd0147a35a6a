"""RecompressionsOnAppend: the broker recompresses for no format, codec or compression.type, and would count it."""

from __future__ import annotations

import pytest

from gregor.broker.api.handlers import produce as handler
from gregor.broker.reporting.log_families import log_families
from gregor.protocol.records.batches import iter_batches
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.produced_cy import Produced
from gregor.protocol.records.validation import validate
from tests.asking import Asking
from tests.broker.api.log_requests import batch, bytes_of, fetch, fetched, message_set, produce, produced


@pytest.mark.parametrize("wanted", ["producer", "gzip", "zstd", "lz4", "uncompressed"])
async def test_batches_are_stored_without_recompression_for_each_compression_type(asking: Asking, wanted: str) -> None:
    asking.broker.services.metadata.create_topic("t", configs={"compression.type": wanted})
    sent = []
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        for version, data in (
            (1, message_set(0, b"a", b"b", codec=codec)),
            (2, message_set(1, b"a", b"b", codec=codec)),
            (9, batch(b"a", b"b" * 100_000, codec=codec)),
        ):
            sent.append((len(data), codec))
            await produced(asking, produce(data), version)
    (answer,) = await fetched(asking, fetch((0, 0), gregor_as_stored=True), 12)
    stored = [(found.size_bytes, found.codec) for found in iter_batches(await bytes_of(answer))]
    assert stored == sent
    assert next(
        family for family in log_families(asking.broker.services) if "recompression" in family.name
    ).samples == [({}, 0)]


async def test_the_metric_counts_a_recompression(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def compressing(data: memoryview, *arguments: object, **more: object) -> Produced:
        return validate(memoryview(bytearray(data)), *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(handler, "check_plain_batch", lambda *_, **__: None)
    monkeypatch.setattr(handler, "validate", compressing)
    asking.broker.services.metadata.create_topic("t")
    await produced(asking, produce(batch(b"a", codec=Codec.GZIP)))
    assert asking.broker.services.metrics.recompressions_on_append == 1
    assert "RecompressionsOnAppend is no longer 0" in caplog.text
    asking.broker.services.metrics.recompressions_on_append = 0
