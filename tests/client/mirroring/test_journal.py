"""The journal of a copy: a mirror killed at any moment continues after the last record that arrived."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.client.mirroring import MirrorError
from gregor.client.mirroring.journal import MAX_TEXT_BYTES, Journal, Position, Step, steps_that_fit
from gregor.client.mirroring.outgoing import Outgoing
from gregor.client.wire.group_offsets import CommittedOffset

STEPS = st.builds(
    lambda count, hole, is_legacy: Step(count, count + hole, is_legacy),
    st.integers(1, 1000),
    st.sampled_from([0, 0, 7]),
    st.booleans(),
)
POSITIONS = st.builds(
    Position, st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62), st.just(0), st.integers(0, 2**31 - 1)
)


@given(POSITIONS, st.lists(STEPS, max_size=20))
def test_a_written_journal_is_read_back(position: Position, steps: list[Step]) -> None:
    journal = Journal(position, tuple(steps))
    assert Journal.read(journal.committed()) == journal


@given(POSITIONS, st.lists(STEPS, min_size=1, max_size=20), st.data())
def test_the_position_is_resumed_from_the_log_end_offset_of_the_target(
    position: Position, steps: list[Step], data: st.DataObject
) -> None:
    taken = data.draw(st.integers(0, len(steps)))
    reached = position
    for step in steps[:taken]:
        reached = reached.after(step)
    journal = Journal(position, tuple(steps))
    assert journal.resumed(reached.target_offset) == reached
    assert reached.source_offset - position.source_offset == sum(step.source_width for step in steps[:taken])
    numbered = sum(step.record_count for step in steps[:taken] if not step.is_legacy)
    assert (reached.sequence - position.sequence) % 2**31 == numbered


@pytest.mark.parametrize(("end", "reason"), [(99, "lost 1 records"), (103, "another client"), (111, "another client")])
def test_a_target_log_end_offset_that_matches_no_step_is_refused(end: int, reason: str) -> None:
    journal = Journal(Position(0, 100, 5, 0, 0), (Step(5, 5), Step(5, 9)))
    with pytest.raises(MirrorError, match=reason):
        journal.resumed(end)


@pytest.mark.parametrize("text", ["", "hello", "gregor-mirror 2;1;0;0;0;", "gregor-mirror 1;1;0;0;0;5,x", "1;2;3"])
def test_commit_metadata_that_is_not_a_journal_is_refused(text: str) -> None:
    with pytest.raises(MirrorError, match="not the journal of a mirror"):
        Journal.read(CommittedOffset(3, text))


def test_a_journal_fits_into_commit_metadata_and_old_formats_are_sent_alone() -> None:
    start = Position(0, 0, 5, 0, 0)
    many = [Outgoing(1, 2 * n + 2, 100, is_legacy=False) for n in range(5_000)]
    fitting = steps_that_fit(start, many)
    assert 500 < len(fitting) < 5_000
    longest = Journal(Position(2**62, 2**62, 2**62, 2**15 - 1, 2**31 - 1), tuple(step for _, step in fitting))
    assert len(longest.committed().metadata) <= MAX_TEXT_BYTES
    mixed = [Outgoing(1, n + 1, 100, is_legacy=n in (2, 3)) for n in range(6)]
    rounds = []
    while mixed:
        taken = steps_that_fit(start, mixed)
        rounds.append([step.is_legacy for _, step in taken])
        mixed = mixed[len(taken) :]
    assert rounds == [[False, False], [True], [True], [False, False]]
