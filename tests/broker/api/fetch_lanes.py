"""Dispatchers with and without the lane for plain Fetch requests, and both builds of the lane."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import pytest

from gregor.broker.api import dispatch
from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.api.services import Services


class TwoDispatchers(NamedTuple):
    """Two dispatchers of one broker, of which only the first has the lane."""

    with_lane: Dispatcher
    handler: Dispatcher


def two_dispatchers(services: Services) -> TwoDispatchers:
    """Return a dispatcher with the lane, and one whose handler answers all Fetch requests."""
    found = TwoDispatchers(Dispatcher(services), Dispatcher(services))
    found.handler._plain_fetch = None
    return found


def use_pure_lane(modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give new dispatchers the lane as plain Python; ``modules`` are those of the fixture `pure_modules`."""
    lane = modules["plain_fetch_lane_cy"]
    monkeypatch.setattr(lane, "PlainReader", modules["plain_reading_cy"].PlainReader)
    for name in ("FetchAnswer", "ReceivedFetch"):
        monkeypatch.setattr(lane, name, getattr(modules["plain_fetch_cy"], name))
    monkeypatch.setattr(dispatch, "PlainFetchLane", lane.PlainFetchLane)
