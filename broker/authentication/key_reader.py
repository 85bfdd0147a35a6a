"""The task that reads the keys of signed OAUTHBEARER tokens."""

from __future__ import annotations

from typing import Protocol

import trio


class KeySetReading(Protocol):
    """A key set that is read again and again (`signed_tokens.KeySetReading`)."""

    async def run(self) -> None:
        """Read the key set at its times until cancelled."""


class KeyReader:
    """A task that reads the key sets of all listeners."""

    def __init__(self) -> None:
        self._sets: list[KeySetReading] = []

    def add(self, reading: KeySetReading) -> None:
        """Read this key set as well."""
        self._sets.append(reading)

    async def run(self) -> None:
        """Read the key sets until cancelled."""
        async with trio.open_nursery() as nursery:
            for reading in self._sets:
                nursery.start_soon(reading.run)
