"""New certificates at run time: what replaces the present ones, and what is refused with Kafka's answer."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.broker.config.listeners import ListenerError
from gregor.client.admin import Admin, AlterOperation, ResourceType
from gregor.client.errors import AuthenticationFailedError
from gregor.protocol.errors import BrokerError, ErrorCode
from tests.broker.authentication.secured_broker import SecuredBroker
from tests.broker.authentication.test_secured_cluster import cluster_settings
from tests.certificates import as_pem, authority, broker_identity, made, other_authority, written
from tests.free_ports import free_address
from tests.waiting import eventually

SET, DELETE = AlterOperation.SET, AlterOperation.DELETE
LOCATION = "listener.name.ssl.ssl.keystore.location"
TYPE = "listener.name.ssl.ssl.keystore.type"
TRUSTSTORE = "listener.name.ssl.ssl.truststore.location"
PACKAGE = "org.apache.kafka.common."
CONFIG = f"{PACKAGE}config.ConfigException"
FAILED = f"Invalid value {CONFIG}: Validation of dynamic config update of SSLFactory failed: {PACKAGE}"
NOT_LOADED = f"{FAILED}errors.InvalidConfigurationException: Failed to load PEM SSL keystore {{path}}: "
DN_DIFFERS = (
    f"{FAILED}config.ConfigException: Keystore DistinguishedName does not match: "
    " existing={{alias=kafka, DN=CN=broker, O=Test}}, new={{alias=kafka, DN=CN=elsewhere, O=Test}}"
    " for configuration Invalid dynamic configuration$"
)
SAN_DIFFERS = (
    f"{FAILED}config.ConfigException: Keystore SubjectAltNames do not match: "
    r" existing={{alias=kafka, SAN=\[\[2, localhost\], \[7, 127.0.0.1\]\]}}, "
    r"new={{alias=kafka, SAN=\[\[2, elsewhere.example\]\]}}"
)


async def alter(secured: SecuredBroker, *changes: tuple[AlterOperation, str, str | None], **more: Any) -> None:
    async with secured.admin("PLAINTEXT") as admin:
        await admin.alter_configs(ResourceType.BROKER, "1", changes, **more)


async def is_trusted(secured: SecuredBroker) -> bool:
    """Return whether a new client of the SSL listener trusts its certificate."""
    try:
        connection = await secured.connect("SSL", secured.config("SSL"))
    except AuthenticationFailedError:
        return False
    await connection._stream.aclose()
    return True


async def test_a_changed_keystore_takes_effect_without_a_restart(secured: SecuredBroker) -> None:
    """The key is set to another file, and again to a file with new content."""
    assert await is_trusted(secured)
    path = written(secured.directory, "new.pem", made("broker", other_authority()).pem)
    await alter(secured, (SET, LOCATION, path))
    assert not await is_trusted(secured)
    written(secured.directory, "new.pem", broker_identity().pem)
    assert not await is_trusted(secured)
    await alter(secured, (SET, LOCATION, path))
    assert await is_trusted(secured)


REFUSED: dict[str, tuple[Callable[[], str | bytes | None], str]] = {
    "no file": (lambda: None, f"{NOT_LOADED}.*No such file"),
    "garbage": (lambda: "garbage", f"{NOT_LOADED}.*no private key"),
    "only a certificate": (lambda: as_pem(broker_identity().certificate), f"{NOT_LOADED}"),
    "a JKS store": (lambda: b"\xfe\xed\xfe\xed\0\0", f"{NOT_LOADED}"),
    "a key of another certificate": (
        lambda: made("broker", authority()).key_pem + broker_identity().chain_pem,
        f"{FAILED}errors.InvalidConfigurationException: ssl.keystore: OpenSSL refuses the key",
    ),
    "another subject": (
        lambda: made("elsewhere", authority()).pem,
        DN_DIFFERS,
    ),
    "fewer alternative names": (
        lambda: made("broker", authority(), host="elsewhere.example").pem,
        SAN_DIFFERS,
    ),
}


@pytest.mark.parametrize(("content", "words"), REFUSED.values(), ids=REFUSED)
async def test_a_wrong_keystore_is_refused_with_kafkas_answer(
    secured: SecuredBroker, content: Callable[[], str | bytes | None], words: str
) -> None:
    """Also if the key already names the file, if nothing is to be changed, and as a whole new configuration."""
    path = secured.directory / "new.pem"
    wrong = content()
    for validate_only in (True, False):
        if wrong is not None:
            written(secured.directory, "new.pem", wrong)
        with pytest.raises(BrokerError, match=words.format(path=path)) as refusal:
            await alter(secured, (SET, LOCATION, str(path)), validate_only=validate_only)
        assert refusal.value.code == ErrorCode.INVALID_REQUEST
    assert secured.broker.config.broker_overrides == {}
    written(secured.directory, "new.pem", broker_identity().pem)
    await alter(secured, (SET, LOCATION, str(path)))
    assert await is_trusted(secured)
    if wrong is None:
        path.unlink()
    else:
        written(secured.directory, "new.pem", wrong)
    with pytest.raises(BrokerError):
        await alter(secured, (SET, LOCATION, str(path)))
    # A change that concerns no store of this listener is accepted meanwhile.
    await alter(secured, (SET, "num.io.threads", "9"), (SET, "listener.name.sasl_ssl.ssl.keystore.type", "PEM"))
    assert await is_trusted(secured)


@pytest.mark.parametrize("properties", [{"listener.name.ssl.ssl.allow.dn.changes": "true"}])
async def test_a_keystore_with_another_subject_is_accepted_with_ssl_allow_dn_changes(secured: SecuredBroker) -> None:
    path = written(secured.directory, "new.pem", made("elsewhere", authority()).pem)
    await alter(secured, (SET, LOCATION, path))
    path = written(secured.directory, "fewer.pem", made("again", authority(), host="elsewhere.example").pem)
    with pytest.raises(BrokerError, match="SubjectAltNames"):
        await alter(secured, (SET, LOCATION, path))


async def test_a_pkcs12_keystore_replaces_a_pem_keystore(secured: SecuredBroker) -> None:
    """A PKCS12 store may follow a PEM store."""
    store = written(secured.directory, "new.p12", made("broker", authority()).pkcs12("store-secret"))
    changes = [(SET, TYPE, "PKCS12"), (SET, LOCATION, store)]
    with pytest.raises(BrokerError, match="key store password is not specified"):
        await alter(secured, *changes)
    password = "listener.name.ssl.ssl.keystore.password"
    with pytest.raises(
        BrokerError, match=r"Failed to load SSL keystore .*new.p12 of type PKCS12: .*ssl.keystore.password is wrong"
    ) as refusal:
        await alter(secured, *changes, (SET, password, "planted-secret"))
    assert "planted" not in str(refusal.value)
    await alter(secured, *changes, (SET, password, "store-secret"))
    assert await is_trusted(secured)
    with pytest.raises(BrokerError, match=r"in PEM format: set ssl.keystore.type=PEM"):
        await alter(secured, (DELETE, LOCATION, None))
    await alter(secured, *((DELETE, key, None) for key in (TYPE, LOCATION, password)))
    assert await is_trusted(secured)


async def test_a_truststore_without_certificates_is_refused(secured: SecuredBroker) -> None:
    path = written(secured.directory, "trusted.pem", "nothing")
    with pytest.raises(BrokerError, match=f"{NOT_LOADED.format(path=path)}.*holds no certificates"):
        await alter(secured, (SET, TRUSTSTORE, path))


@pytest.mark.parametrize("properties", [{"ssl.truststore.location": "", "listeners": "PLAINTEXT://:0,SSL://:0"}])
async def test_a_truststore_cannot_be_added(secured: SecuredBroker) -> None:
    with pytest.raises(BrokerError, match="Cannot add SSL truststore to an existing listener for which no truststore"):
        await alter(secured, (SET, TRUSTSTORE, secured.trusted))


async def test_a_dynamic_keystore_is_used_after_a_restart(tmp_path: Path, nursery: trio.Nursery) -> None:
    old, new = made("broker", authority()), made("broker", authority())
    settings = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "logs"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": written(tmp_path, "old.pem", old.pem),
        "gregor.shutdown.timeout.ms": "0",
    }
    path = written(tmp_path, "new.pem", new.pem)
    for run in range(2):
        async with trio.open_nursery() as running:
            broker = Broker(BrokerConfig(settings))
            await running.start(broker.run)
            ports = {bound.name: bound.port for bound in broker.services.serving.listening}
            if run == 0:
                assert await shown_certificate(ports["SSL"]) == as_pem(old.certificate)
                async with Admin(f"127.0.0.1:{ports['PLAINTEXT']}") as admin:
                    await admin.alter_configs(ResourceType.BROKER, "1", [(SET, LOCATION, path)])
            assert await shown_certificate(ports["SSL"]) == as_pem(new.certificate)
            running.cancel_scope.cancel()


async def shown_certificate(port: int) -> str:
    """Return the certificate of a listener, as PEM."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context)
    async with stream:
        await stream.do_handshake()
        return ssl.DER_cert_to_PEM_cert(stream.getpeercert(binary_form=True))


