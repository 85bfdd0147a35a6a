"""The tags that go with copied bytes: every value survives the wire, and no bytes from the wire can do harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v1
from gregor.protocol.records.batches import BatchView, Record, iter_batches
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.tag_runs import RUN, TagRun, TagRuns

INT64 = st.integers(-(2**63), 2**63 - 1)
RUNS = st.builds(TagRun, st.just(0), INT64, st.booleans(), INT64, st.integers(-(2**31), 2**31 - 1))


def wrapper(first: int, last: int) -> BatchView:
    records = [Record(offset, 1_000, None, b"v") for offset in (first, last)]
    (view,) = iter_batches(v1.build_message_set(records, codec=Codec.GZIP))
    return view


@given(st.dictionaries(st.integers(0, 2**31 - 1), RUNS))
def test_encoded_tag_runs_are_decoded(by_position: dict[int, TagRun]) -> None:
    runs = [run._replace(position=position) for position, run in sorted(by_position.items())]
    assert list(TagRuns.decode(TagRuns(runs).encode())) == runs


@given(st.binary(max_size=3 * RUN.size))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        runs = TagRuns.decode(data)
    except BrokerError:
        return
    assert len(runs.encode()) == len(data)
    runs.of(wrapper(5, 8))


@pytest.mark.parametrize("positions", [(0, 0), (30, 10)])
def test_tag_runs_with_positions_out_of_order_are_refused(positions: tuple[int, ...]) -> None:
    with pytest.raises(BrokerError, match="do not rise") as caught:
        TagRuns.decode(TagRuns([TagRun(position) for position in positions]).encode())
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("first", "count"), [(9, 1), (-2, 2), (5, 5), (5, 0), (5, -3)], ids=str)
def test_impossible_message_counts_of_a_tag_run_are_ignored(first: int, count: int) -> None:
    """A wrapper up to offset 8 cannot begin at 9, or have five messages from offset 5 on."""
    run = TagRuns([TagRun(0, 70, keyed=False, first_offset=first, num_messages=count)]).of(wrapper(5, 8))
    assert run == TagRun(0, 70, keyed=False)


def test_a_tag_run_extends_to_the_next_but_its_count_applies_to_one_batch() -> None:
    runs = TagRuns([TagRun(10, 70, True, 5, 2), TagRun(500, 90)])
    view = wrapper(5, 8)
    assert runs.of(view) is None, "the first run begins behind the batch"
    assert runs.since(10).of(view) == TagRun(0, 70, True, 5, 2)
    assert runs.since(20).of(view) == TagRun(0, 70)
    assert list(runs.since(20)) == [TagRun(0, 70), TagRun(480, 90)]
    assert list(runs.since(700)) == [TagRun(0, 90)]
    assert list(runs.since(3)) == [TagRun(7, 70, True, 5, 2), TagRun(497, 90)]
