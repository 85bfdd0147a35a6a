"""Delegation tokens (KIP-48), by the rules of Kafka's ``DelegationTokenControlManager``.

A token's information is in the cluster's metadata. Its HMAC, which is its secret, is computed from its id and
``delegation.token.secret.key``, so the metadata hold no secret.
"""

from __future__ import annotations

import base64
import hmac
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.cluster_metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ...protocol.schema import Message
from ...security.password import Password
from ...security.principal import USER_TYPE, KafkaPrincipal
from ...storage.clock import Clock

if TYPE_CHECKING:
    from ...security.scram import KnownCredential, ScramCredential

MOST_CREDENTIALS = 1000
"""Most SCRAM credentials of tokens that are kept: each takes thousands of hashes to compute."""


class TokenSettings(Protocol):
    """A view of the keys of delegation tokens (a `BrokerConfig`)."""

    delegation_token_secret_key: Password | None
    delegation_token_master_key: Password | None
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int


class TokenRecords(Protocol):
    """A store of the tokens' records (a `MetadataStore`)."""

    def delegation_tokens(self) -> Mapping[str, DelegationTokenRecord]:
        """Return the tokens by id, not to be changed."""

    def change_tokens(self, records: Sequence[Message]) -> None:
        """Add, change and remove tokens, given as records."""


class DelegationTokens:
    """The delegation tokens of the cluster."""

    def __init__(self, settings: TokenSettings, records: TokenRecords, clock: Clock) -> None:
        self._settings = settings
        self._records = records
        self._clock = clock
        self._credentials: OrderedDict[tuple[str, str], ScramCredential] = OrderedDict()

    # --- logins

    def credential(self, token_id: str, mechanism: str) -> KnownCredential | None:
        """Return the SCRAM credential of a token; see `credentials.TokenCredentials`."""
        token = self._records.delegation_tokens().get(token_id)
        if token is None or self._secret() is None or token.expiration_timestamp < self._clock.now_ms():
            return None
        # Only SCRAM listeners ask, and only they need this module.
        from ...security.scram import KnownCredential, ScramCredential

        known = self._credentials.get((token_id, mechanism))
        if known is None:
            password = Password(base64.b64encode(self.hmac_of(token_id)).decode())
            known = self._credentials[token_id, mechanism] = ScramCredential.of_password(mechanism, password)
            if len(self._credentials) > MOST_CREDENTIALS:
                self._credentials.popitem(last=False)
        owner = KafkaPrincipal.parse(token.owner)
        return KnownCredential(known, owner.name, token_authenticated=True, expires_at_ms=token.expiration_timestamp)

    # --- requests

    def create(
        self, owner: KafkaPrincipal, requester: KafkaPrincipal, renewers: Iterable[KafkaPrincipal], longest_ms: int
    ) -> DelegationTokenRecord:
        """Create a token; ``longest_ms`` is its longest life, if positive.

        Raises BrokerError DELEGATION_TOKEN_AUTH_DISABLED, INVALID_PRINCIPAL_TYPE.
        """
        self.check_enabled()
        named = list(renewers)
        if any(renewer.principal_type != USER_TYPE for renewer in named):
            raise BrokerError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        now_ms = self._clock.now_ms()
        most_ms = self._settings.delegation_token_max_lifetime_ms
        end_ms = now_ms + (min(most_ms, longest_ms) if longest_ms > 0 else most_ms)
        token = DelegationTokenRecord(
            owner=str(owner),
            requester=str(requester),
            renewers=[str(renewer) for renewer in named],
            issue_timestamp=now_ms,
            max_timestamp=end_ms,
            expiration_timestamp=min(end_ms, now_ms + self._settings.delegation_token_expiry_time_ms),
            token_id=base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("="),
        )
        self._records.change_tokens([token])
        return token

    def renew(self, secret: bytes, principal: KafkaPrincipal, period_ms: int) -> int:
        """Renew a token for ``period_ms``, by default and at most for the configured time; return its new expiry.

        Raises BrokerError: DELEGATION_TOKEN_AUTH_DISABLED, _NOT_FOUND, _EXPIRED, _OWNER_MISMATCH.
        """
        token, now_ms = self._found(secret), self._clock.now_ms()
        self._check_alive(token, now_ms)
        _check_owner(token, principal)
        default_ms = self._settings.delegation_token_expiry_time_ms
        return self._expire_at(token, now_ms + (min(period_ms, default_ms) if period_ms > 0 else default_ms))

    def expire(self, secret: bytes, principal: KafkaPrincipal, period_ms: int) -> int:
        """Let a token expire after ``period_ms``, or at once if that is negative; return its expiry.

        Raises the errors of `renew`.
        """
        token, now_ms = self._found(secret), self._clock.now_ms()
        _check_owner(token, principal)
        if period_ms < 0:
            self._records.change_tokens([RemoveDelegationTokenRecord(token_id=token.token_id)])
            return now_ms
        self._check_alive(token, now_ms)
        return self._expire_at(token, now_ms + period_ms)

    def all(self) -> list[DelegationTokenRecord]:
        """Return all tokens. Raises BrokerError DELEGATION_TOKEN_AUTH_DISABLED."""
        self.check_enabled()
        return list(self._records.delegation_tokens().values())

    def remove_expired(self) -> None:
        """Remove the tokens that have expired; on the controller only."""
        now_ms = self._clock.now_ms()
        expired = [
            RemoveDelegationTokenRecord(token_id=token.token_id)
            for token in self._records.delegation_tokens().values()
            if token.expiration_timestamp < now_ms
        ]
        self._records.change_tokens(expired)

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token. Raises BrokerError DELEGATION_TOKEN_AUTH_DISABLED."""
        return hmac.digest(self.check_enabled().value.encode(), token_id.encode(), "sha512")

    def check_enabled(self) -> Password:
        """Return the secret of tokens. Raises BrokerError DELEGATION_TOKEN_AUTH_DISABLED without one."""
        secret = self._secret()
        if secret is None:
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return secret

    def _secret(self) -> Password | None:
        return self._settings.delegation_token_secret_key or self._settings.delegation_token_master_key

    def _found(self, secret: bytes) -> DelegationTokenRecord:
        for token in self.all():
            if hmac.compare_digest(self.hmac_of(token.token_id), secret):
                return token
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

    @staticmethod
    def _check_alive(token: DelegationTokenRecord, now_ms: int) -> None:
        if token.max_timestamp < now_ms or token.expiration_timestamp < now_ms:
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_EXPIRED)

    def _expire_at(self, token: DelegationTokenRecord, expiry_ms: int) -> int:
        changed = DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=token.renewers,
            issue_timestamp=token.issue_timestamp,
            max_timestamp=token.max_timestamp,
            expiration_timestamp=min(token.max_timestamp, expiry_ms),
            token_id=token.token_id,
        )
        self._records.change_tokens([changed])
        return changed.expiration_timestamp


def belongs_to(token: DelegationTokenRecord, principal: KafkaPrincipal) -> bool:
    """Return whether a principal owns a token, requested it, or may renew it."""
    return str(principal) in (token.owner, token.requester, *token.renewers)


def _check_owner(token: DelegationTokenRecord, principal: KafkaPrincipal) -> None:
    if not belongs_to(token, principal):
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
