"""The security of one listener: its TLS context, its mechanisms and how a certificate becomes a principal."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...security.errors import SecuritySettingError
from ...security.jaas import JaasEntry, parse_jaas, parse_login_file
from ...security.oauthbearer import OAuthBearerServer, TokenCheck
from ...security.plain import PlainServer
from ...security.principal import USER_TYPE, KafkaPrincipal
from ...security.sasl import OAUTHBEARER, PLAIN, ServerExchange, check_mechanism
from ...security.scram import ScramServer
from ..config import BrokerConfig
from ..config.keys import ConfigError
from ..config.listener_security import listener_text
from ..config.listeners import ListenerError
from ..config.security_keys import OWN_CALLBACK_HANDLERS
from ..config.table import SUPPORTED_KEYS
from ..server.admission import ClientRefusedError
from ..server.client_connection import ClientConnection
from ..server.tls_transport import TlsTransport
from ..server.transport import SocketTransport
from .credential_sources import CredentialSources
from .credentials import credential_lookup, first_credential
from .key_reader import KeyReader
from .listener_tls import ListenerTexts, ListenerTls, read_listener_tls, read_successor
from .sasl_login import LoginRules, SaslLogin
from .signed_tokens import signed_tokens

logger = logging.getLogger(__name__)


class ListenerGuard:
    """The guard of one listener (see `admission.ListenerGuard`), by the listener's keys.

    `take_changes` replaces the TLS context: connections that exist keep theirs.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listener: str,
        protocol: str,
        sources: CredentialSources,
        *,
        is_for_brokers: bool = False,
    ) -> None:
        """Read the listener's keys and stores. Raises ListenerError that names the listener and the key."""
        self.security_protocol = protocol
        self._config = config
        self._listener = listener
        self._uses_sasl = protocol.startswith("SASL_")
        self._tls: ListenerTls | None = None
        self._rules = LoginRules({})
        try:
            self._login_frame_limit_bytes = int(self._number("sasl.server.max.receive.size"))
            if protocol in ("SSL", "SASL_SSL"):
                self._tls = read_listener_tls(
                    config, listener, uses_sasl=self._uses_sasl, is_for_brokers=is_for_brokers
                )
            if self._uses_sasl:
                self._rules = self._login_rules(sources)
        except SecuritySettingError as error:
            raise ListenerError(f"listener {listener}: {error}") from None

    # --- what the server asks

    @property
    def login_frame_limit_bytes(self) -> int:
        """The largest frame of a client that is not authenticated."""
        return self._login_frame_limit_bytes

    @property
    def timeout_s(self) -> float:
        """The time in which a client must authenticate."""
        return self._config.gregor_authentication_timeout_ms / 1000

    @property
    def failure_delay_s(self) -> float:
        """The delay of the answer to a failed login."""
        return self._config.connection_failed_authentication_delay_ms / 1000

    def transport(self, client_socket: socket.socket) -> SocketTransport:
        """Return the transport of a new connection. Raises OSError if the client has disconnected."""
        if self._tls is None:
            return SocketTransport(client_socket)
        return TlsTransport(client_socket, self._tls.context)

    def identify(self, client: ClientConnection, certificate: bytes | None) -> None:
        """Set the principal of an SSL client by its certificate; see `admission.ListenerGuard.identify`."""
        if self._uses_sasl or certificate is None:
            return
        from ...security.distinguished_names import subject_of
        from ...security.principal_mapping import mapped_name, parse_mapping_rules

        rules = parse_mapping_rules(self._text("ssl.principal.mapping.rules") or "DEFAULT")
        try:
            client.principal = KafkaPrincipal(USER_TYPE, mapped_name(subject_of(certificate), rules))
        except ValueError as error:
            raise ClientRefusedError(f"Failed to map the name of the certificate: {error}") from None

    def authenticator(self, client: ClientConnection) -> SaslLogin | None:
        """Return a new SASL login, None on an SSL listener."""
        return SaslLogin(self._rules, client) if self._uses_sasl else None

    # --- configuration

    def check_change(self, texts: ListenerTexts) -> None:
        """Check that the listener's stores can be replaced by those that other texts name.

        Raises SecuritySettingError with the text of Kafka's answer.
        """
        if self._tls is not None:
            read_successor(self._tls, texts, self._listener, uses_sasl=self._uses_sasl)

    def take_changes(self) -> None:
        """Read the stores once more. Raises SecuritySettingError as `check_change`, and then keeps the present ones."""
        if self._tls is not None:
            self._tls = read_successor(self._tls, self._config, self._listener, uses_sasl=self._uses_sasl)

    def _number(self, key: str, mechanism: str | None = None) -> float:
        """Return the number of a key. Raises SecuritySettingError."""
        text = self._text(key, mechanism)
        try:
            value = SUPPORTED_KEYS[key].parse(text or "")
        except ConfigError as error:
            raise SecuritySettingError(str(error)) from None
        assert isinstance(value, int | float)
        return value

    def _text(self, key: str, mechanism: str | None = None) -> str | None:
        return listener_text(self._config, self._listener, key, mechanism)

    def _login_rules(self, sources: CredentialSources) -> LoginRules:
        exchanges: dict[str, Callable[[], ServerExchange]] = {}
        listed = self._text("sasl.enabled.mechanisms") or ""
        for mechanism in filter(None, (word.strip() for word in listed.split(","))):
            check_mechanism(mechanism, "sasl.enabled.mechanisms")
            exchanges[mechanism] = self._exchange_of(mechanism, sources)
        if not exchanges:
            raise SecuritySettingError("sasl.enabled.mechanisms is empty")
        longest = {name: int(self._number("connections.max.reauth.ms", name)) for name in exchanges}
        return LoginRules(exchanges, longest)

    def _exchange_of(self, mechanism: str, sources: CredentialSources) -> Callable[[], ServerExchange]:
        handler = self._text("sasl.server.callback.handler.class", mechanism)
        if handler and handler not in OWN_CALLBACK_HANDLERS:
            raise SecuritySettingError(
                f"sasl.server.callback.handler.class: {handler} is a Java class, which Gregor cannot run"
            )
        entry = login_module(self._config, self._listener, mechanism)
        if mechanism == PLAIN:
            if entry is None:
                raise SecuritySettingError(
                    f"PLAIN needs users: set listener.name.{self._listener.lower()}.plain.sasl.jaas.config to "
                    'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";'
                )
            return partial(PlainServer, entry.users())
        if mechanism == OAUTHBEARER:
            return partial(OAuthBearerServer, self._token_check(entry, sources.key_reader))
        find = credential_lookup(mechanism, sources.users, sources.tokens)
        return partial(ScramServer, mechanism, find, partial(first_credential, mechanism, sources.users))

    def _token_check(self, entry: JaasEntry | None, key_reader: KeyReader) -> TokenCheck:
        if self._text("sasl.oauthbearer.jwks.endpoint.url", OAUTHBEARER):
            return signed_tokens(lambda key: self._text(key, OAUTHBEARER), entry, key_reader).check
        from ...security.token_checks import UnsecuredTokens

        logger.warning(
            "listener %s accepts OAUTHBEARER tokens without a signature, which anyone can make: for development only; "
            "set sasl.oauthbearer.jwks.endpoint.url",
            self._listener,
        )
        return UnsecuredTokens(entry).check


def login_module(config: BrokerConfig, listener: str, mechanism: str) -> JaasEntry | None:
    """Return the login module of a listener's mechanism (Kafka ``JaasContext.loadServerContext``); None if unset.

    Raises SecuritySettingError.
    """
    key = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    text = config.text(key)
    if text:
        entry = parse_jaas(text, key)
        if mechanism not in entry.mechanisms:
            raise SecuritySettingError(f"{key}: the login module {entry.name} is not one of {mechanism}")
        return entry
    path = config.gregor_sasl_jaas_file
    if not path:
        return None
    try:
        contexts = parse_login_file(Path(path).read_text(), path)
    except OSError as error:
        raise SecuritySettingError(f"gregor.sasl.jaas.file: cannot read {path}: {error.strerror}") from None
    entries = contexts.get(f"{listener.lower()}.KafkaServer") or contexts.get("KafkaServer") or []
    return next((entry for entry in entries if mechanism in entry.mechanisms), None)