# --- clusters


def controller_and_broker(directory: Path) -> list[Broker]:
    controller = free_address()[1]
    brokers = []
    for node_id, roles in ((1, "broker,controller"), (2, "broker")):
        home = directory / str(node_id)
        home.mkdir()
        listeners = "INTERNAL://127.0.0.1:0,OPEN://127.0.0.1:0"
        brokers.append(
            Broker(
                BrokerConfig(
                    cluster_settings(home, "SSL")
                    | {
                        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                        "node.id": str(node_id),
                        "process.roles": roles,
                        "log.dirs": str(home / "logs"),
                        "listeners": listeners + (f",CTL://127.0.0.1:{controller}" if node_id == 1 else ""),
                    }
                )
            )
        )
    return brokers


def open_port(broker: Broker) -> int:
    return next(bound.port for bound in broker.services.serving.listening if bound.name == "OPEN")


def has_taken(broker: Broker, key: str, text: str) -> bool:
    return broker.config.broker_overrides.get(key) == text


async def test_each_broker_of_a_cluster_checks_its_own_stores(tmp_path: Path, nursery: trio.Nursery) -> None:
    """The broker that a change concerns refuses it, although the controller would store it."""
    brokers = controller_and_broker(tmp_path)
    for broker in brokers:
        await nursery.start(broker.run)
    key = "listener.name.internal.ssl.keystore.location"
    for node_id, broker in enumerate(brokers, 1):
        home = tmp_path / str(node_id)
        untrusted = written(home, "untrusted.pem", made("broker", other_authority()).pem)
        renewed = written(home, "renewed.pem", made("broker", authority()).pem)
        async with Admin(f"127.0.0.1:{open_port(broker)}") as admin:
            for wrong, words in (("/absent.pem", "Failed to load"), (untrusted, "handshake between brokers would")):
                with pytest.raises(BrokerError, match=words):
                    await admin.alter_configs(ResourceType.BROKER, str(node_id), [(SET, key, wrong)])
            await admin.alter_configs(ResourceType.BROKER, str(node_id), [(SET, key, renewed)])
            await eventually(partial(has_taken, broker, key, renewed))
        membership: Any = broker.services.node
        assert membership._logins.to_brokers().tls.keystore_location == renewed
    nursery.cancel_scope.cancel()


def test_a_broker_whose_truststore_does_not_trust_its_own_certificate_is_refused(tmp_path: Path) -> None:
    settings = cluster_settings(tmp_path, "SSL") | {
        "ssl.truststore.location": written(tmp_path, "ca.pem", as_pem(other_authority().certificate)),
        "process.roles": "broker",
        "node.id": "2",
        "log.dirs": str(tmp_path / "2"),
        "controller.quorum.voters": "1@127.0.0.1:1",
        "listeners": "INTERNAL://127.0.0.1:0",
    }
    broker = Broker(BrokerConfig(settings))
    words = (
        "listener INTERNAL: A client SSLEngine created with the provided settings can't connect to a server SSLEngine"
    )
    with pytest.raises(ListenerError, match=words):
        trio.run(broker.run)
