"""Every test of records runs on both builds, compiled and pure Python."""

import pytest


@pytest.fixture(autouse=True)
def both_builds(record_build: str) -> str:
    """Run each test with both builds; see `record_build`."""
    return record_build
