"""Delegation tokens: their lifetime, the principals that may use them, and logins with them."""

from __future__ import annotations

import base64

import pytest

from gregor.broker.authentication.delegation_tokens import DelegationTokens, belongs_to
from gregor.client.errors import ConnectionLostError
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.cluster_metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from gregor.protocol.schema import Message
from gregor.security.password import Password
from gregor.security.principal import KafkaPrincipal
from gregor.storage.clock import ManualClock
from tests.broker.authentication.secured_broker import SCRAM_MODULE, SecuredBroker

ALICE, BOB, EVE = (KafkaPrincipal("User", name) for name in ("alice", "bob", "eve"))
DAY_MS = 86_400_000


class Settings:
    """Settings that are Kafka's defaults, with a secret."""

    delegation_token_secret_key: Password | None = Password("secret")
    delegation_token_master_key: Password | None = None
    delegation_token_max_lifetime_ms = 7 * DAY_MS
    delegation_token_expiry_time_ms = DAY_MS


class Records:
    """A store of tokens in memory."""

    def __init__(self) -> None:
        self.tokens: dict[str, DelegationTokenRecord] = {}

    def delegation_tokens(self) -> dict[str, DelegationTokenRecord]:
        """Return all of them."""
        return self.tokens

    def change_tokens(self, records: object) -> None:
        """Apply records."""
        for record in records:  # type: ignore[attr-defined]
            if isinstance(record, RemoveDelegationTokenRecord):
                self.tokens.pop(record.token_id)
            else:
                self.tokens[record.token_id] = record


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def tokens(clock: ManualClock) -> DelegationTokens:
    return DelegationTokens(Settings(), Records(), clock)


def refused(code: ErrorCode, call: object, *arguments: object) -> None:
    with pytest.raises(BrokerError) as refusal:
        call(*arguments)  # type: ignore[operator]
    assert refusal.value.code is code


def test_a_renewed_token_is_valid_until_its_expiry_and_only_owner_or_renewers_renew_it(
    tokens: DelegationTokens, clock: ManualClock
) -> None:
    token = tokens.create(ALICE, ALICE, [BOB], -1)
    secret = tokens.hmac_of(token.token_id)
    assert (token.expiration_timestamp, token.max_timestamp) == (1_000_000 + DAY_MS, 1_000_000 + 7 * DAY_MS)
    clock.advance(DAY_MS)
    assert tokens.renew(secret, BOB, -1) == 1_000_000 + 2 * DAY_MS
    assert tokens.renew(secret, ALICE, 5 * DAY_MS) == 1_000_000 + 2 * DAY_MS
    assert tokens.renew(secret, ALICE, 1000) == 1_000_000 + DAY_MS + 1000
    refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, tokens.renew, secret, EVE, -1)
    refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, tokens.expire, secret, EVE, -1)
    refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, tokens.renew, b"x" * 64, ALICE, -1)
    clock.advance(1001)
    refused(ErrorCode.DELEGATION_TOKEN_EXPIRED, tokens.renew, secret, ALICE, -1)
    assert tokens.credential(token.token_id, "SCRAM-SHA-256") is None
    tokens.remove_expired()
    assert tokens.all() == []


def test_a_token_expires_at_its_max_timestamp_at_the_latest(tokens: DelegationTokens, clock: ManualClock) -> None:
    token = tokens.create(ALICE, BOB, [], 5000)
    assert token.expiration_timestamp == token.max_timestamp == 1_005_000
    secret = tokens.hmac_of(token.token_id)
    assert tokens.renew(secret, BOB, DAY_MS) == 1_005_000
    assert tokens.expire(secret, ALICE, 10) == 1_000_010
    assert tokens.expire(secret, ALICE, -1) == 1_000_000
    refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, tokens.expire, secret, ALICE, -1)
    assert belongs_to(token, ALICE)
    assert not belongs_to(token, EVE)


def test_tokens_without_a_secret_key_or_with_a_renewer_that_is_no_user_are_refused(
    tokens: DelegationTokens, clock: ManualClock
) -> None:
    class Without(Settings):
        delegation_token_secret_key: Password | None = None

    disabled = DelegationTokens(Without(), Records(), clock)
    refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, disabled.create, ALICE, ALICE, [], -1)
    refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, disabled.all)
    group = KafkaPrincipal("Group", "g")
    refused(ErrorCode.INVALID_PRINCIPAL_TYPE, tokens.create, ALICE, ALICE, [group], -1)


def test_records_do_not_hold_the_secret(tokens: DelegationTokens) -> None:
    token: Message = tokens.create(ALICE, ALICE, [], -1)
    assert "secret" not in repr(token)
    assert base64.b64encode(tokens.hmac_of(token.token_id)).decode() not in repr(token)  # type: ignore[attr-defined]


@pytest.mark.parametrize("properties", [{"delegation.token.secret.key": "planted"}])
async def test_a_client_that_logged_in_with_a_delegation_token_cannot_create_another(secured: SecuredBroker) -> None:
    async with secured.admin("SASL_SSL", **secured.client("SASL_SSL")) as admin:
        created = await admin.create_delegation_token()
    with_token = secured.client(
        "SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=f'{SCRAM_MODULE} required username="{created.token_id}" '
        f'password="{base64.b64encode(created.hmac).decode()}" tokenauth="true";',
    )
    async with secured.admin("SASL_PLAINTEXT", **with_token) as admin:
        assert (await admin.describe_cluster()).controller_id == 1
        with pytest.raises(BrokerError, match="CreateDelegationToken"):
            await admin.create_delegation_token()
    async with secured.admin("SASL_SSL", **secured.client("SASL_SSL")) as admin:
        assert [token.token_id for token in await admin.describe_delegation_tokens()] == [created.token_id]
        await admin.expire_delegation_token(created.hmac)
    config = secured.config("SASL_PLAINTEXT", **with_token)
    with pytest.raises(ConnectionLostError, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        await (await secured.connect("SASL_PLAINTEXT", config)).run()
