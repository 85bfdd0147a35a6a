"""Certificates that have expired: of the broker behind a gateway, and of one client of several (mutual TLS)."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.metadata import MetadataRequest
from tests.certificates import as_pem, authority, broker_identity, client_identity, made, written
from tests.gateway.kafka_4 import GatewayAndBroker, gateway_before_kafka_4
from tests.gateway.test_security import round_trip
from tests.waiting import wait_until
from tests.wire import Wire

REFUSED = "failed: certificate has expired; renew the certificate in the broker's ssl.keystore.location"
CHECK = "gregor.gateway.upstream.sasl.* or gregor.gateway.upstream.ssl.*"


def tls_broker(directory: Path, pem: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the keys of a broker with this certificate, and of a gateway that checks it."""
    directory.mkdir(exist_ok=True)
    broker = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": written(directory, "broker.pem", pem),
    }
    gateway = {
        "gregor.gateway.metadata.refresh.ms": "100",
        "gregor.gateway.upstream.security.protocol": "SSL",
        "gregor.gateway.upstream.ssl.truststore.type": "PEM",
        "gregor.gateway.upstream.ssl.truststore.location": written(
            directory, "ca.pem", as_pem(authority().certificate)
        ),
    }
    return broker, gateway


def assert_disconnected(pair: GatewayAndBroker) -> None:
    """Check that a request of a new client ends with a disconnect and not with a wait."""
    with Wire(pair.address) as wire, pytest.raises(ConnectionError):
        wire.ask(ApiKey.METADATA, 0, MetadataRequest())


def test_a_broker_whose_certificate_has_expired_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the reason once, with the keys to check; a renewed certificate ends the outage."""
    caplog.set_level("INFO")
    broker, gateway = tls_broker(tmp_path / "tls", made("broker", authority(), expired=True).pem)
    with gateway_before_kafka_4(tmp_path / "logs", gateway, broker) as pair:
        wait_until(lambda: REFUSED in caplog.text)
        for _ in range(3):
            assert_disconnected(pair)
        (said,) = [record.getMessage() for record in caplog.records if record.name == "gregor.gateway.reachability"]
        assert f"SSL handshake with 127.0.0.1:{pair.upstream_address[1]} {REFUSED}" in said
        assert CHECK in said
        written(tmp_path / "tls", "broker.pem", broker_identity().pem)
        pair.broker._guards.take_changes()
        wait_until(lambda: ": a broker answers" in caplog.text)
        with Wire(pair.address) as wire:
            round_trip(wire)


def test_a_certificate_that_expires_meanwhile_is_named_for_each_new_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections from before are served as long as they last, as Kafka checks a certificate in the handshake only."""
    caplog.set_level("INFO")
    broker, gateway = tls_broker(tmp_path / "tls", broker_identity().pem)
    with gateway_before_kafka_4(tmp_path / "logs", gateway, broker) as pair, Wire(pair.address) as early:
        round_trip(early)
        written(tmp_path / "tls", "broker.pem", made("broker", authority(), expired=True).pem)
        pair.broker._guards.take_changes()
        assert_disconnected(pair)
        assert f"SSL handshake with 127.0.0.1:{pair.upstream_address[1]} {REFUSED}" in caplog.text
        round_trip(early)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_the_client_whose_certificate_has_expired_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: ssl.TLSVersion
) -> None:
    """Mutual TLS downstream: the log has the reason; other clients are served before, meanwhile and afterwards."""
    caplog.set_level("INFO")
    trusted = written(tmp_path, "ca.pem", as_pem(authority().certificate))
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": written(tmp_path, "gateway.pem", broker_identity().pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted,
        "connection.failed.authentication.delay.ms": "0",
    }
    identities = {"valid": client_identity(), "late": made("late", authority(), expired=True)}

    def secure(wire: Wire, name: str) -> None:
        context = ssl.create_default_context(cafile=trusted)
        context.minimum_version = context.maximum_version = version
        context.load_cert_chain(written(tmp_path, f"{name}.pem", identities[name].pem))
        wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")

    def read_as(wire: Wire, name: str) -> None:
        # With TLS 1.3 the client's side of the handshake ends before the gateway has seen the certificate. A request
        # that comes after the gateway has closed the connection would reset it, and the alert could be lost.
        secure(wire, name)
        wire.socket.recv(1)

    with gateway_before_kafka_4(tmp_path / "logs", settings) as pair, Wire(pair.address) as early:
        secure(early, "valid")
        round_trip(early)
        with Wire(pair.address) as late, pytest.raises(ssl.SSLError, match="EXPIRED"):
            read_as(late, "late")
        wait_until(lambda: "SSL handshake failed: certificate has expired" in caplog.text)
        round_trip(early)
        with Wire(pair.address) as other:
            secure(other, "valid")
            round_trip(other)
