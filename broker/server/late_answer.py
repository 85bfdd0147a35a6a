"""A pending answer of a connection, which meanwhile serves later requests."""

from __future__ import annotations

from collections.abc import Callable


class LateAnswer:
    """A pending answer, completed by `give`; the connection sends it when all earlier answers are complete as well."""

    __slots__ = ("_then", "frame")

    def __init__(self, frame: bytes | None = None) -> None:
        self.frame = frame
        """The answer with its length, None while it is pending."""
        self._then: Callable[[], None] | None = None

    def give(self, frame: bytes) -> None:
        """Complete the answer. Only the first call counts."""
        if self.frame is None:
            self.frame = frame
            if self._then is not None:
                self._then()

    def then(self, call: Callable[[], None]) -> None:
        """Set ``call`` as the callback for the completed answer."""
        self._then = call
