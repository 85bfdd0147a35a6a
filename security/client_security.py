"""The security settings of a client under Kafka's names, for the trio client, the pipeline and links between brokers.

Keys that no client of Kafka has are refused by name, and so are contradictions among the values.
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SecuritySettingError
from .jaas import JaasEntry, parse_jaas
from .login_rules import HttpLimits, RefreshRules, RetryRules
from .oauthbearer import OAuthBearerClient
from .plain import PlainClient
from .sasl import GSSAPI, OAUTHBEARER, PLAIN, ClientExchange, check_mechanism
from .scram import ScramClient
from .tls import TLS_KEYS, TlsSettings
from .token_sources import TokenFile, TokenFunction, TokenSource, UnsecuredToken, token_extensions

if TYPE_CHECKING:
    from ..protocol.spoken_versions import SpokenVersions
    from .client_login import ClientLogin

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 (the name of a key)
SASL_KEYS = (
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.header.urlencode",
    TOKEN_ENDPOINT,
)
IGNORED_SASL_KEYS = (
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
)
"""Keys of Java's classes, of brokers and of Kerberos, which Kafka's clients have too, without effect."""
CLIENT_KEYS = frozenset({"security.protocol", "security.providers", *TLS_KEYS, *SASL_KEYS, *IGNORED_SASL_KEYS})
_CONTENTS = "contents of the stores"
"""The entry of a pickled `ClientSecurity` for the TLS settings without files."""


def is_security_key(name: str) -> bool:
    """Return whether a key concerns security, by its name alone."""
    return name in ("security.protocol", "security.providers") or name.startswith(("ssl.", "sasl."))


@dataclass(frozen=True)
class ClientSecurity:
    """The way in which a client connects; it may be copied to another process, also on another machine."""

    protocol: str = "PLAINTEXT"
    tls: TlsSettings = field(default_factory=TlsSettings)
    mechanism: str = GSSAPI
    login: JaasEntry | None = None
    token_endpoint: str | None = None
    encodes_header: bool = False
    login_limits: HttpLimits = field(default_factory=HttpLimits)
    login_retries: RetryRules = field(default_factory=RetryRules)
    login_refresh: RefreshRules = field(default_factory=RefreshRules)
    token_function: TokenFunction | None = field(default=None, repr=False)
    context: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    """A context of the program that replaces the ``ssl.*`` keys."""

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        *,
        token_function: TokenFunction | None = None,
        context: ssl.SSLContext | None = None,
        login: JaasEntry | None = None,
    ) -> ClientSecurity:
        """Check and read the security keys of a client; all ``properties`` must be such keys.

        ``token_function`` returns the tokens of OAUTHBEARER instead of an endpoint; ``login`` replaces
        ``sasl.jaas.config``. Raises SecuritySettingError.
        """
        for name in properties:
            if name not in CLIENT_KEYS:
                nearest = difflib.get_close_matches(name, CLIENT_KEYS, n=1)
                raise SecuritySettingError(
                    f"unknown key {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else "")
                )
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in SECURITY_PROTOCOLS:
            raise SecuritySettingError(
                f"security.protocol must be one of {', '.join(SECURITY_PROTOCOLS)}, not {protocol!r}"
            )
        text = properties.get("sasl.jaas.config")
        security = cls(
            protocol=protocol,
            tls=TlsSettings.from_properties(properties),
            mechanism=properties.get("sasl.mechanism", GSSAPI),
            login=parse_jaas(text) if text else login,
            token_endpoint=properties.get(TOKEN_ENDPOINT),
            encodes_header=_truth(properties, "sasl.oauthbearer.header.urlencode"),
            login_limits=HttpLimits.from_properties(properties),
            login_retries=RetryRules.from_properties(properties),
            login_refresh=RefreshRules.from_properties(properties),
            token_function=token_function,
            context=context,
        )
        security._check()
        return security

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether the client authenticates by SASL."""
        return self.protocol.startswith("SASL_")

    def _check(self) -> None:
        if self.uses_tls and self.context is None:
            self.tls.client_context()
        if not self.uses_sasl:
            return
        check_mechanism(self.mechanism, "sasl.mechanism")
        if self.login is not None and self.mechanism not in self.login.mechanisms:
            raise SecuritySettingError(
                f"sasl.jaas.config: the login module {self.login.name} does not fit sasl.mechanism={self.mechanism}"
            )
        if self.mechanism == OAUTHBEARER:
            self._token_function()
            self._extensions()
            return
        if self.login is None:
            raise SecuritySettingError(f"sasl.jaas.config is missing: {self.mechanism} needs a username and a password")
        for option in ("username", "password"):
            if self.login.option(option) is None:
                raise SecuritySettingError(f"sasl.jaas.config: the login module has no option {option}")

    @cached_property
    def tls_context(self) -> ssl.SSLContext:
        """The context of all connections of this client. Raises SecuritySettingError."""
        return self.context or self.tls.client_context()

    @cached_property
    def _tokens(self) -> TokenSource:
        """The tokens that all connections of this client share."""
        return TokenSource(self._token_function(), self.login_refresh)

    @property
    def login_may_block(self) -> bool:
        """Whether `exchange` may wait for a token endpoint, so that it belongs in a thread."""
        return self.mechanism == OAUTHBEARER

    def exchange(self) -> ClientExchange:
        """Return the client's side of a new SASL exchange.

        Raises SaslAuthenticationError if there is no token to be had.
        """
        if self.mechanism == OAUTHBEARER:
            return OAuthBearerClient(self._tokens.token(), self._extensions())
        login = self.login
        assert login is not None
        username, password = login.option("username") or "", login.options["password"]
        if self.mechanism == PLAIN:
            return PlainClient(username, password)
        is_token = (login.option("tokenauth") or "").lower() == "true"
        return ScramClient(self.mechanism, username, password, is_token=is_token)

    def client_login(self, client_id: str, versions: SpokenVersions | None = None) -> ClientLogin:
        """Return a login on a new connection; may block, see `login_may_block`. Raises SaslAuthenticationError."""
        from .client_login import ClientLogin

        return ClientLogin(self.mechanism, self.exchange(), client_id, versions)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings without what this process made of them, and the contents of the stores.

        Another machine may lack the files of the stores.
        """
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        if self.uses_tls and self.context is None and self.tls.files:
            # The copy's own files are read where these are gone.
            with suppress(SecuritySettingError):
                state[_CONTENTS] = self.tls.with_contents()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the settings of a copy, and the stores' contents where this machine lacks one of their files."""
        contents = state.pop(_CONTENTS, None)
        self.__dict__.update(state)
        if contents is not None and not all(Path(name).exists() for name in self.tls.files):
            self.__dict__["tls"] = contents

    def _token_function(self) -> TokenFunction:
        if self.token_function is not None:
            return self.token_function
        if self.token_endpoint is None:
            if self.login is None:
                raise SecuritySettingError(f"OAUTHBEARER needs {TOKEN_ENDPOINT}, or sasl.jaas.config")
            return UnsecuredToken(self.login)
        if self.token_endpoint.startswith("file:"):
            return TokenFile(self.token_endpoint.removeprefix("file:").removeprefix("//"))
        if not self.token_endpoint.startswith(("https://", "http://")):
            raise SecuritySettingError(f"{TOKEN_ENDPOINT}: {self.token_endpoint} is not an https, http or file URL")
        client_id = self.login.option("clientId") if self.login else None
        secret = self.login.options.get("clientSecret") if self.login else None
        if self.login is None or not client_id or secret is None:
            raise SecuritySettingError("sasl.jaas.config: the options clientId and clientSecret are missing")
        # Programs without such an endpoint do not load an HTTP client.
        from .token_endpoint import TokenEndpoint, endpoint_context

        return TokenEndpoint(
            self.token_endpoint,
            client_id,
            secret,
            self.login.option("scope"),
            self.login_limits,
            self.login_retries,
            endpoint_context(self.token_endpoint, self.login),
            self.encodes_header,
        )

    def _extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions of the login module; Kafka's callback handlers name the options differently."""
        if self.login is None or self.token_function is not None:
            return {}
        return token_extensions(self.login, "extension_" if self.token_endpoint else "unsecuredLoginExtension_")


PLAINTEXT = ClientSecurity()
"""The security of clients that nothing else is configured for."""


def _truth(properties: Mapping[str, str], name: str) -> bool:
    text = (properties.get(name) or "false").lower()
    if text not in ("true", "false"):
        raise SecuritySettingError(f"{name} must be true or false, not {text!r}")
    return text == "true"
