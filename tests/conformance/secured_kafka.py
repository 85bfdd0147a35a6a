"""An Apache Kafka with a listener for each way to log in, and the settings of clients that log in there."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gregor.client import Admin
from gregor.client.admin.security import ScramMechanism, ScramUpsertion
from tests.certificates import as_pem, authority, broker_identity, client_identity, written
from tests.conformance.conftest import free_port_pair, running_kafka
from tests.free_ports import free_address
from tests.security.token_server import CLIENT_ID, SCOPE, SECRET, TokenServer, token_server

MODULES = "org.apache.kafka.common.security"
VALIDATOR = f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
USER, PASSWORD = "user", 'p"a=ss,wo\\rd; ü'
"""A password with every character that JAAS text, properties files or SCRAM treat specially."""
SESSION_MS = 2500
"""The length of a session on the listeners with SASL (`connections.max.reauth.ms`)."""
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,MTLS:SSL,SASL:SASL_SSL,SIGNED:SASL_SSL"
LISTENERS = ("TLS", "MTLS", "SASL", "SIGNED")


def quoted(text: str) -> str:
    """Return a text as an option's value in JAAS text."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def escaped(text: str) -> str:
    """Return a text as a value in a properties file, which Java reads as Latin-1 with escapes."""
    return "".join(f"\\u{ord(c):04x}" if ord(c) > 126 else c for c in text.replace("\\", "\\\\"))


@dataclass
class SecuredKafka:
    """A running Kafka: the address of each listener, and the directory of the certificates."""

    open: str
    addresses: dict[str, str]
    directory: Path
    tokens: TokenServer
    delegation_token: tuple[str, str] = ("", "")

    def client(self, way: str) -> tuple[str, dict[str, str]]:
        """Return the bootstrap server and the settings of a client that logs in by ``way``, one of `WAYS`."""
        ca = {"ssl.truststore.type": "PEM", "ssl.truststore.location": f"{self.directory}/ca.pem"}
        if way == "TLS":
            return self.addresses["TLS"], {"security.protocol": "SSL", **ca}
        if way == "certificate":
            own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": f"{self.directory}/client.pem"}
            return self.addresses["MTLS"], {"security.protocol": "SSL", **ca, **own}
        mechanism, jaas = self._login(way)
        settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas, **ca}
        if way != "OAUTHBEARER":
            return self.addresses["SASL"], settings
        return self.addresses["SIGNED"], {
            **settings,
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url("/token"),
        }

    def _login(self, way: str) -> tuple[str, str]:
        """Return the mechanism and the JAAS text."""
        if way == "unsecured token":
            return "OAUTHBEARER", _module("oauthbearer.OAuthBearer", 'unsecuredLoginStringClaim_sub="user"')
        if way == "OAUTHBEARER":
            options = f'clientId="{CLIENT_ID}" clientSecret="{SECRET}" scope="{SCOPE}"'
            return way, _module("oauthbearer.OAuthBearer", options)
        if way == "delegation token":
            name, hmac = self.delegation_token
            return "SCRAM-SHA-256", _module("scram.Scram", f'username="{name}" password="{hmac}" tokenauth="true"')
        kind = "plain.Plain" if way == "PLAIN" else "scram.Scram"
        return way, _module(kind, f"username={quoted(USER)} password={quoted(PASSWORD)}")


WAYS = (
    "TLS",
    "certificate",
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "unsecured token",
    "OAUTHBEARER",
    "delegation token",
)


def _module(kind: str, options: str = "") -> str:
    return f"{MODULES}.{kind}LoginModule required {options};"


@contextmanager
def secured_kafka(shared: Path, directory: Path, release: str) -> Iterator[SecuredKafka]:
    """Run a Kafka of this release, with users for all mechanisms and a delegation token."""
    written(directory, "ca.pem", as_pem(authority().certificate))
    written(directory, "client.pem", client_identity().pem)
    keystore = written(directory, "broker.pem", broker_identity().pem)
    addresses = {name: f"localhost:{free_address()[1]}" for name in LISTENERS}
    port = free_port_pair()
    named = ",".join(f"{name}://{address}" for name, address in addresses.items())
    reauthentication = [
        f"listener.name.{listener}.{mechanism}.connections.max.reauth.ms={SESSION_MS}"
        for listener, mechanism in (
            ("sasl", "plain"),
            ("sasl", "scram-sha-256"),
            ("sasl", "scram-sha-512"),
            ("sasl", "oauthbearer"),
            ("signed", "oauthbearer"),
        )
    ]
    plain = _module("plain.Plain", f"user_{USER}={quoted(PASSWORD)}")
    with token_server() as tokens:
        settings = [
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1},{named}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port},{named}",
            f"listener.security.protocol.map={PROTOCOLS}",
            "inter.broker.listener.name=PLAINTEXT",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={keystore}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={directory}/ca.pem",
            "listener.name.mtls.ssl.client.auth=required",
            "listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"listener.name.sasl.plain.sasl.jaas.config={escaped(plain)}",
            f"listener.name.sasl.scram-sha-256.sasl.jaas.config={_module('scram.Scram')}",
            f"listener.name.sasl.scram-sha-512.sasl.jaas.config={_module('scram.Scram')}",
            "listener.name.sasl.oauthbearer.sasl.jaas.config="
            + _module("oauthbearer.OAuthBearer", 'unsecuredLoginStringClaim_sub="broker"'),
            "listener.name.signed.sasl.enabled.mechanisms=OAUTHBEARER",
            f"listener.name.signed.oauthbearer.sasl.jaas.config={_module('oauthbearer.OAuthBearer')}",
            f"listener.name.signed.oauthbearer.sasl.server.callback.handler.class={VALIDATOR}",
            f"sasl.oauthbearer.jwks.endpoint.url={tokens.url('/jwks')}",
            "sasl.oauthbearer.expected.audience=kafka",
            "delegation.token.secret.key=secret",
            *reauthentication,
        ]
        before = os.environ.get("KAFKA_HEAP_OPTS")
        # Kafka 4 fetches keys from the URLs of this list only.
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.url('/jwks')}"
        os.environ["KAFKA_HEAP_OPTS"] = f"{before or '-Xmx512m'} {allowed}"
        try:
            with running_kafka(shared, *settings, release=release) as address:
                yield SecuredKafka(address, addresses, directory, tokens)
        finally:
            os.environ.pop("KAFKA_HEAP_OPTS")
            if before is not None:
                os.environ["KAFKA_HEAP_OPTS"] = before


async def add_users(kafka: SecuredKafka) -> None:
    """Add the SCRAM credentials of the user and a delegation token of that user."""
    async with Admin(kafka.open) as admin:
        for mechanism in ScramMechanism:
            await admin.alter_scram_credentials([ScramUpsertion(USER, mechanism, PASSWORD.encode())])
    address, settings = kafka.client("SCRAM-SHA-512")
    async with Admin(address, **settings) as admin:
        created = await admin.create_delegation_token()
        kafka.delegation_token = (created.token_id, base64.b64encode(created.hmac).decode())
