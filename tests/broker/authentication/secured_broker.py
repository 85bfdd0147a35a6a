"""A secured broker for tests of logins: its addresses, and the settings of its clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gregor.broker.app.broker import Broker
from gregor.client.admin import Admin
from gregor.client.config import AdminConfig
from gregor.client.metrics import Metrics
from gregor.client.wire.connection import Connection
from gregor.client.wire.dialling import open_stream
from gregor.protocol.messages.cluster_metadata_records import UserScramCredentialRecord
from gregor.security.password import Password
from gregor.security.sasl import SCRAM_MECHANISMS
from gregor.security.scram import ScramCredential

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@dataclass
class SecuredBroker:
    """A running broker, the directory of the test, and the file of the trusted certificates."""

    broker: Broker
    directory: Path
    trusted: str

    def port(self, listener: str) -> int:
        """Return the port of a listener."""
        return next(bound.port for bound in self.broker.services.serving.listening if bound.name == listener)

    def address(self, listener: str) -> str:
        """Return the host and port of a listener."""
        return f"127.0.0.1:{self.port(listener)}"

    async def add_scram_user(self, name: str, password: str) -> None:
        """Add the credentials of a user for all SCRAM mechanisms, as the controller would record them."""
        records = []
        for number, mechanism in enumerate(SCRAM_MECHANISMS, 1):
            known = ScramCredential.of_password(mechanism, Password(password))
            records.append(
                UserScramCredentialRecord(
                    name=name,
                    mechanism=number,
                    salt=known.salt,
                    stored_key=known.stored_key,
                    server_key=known.server_key,
                    iterations=known.iterations,
                )
            )
        self.broker.services.metadata.set_scram(records)

    def client(self, protocol: str, **changes: str) -> dict[str, str]:
        """Return settings with which this protocol accepts a client as alice; a change of "" removes a key."""
        settings = {"security_protocol": protocol}
        if protocol.endswith("SSL"):
            settings |= {"ssl_truststore_type": "PEM", "ssl_truststore_location": self.trusted}
        if protocol.startswith("SASL_"):
            settings |= {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f'{PLAIN_MODULE} required username="alice" password="alice-secret";',
            }
        return {name: text for name, text in (settings | changes).items() if text}

    def config(self, protocol: str, **changes: str) -> AdminConfig:
        """Return the same as a configuration."""
        return AdminConfig.from_properties(self.client(protocol, **changes))

    async def connect(self, listener: str, config: AdminConfig) -> Connection:
        """Return a connection that is not running yet."""
        stream = await open_stream("127.0.0.1", self.port(listener), config)
        return Connection(stream, self.address(listener), config, Metrics())

    def admin(self, listener: str, **settings: str) -> Admin:
        """Return an admin client of a listener."""
        return Admin(self.address(listener), **settings)
