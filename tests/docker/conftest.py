"""The image, built once for all tests of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docker.engine import Engine, start_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Provide a container engine that has the image of this checkout."""
    engine = start_engine()
    yield engine
    engine.clean_up()
