"""An answer that has to wait for something, while its connection goes on with the requests behind it."""

from __future__ import annotations

from collections.abc import Callable


class LateAnswer:
    """Given once, by `give`; the connection sends it when it and all before it have been given."""

    __slots__ = ("_then", "frame")

    def __init__(self, frame: bytes | None = None) -> None:
        self.frame = frame
        """The answer, its length included, as soon as there is one."""
        self._then: Callable[[], None] | None = None

    def give(self, frame: bytes) -> None:
        """Answer. Only the first answer counts."""
        if self.frame is None:
            self.frame = frame
            if self._then is not None:
                self._then()

    def then(self, call: Callable[[], None]) -> None:
        """Have ``call`` called when the answer is given."""
        self._then = call
