"""Every test of records runs on both builds, compiled and pure Python."""

import pytest


@pytest.fixture(autouse=True)
def both_builds(record_build: str) -> str:
    """See `record_build`."""
    return record_build
