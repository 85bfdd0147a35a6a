"""What the tests of transactions share."""

import pytest

from tests.broker.coordinators.transactions.house import House


@pytest.fixture
def house() -> House:
    """A coordinator without transactions."""
    return House()
