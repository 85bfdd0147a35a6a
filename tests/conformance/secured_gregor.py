"""A broker that the files of `gregor dev-certs` secure, as a developer starts it, for clients and tools of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from gregor.client.admin import Admin
from gregor.client.admin.security import ScramMechanism, ScramUpsertion
from gregor.command_line import main
from tests.broker_process import BrokerProcess, start_broker
from tests.free_ports import free_address

MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
"""The login module of each mechanism, in Kafka's package ``org.apache.kafka.common.security``."""


@dataclass
class Secured:
    """A broker that the files of `gregor dev-certs` secure; its listener at `bootstrap` needs no login."""

    bootstrap: str
    files: Path
    sasl: str
    ssl: str
    password: str
    store_password: str


@contextmanager
def secured_gregor(directory: Path, *more: str) -> Iterator[Secured]:
    """Run a broker with the user "user" and OAUTHBEARER besides, and with more settings."""
    files = directory / "certs"
    assert main(["dev-certs", "--dir", str(files), "--user", "user"]) == 0
    settings = [
        line
        for line in (files / "server.properties").read_text().splitlines()
        if not line.startswith(("#", "listeners", "advertised", "sasl.enabled"))
    ]
    sasl, ssl = (f"localhost:{free_address()[1]}" for _ in range(2))
    broker: BrokerProcess = start_broker(
        directory,
        *settings,
        "listener.security.protocol.map=OPEN:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,PLAINTEXT:PLAINTEXT",
        *more,
        program=("-m", "gregor.command_line"),
    )
    broker.stop()
    broker.overrides = (
        *broker.overrides,
        f"listeners=OPEN://{broker.bootstrap},SASL_SSL://{sasl},SSL://{ssl}",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    )
    broker.start_again()
    login = (files / "client.properties").read_text()
    password = login.partition('password="')[2].partition('"')[0]
    java = (files / "client-java.properties").read_text()
    store_password = java.partition("truststore.password=")[2].splitlines()[0]

    async def add_scram() -> None:
        async with Admin(broker.bootstrap) as admin:
            for mechanism in ScramMechanism:
                await admin.alter_scram_credentials([ScramUpsertion("user", mechanism, password.encode())])

    trio.run(add_scram)
    yield Secured(broker.bootstrap, files, sasl, ssl, password, store_password)
    assert broker.stop() == 0
