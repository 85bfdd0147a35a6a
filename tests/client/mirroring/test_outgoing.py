"""Batches for a target that assigns offsets itself, and for one that keeps the source's offsets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.client.mirroring.outgoing import Outgoing, TargetRules, renumbered, with_offsets_kept
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import BatchView, Record, iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import TimestampType

LARGE = TargetRules(1 << 20, takes_old_formats=True)
MODERN = TargetRules(1 << 20, takes_old_formats=False)


def records(*offsets: int) -> list[Record]:
    return [Record(offset, 1_000 + offset, b"k%d" % offset, b"v%d" % offset) for offset in offsets]


def views(data: bytes) -> list[BatchView]:
    return list(iter_batches(data))


def contents(payload: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.timestamp, r.key, r.value) for batch in iter_batches(payload) for r in iter_records(batch)]


def sent(data: bytes, first_offset: int = 0, rules: TargetRules = LARGE) -> list[tuple[Outgoing, bytes]]:
    return [(item, item.with_producer(7, 0, 0)) for item in renumbered(views(data), first_offset, rules)]


def test_only_the_header_of_v2_changes() -> None:
    raw = v2.build_batch(records(40, 41, 42), base_offset=40, codec=Codec.ZSTD, producer_id=3, is_transactional=True)
    ((item, payload),) = sent(raw)
    assert (item.record_count, item.source_end, item.is_legacy) == (3, 43, False)
    (view,) = views(payload)
    assert (view.stored_offset, view.producer_id, view.is_transactional, view.crc_is_valid) == (0, 7, False, True)
    assert payload[v2.RECORDS_AT :] == raw[v2.RECORDS_AT :]


@pytest.mark.parametrize(
    "raw",
    [
        v2.build_batch(records(40, 44), base_offset=40, last_offset=49, codec=Codec.GZIP),
        v2.build_batch(
            records(40, 44),
            base_offset=40,
            last_offset=49,
            codec=Codec.LZ4,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            max_timestamp=9_999,
        ),
    ],
    ids=["holes", "append time"],
)
def test_batches_that_cannot_be_sent_unchanged_are_rebuilt(raw: bytes) -> None:
    ((item, payload),) = sent(raw)
    (before,), (view,) = views(raw), views(payload)
    assert (item.record_count, item.source_end) == (2, 50)
    assert (view.last_offset, view.codec, view.timestamp_type) == (1, before.codec, TimestampType.CREATE_TIME)
    assert contents(payload) == contents(raw)


def test_records_before_the_first_wanted_offset_are_left_out() -> None:
    raw = v2.build_batch(records(40, 41, 42), base_offset=40)
    ((item, payload),) = sent(raw, first_offset=41)
    assert (item.record_count, [value for _, _, value in contents(payload)]) == (2, [b"v41", b"v42"])
    kept = with_offsets_kept(views(raw)[0], 41)
    assert [record.offset for view in views(kept) for record in iter_records(view)] == [41, 42]
    assert with_offsets_kept(views(raw)[0], 50) == b""


def test_batches_emptied_by_compaction_are_not_sent() -> None:
    raw = v2.build_batch([], base_offset=40, last_offset=49, producer_id=3)
    assert sent(raw) == []
    assert with_offsets_kept(views(raw)[0], 0) == b""


@given(st.integers(1, 60), st.integers(80, 2_000))
def test_too_large_batches_are_halved_until_they_fit(count: int, limit: int) -> None:
    raw = v2.build_batch(records(*range(40, 40 + count)), base_offset=40)
    pieces = sent(raw, rules=TargetRules(limit, takes_old_formats=True))
    assert contents(b"".join(payload for _, payload in pieces)) == contents(raw)
    assert pieces[-1][0].source_end == 40 + count
    for item, payload in pieces:
        assert len(payload) <= limit or item.record_count == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_old_messages_are_sent_together_and_compressed_wrappers_alone(magic: int) -> None:
    module = v0 if magic == 0 else v1
    plain = module.build_message_set(records(40, 41, 43))
    wrapped = module.build_message_set(records(44, 45), codec=Codec.GZIP)
    modern = v2.build_batch(records(46), base_offset=46)
    items = sent(plain + wrapped + plain.replace(b"v4", b"v5") + modern)
    assert [(item.record_count, item.is_legacy) for item, _ in items] == [(3, True), (2, True), (3, True), (1, False)]
    assert [item.source_end for item, _ in items[:2]] == [44, 46]
    assert items[0][1] == plain
    assert items[1][1] == wrapped


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_converted_to_v2_for_targets_that_refuse_them(magic: int) -> None:
    module = v0 if magic == 0 else v1
    data = module.build_message_set(records(40, 41)) + module.build_message_set(records(42, 43), codec=Codec.GZIP)
    payloads = [payload for _, payload in sent(data, rules=MODERN)]
    assert {view.magic for payload in payloads for view in views(payload)} == {2}
    assert contents(b"".join(payloads)) == contents(data)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_kept_offsets_are_kept_in_every_format(gaps: Sequence[int], codec: Codec) -> None:
    offsets, offset = [], 100
    for gap in gaps:
        offset += gap
        offsets.append(offset)
        offset += 1
    for raw in (
        v1.build_message_set(records(*offsets), codec=codec),
        v2.build_batch(records(*offsets), base_offset=100, codec=codec),
    ):
        kept = b"".join(with_offsets_kept(view, 0) for view in views(raw))
        assert [r.offset for view in views(kept) for r in iter_records(view)] == offsets
        assert contents(kept) == contents(raw)
