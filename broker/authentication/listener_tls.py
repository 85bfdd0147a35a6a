"""The TLS of one listener: its keystore and contexts, and the rules for replacing them at run time."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ...security.errors import SecuritySettingError
from ..config.listener_security import LISTENER_PREFIX, Texts, listener_text, tls_properties

# A broker without secured listeners does not load this module.
if TYPE_CHECKING:
    from ...security.stores import KeyMaterial

INVALID_CHANGE = "Validation of dynamic config update of SSLFactory failed: "
"""The beginning of Kafka's answer to a change that would replace the stores of a listener by wrong ones."""
PACKAGE = "org.apache.kafka.common."
"""The package of Kafka's exceptions, whose names Kafka's answers contain."""


class ListenerTexts(Texts, Protocol):
    """A source of the texts of keys that also tells which are set (a `BrokerConfig`)."""

    def is_set(self, name: str) -> bool:
        """Return whether a layer above the defaults sets ``name``."""


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """The TLS of one listener, as it was read from its keys and stores."""

    material: KeyMaterial
    has_truststore: bool
    context: ssl.SSLContext
    own_client: ssl.SSLContext | None
    """The context of this broker as a client of the listener, for the check of connections between brokers."""


def read_listener_tls(texts: ListenerTexts, listener: str, *, uses_sasl: bool, is_for_brokers: bool) -> ListenerTls:
    """Read the keys and stores of a listener. Raises SecuritySettingError.

    The certificates of a listener for brokers must allow each broker to connect to itself, as in Kafka.
    """
    from ...security.keystore_changes import UNCONNECTABLE, check_connectable
    from ...security.principal_mapping import parse_mapping_rules
    from ...security.tls import TlsSettings

    properties = tls_properties(texts, listener)
    parse_mapping_rules(properties.get("ssl.principal.mapping.rules", "DEFAULT"))
    settings = TlsSettings.from_properties(properties)
    if uses_sasl and not texts.is_set(f"{LISTENER_PREFIX}{listener.lower()}.ssl.client.auth"):
        # As in Kafka, SASL replaces certificates of clients unless this listener itself demands them.
        settings = settings.without_client_certificates()
    material = settings.server_material()
    read = ListenerTls(
        material,
        settings.has_truststore,
        settings.server_context(material),
        replace(settings, endpoint_identification_algorithm="").client_context(material) if is_for_brokers else None,
    )
    if read.own_client is not None:
        try:
            check_connectable(read.context, read.own_client)
        except SecuritySettingError as error:
            raise SecuritySettingError(f"{UNCONNECTABLE} {error}") from None
    return read


def read_successor(present: ListenerTls, texts: ListenerTexts, listener: str, *, uses_sasl: bool) -> ListenerTls:
    """Read the keys and stores that would replace the present ones, and check that they may do so.

    Raises SecuritySettingError with the text of Kafka's answer, and the reason where Kafka gives none.
    """
    try:
        successor = read_listener_tls(
            texts, listener, uses_sasl=uses_sasl, is_for_brokers=present.own_client is not None
        )
    except SecuritySettingError as error:
        raise SecuritySettingError(INVALID_CHANGE + _load_failure(texts, listener, str(error))) from None
    try:
        _check_successor(present, successor, texts, listener)
    except SecuritySettingError as error:
        raise SecuritySettingError(f"{INVALID_CHANGE}{PACKAGE}config.ConfigException: {error}") from None
    return successor


def _check_successor(present: ListenerTls, successor: ListenerTls, texts: ListenerTexts, listener: str) -> None:
    from ...security.keystore_changes import check_connectable, check_successor

    def allows(key: str) -> bool:
        return (listener_text(texts, listener, key) or "").lower() == "true"

    check_successor(
        present.material,
        successor.material,
        allows_dn_changes=allows("ssl.allow.dn.changes"),
        allows_san_changes=allows("ssl.allow.san.changes"),
    )
    if successor.has_truststore and not present.has_truststore:
        raise SecuritySettingError(
            "Cannot add SSL truststore to an existing listener for which no truststore was configured."
        )
    if present.own_client is not None and successor.own_client is not None:
        # Brokers take a new certificate one after the other: both must accept each other meanwhile.
        check_connectable(present.context, successor.own_client)
        check_connectable(successor.context, present.own_client)


def _load_failure(texts: ListenerTexts, listener: str, reason: str) -> str:
    """Return Kafka's words for stores that cannot be read, followed by the reason, which Kafka only logs."""
    for store in ("keystore", "truststore"):
        location = listener_text(texts, listener, f"ssl.{store}.location")
        if location and location in reason:
            kind = listener_text(texts, listener, f"ssl.{store}.type")
            # Kafka calls a truststore a keystore here, too.
            pem = f"errors.InvalidConfigurationException: Failed to load PEM SSL keystore {location}"
            other = f"KafkaException: Failed to load SSL keystore {location} of type {kind}"
            return f"{PACKAGE}{pem if kind == 'PEM' else other}: {reason}"
    return f"{PACKAGE}errors.InvalidConfigurationException: {reason}"
