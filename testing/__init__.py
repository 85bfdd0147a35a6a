"""Brokers for tests: `Broker` for Python programs, and the pytest plugin `gregor` with its fixtures."""

from .broker import Broker
from .failure import BrokerFailedError

__all__ = ["Broker", "BrokerFailedError"]
