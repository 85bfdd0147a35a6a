"""Work at the end of a round of ready sockets."""

from __future__ import annotations

import pytest

from gregor.broker.server.socket_rounds import SocketRounds


def test_work_is_done_once_at_the_end_of_the_round_in_its_order() -> None:
    rounds, done = SocketRounds(), list[str]()
    rounds.begin()
    assert rounds.defer(lambda: done.append("first"))
    assert rounds.defer(lambda: done.append("second"))
    assert done == []
    rounds.end()
    rounds.begin()
    rounds.end()
    assert done == ["first", "second"]


def test_work_defers_further_work_to_the_same_end() -> None:
    rounds, done = SocketRounds(), list[str]()

    def work() -> None:
        done.append("work")
        assert rounds.defer(lambda: done.append("further work"))

    rounds.begin()
    rounds.defer(work)
    rounds.end()
    assert done == ["work", "further work"]


@pytest.mark.parametrize("earlier_rounds", [0, 1])
def test_nothing_is_deferred_outside_of_a_round(earlier_rounds: int) -> None:
    rounds = SocketRounds()
    for _ in range(earlier_rounds):
        rounds.begin()
        rounds.end()
    assert not rounds.defer(lambda: pytest.fail("called"))
    rounds.begin()
    rounds.end()
