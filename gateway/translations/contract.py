"""The contract of translations: a request that upstream no longer serves becomes one or more that it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

Ask: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Sends a typed request upstream, in the version that upstream serves, and returns the typed response (None for
Produce with acks=0). The request must not be used again."""

Translation: TypeAlias = Callable[[Any, int, Ask], Awaitable[Any]]
"""Takes the typed request of a client, its version, and `Ask`; returns the typed response for that version, None if the
client expects none."""
