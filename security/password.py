"""A value that is never shown, as Kafka's ``Password``."""

from __future__ import annotations

import hmac

HIDDEN = "[hidden]"


class Password:
    """A secret text; `str`, `repr`, f-strings and tracebacks show `HIDDEN` instead of it."""

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    @property
    def value(self) -> str:
        """The secret itself."""
        return self.__value

    def matches(self, text: str) -> bool:
        """Return whether ``text`` is the secret, in a time that does not depend on the first different character."""
        return hmac.compare_digest(self.__value.encode(), text.encode())

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.matches(other.value)

    def __hash__(self) -> int:
        return hash(self.__value)

    def __reduce__(self) -> tuple[type[Password], tuple[str]]:
        """Return how to make a copy for another process (tasks of Spark)."""
        return Password, (self.__value,)
