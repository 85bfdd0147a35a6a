"""Fixtures of the tests of transactions."""

import pytest

from tests.broker.coordinators.transactions.house import House


@pytest.fixture
def house() -> House:
    """Return a coordinator without transactions."""
    return House()
