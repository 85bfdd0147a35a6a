"""Sessions in which clients log in again before each request (KIP-368), so that no test depends on a machine's speed.

With sessions of a second a client on a busy machine would send a request when its session has ended, and the broker
would rightly close the connection.
"""

from __future__ import annotations

import pytest

from gregor.broker.authentication import sasl_login
from gregor.security import client_login

LONG_SESSIONS = {"connections.max.reauth.ms": "3600000"}
"""The setting of a broker with whose sessions clients must log in again, in an hour."""


def each_request_logs_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients log in again as soon as they have logged in, and brokers of this process accept that."""
    monkeypatch.setattr(client_login, "SESSION_PART", 0.0)
    monkeypatch.setattr(client_login, "SESSION_PART_JITTER", 0.0)
    monkeypatch.setattr(sasl_login, "LEAST_REAUTHENTICATION_INTERVAL_S", 0.0)
