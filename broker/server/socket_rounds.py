"""Rounds in which all sockets that are ready together are served, with work that is done once at the end of each."""

from __future__ import annotations

from collections.abc import Callable


class SocketRounds:
    """The rounds of a broker's event loop, and the work that waits for the end of the present one.

    Work at the end of a round sees what all clients of the round have sent. It needs no task of its own, for which
    trio's loop would have to pass once.
    """

    def __init__(self) -> None:
        self._is_in_round = False
        self._work: list[Callable[[], None]] = []

    def defer(self, work: Callable[[], None]) -> bool:
        """Call ``work``, which must raise nothing, at the end of the present round; return False if there is none."""
        if self._is_in_round:
            self._work.append(work)
        return self._is_in_round

    def begin(self) -> None:
        """Begin a round. The caller must `end` it without a wait."""
        self._is_in_round = True

    def end(self) -> None:
        """Do the deferred work, and what that work defers; end the round."""
        try:
            while self._work:
                self._work.pop(0)()
        finally:
            self._is_in_round = False
