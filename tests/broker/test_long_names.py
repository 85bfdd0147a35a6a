"""Names of the protocol's greatest length: each request gets a specified answer or is refused with one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gregor.protocol.apis import AnyApiKey, ApiKey, request_class, valid_versions
from gregor.protocol.codec_layout import FieldLayout
from tests.broker.test_plausible_requests import CLIENTS, PlausibleValues, make_topics, nothing_was_unforeseen
from tests.broker_process import BrokerProcess, running_broker
from tests.wire import Wire

LONGEST = 32_767
"""Bytes of a string whose length is an INT16."""
WAITS = ("timeout_ms", "max_wait_ms", "rebalance_timeout_ms", "session_timeout_ms")
PATIENCE_S = 1.0


class LongNames(PlausibleValues):
    """Values with texts of the greatest length; with ``some``, every second text names an existing thing instead."""

    def __init__(self, random: Random, topic_ids: list[Any], *, some: bool, length: int) -> None:
        super().__init__(random, topic_ids)
        self._some, self._length = some, length

    def text(self) -> str:
        if self._some and self.random.random() < 0.5:
            return super().text()
        return self.random.choice("xé")[0].ljust(self._length - 1, "x")

    def _field(self, field: FieldLayout) -> Any:
        return self._value(field.wire)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide a broker of its own with a few topics."""
    with running_broker(tmp_path_factory.mktemp("long")) as running:
        yield running


@pytest.fixture(scope="module")
def topic_ids(broker: BrokerProcess) -> list[Any]:
    return make_topics(broker.address, 1)


@pytest.mark.parametrize("key", CLIENTS, ids=lambda key: key.name)
def test_every_api_handles_names_of_the_greatest_length(
    broker: BrokerProcess, topic_ids: list[Any], key: AnyApiKey, tmp_path: Path
) -> None:
    random = Random(int(key))
    for version in range(valid_versions(key)[0], valid_versions(key)[1] + 1):
        for some in (False, True, True):
            length = random.choice([LONGEST, LONGEST, 70_000])
            values = LongNames(random, topic_ids, some=some, length=length)
            request: Any = values.message(request_class(key), version)
            for name in WAITS:
                if hasattr(request, name):
                    setattr(request, name, 0)
            wire = Wire(broker.address, timeout=PATIENCE_S)
            # Requests that a version cannot encode are not sent; some requests are rightly answered later.
            with wire, contextlib.suppress(ValueError, ConnectionError, TimeoutError):
                wire.ask(key, version, request)
    nothing_was_unforeseen(broker)
    with Wire(broker.address) as wire:
        assert wire.ask(ApiKey.API_VERSIONS, 0, request_class(ApiKey.API_VERSIONS)()).error_code == 0
