"""The client's side of an incremental fetch session (KIP-227), for consumers and for followers that replicate.

A session lasts over the requests of one connection: the first names all partitions, each later one only those that
have changed since the one before. The broker's side is `broker/replicas/fetching/sessions.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from .messages.fetch import FetchRequest

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1

Key = TypeVar("Key")
Position = TypeVar("Position")


class IncrementalFetchSession(Generic[Key, Position]):
    """A session with one broker: its id, the epoch of the next request, and the positions that the broker has.

    After any request that failed or was not answered, `reset` must be called: the broker may have its positions or not.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[Key, Position] = {}

    def reset(self) -> None:
        """Start a new session with the next request."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self._known.clear()

    def stamp(self, request: FetchRequest) -> None:
        """Give a request the id and the epoch of the session."""
        request.session_id, request.session_epoch = self._id, self._epoch

    def is_news(self, key: Key, position: Position) -> bool:
        """Return whether a request must name a partition, as its position is new; note that the broker will know it."""
        if self._known.get(key) == position:
            return False
        self._known[key] = position
        return True

    def known(self) -> Collection[Key]:
        """Return the partitions of which the broker has a position."""
        return self._known.keys()

    def forget_others(self, keys: Collection[Key]) -> list[Key]:
        """Return the known partitions that are not among ``keys``, which a request must name as forgotten.

        To be called after `is_news` for each of the keys.
        """
        if len(keys) == len(self._known):
            return []
        gone = [key for key in self._known if key not in keys]
        for key in gone:
            del self._known[key]
        return gone

    @property
    def stamped(self) -> tuple[int, int]:
        """The id and the epoch of the next request."""
        return self._id, self._epoch

    def continued(self, epoch: int, positions: Iterable[tuple[Key, Position]]) -> None:
        """Take the epoch of the latest request, and positions that the broker knows from requests not made here."""
        self._epoch = epoch
        self._known.update(positions)

    def answered(self, session_id: int) -> None:
        """Continue with the session id of an answer without an error; 0 if the broker keeps no session."""
        if session_id == NO_SESSION or self._id not in (NO_SESSION, session_id):
            self.reset()
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1
