"""A broker with a listener of each security protocol, for the tests of logins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.security.sasl import SCRAM_MECHANISMS
from tests.broker.authentication.secured_broker import PLAIN_MODULE, SecuredBroker
from tests.certificates import as_pem, authority, broker_identity, written


@pytest.fixture
def properties() -> dict[str, str]:
    """Return the keys of the broker that a test changes or adds."""
    return {}


@pytest.fixture
async def secured(tmp_path: Path, nursery: trio.Nursery, properties: dict[str, str]) -> AsyncIterator[SecuredBroker]:
    """Provide a broker whose certificate the test CA signed, with the users alice (PLAIN) and scrammer (SCRAM)."""
    trusted = written(tmp_path, "ca.pem", as_pem(authority().certificate))
    protocols = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    users = f'{PLAIN_MODULE} required user_alice="alice-secret" user_bob="bob-secret";'
    broker = Broker(
        BrokerConfig(
            {
                "listeners": ",".join(f"{name}://127.0.0.1:0" for name in protocols),
                "log.dirs": str(tmp_path / "logs"),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": written(tmp_path, "broker.pem", broker_identity().pem),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": trusted,
                "sasl.enabled.mechanisms": ",".join(["PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER"]),
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
                "listener.name.sasl_ssl.plain.sasl.jaas.config": users,
                "connection.failed.authentication.delay.ms": "0",
                "gregor.shutdown.timeout.ms": "0",
                **properties,
            }
        )
    )
    await nursery.start(broker.run)
    secured = SecuredBroker(broker, tmp_path, trusted)
    await secured.add_scram_user("scrammer", "scram-secret")
    yield secured
    nursery.cancel_scope.cancel()
