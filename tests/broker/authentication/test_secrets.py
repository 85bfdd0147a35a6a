"""Planted secrets appear in no log line, no DescribeConfigs answer and no error."""

from __future__ import annotations

import logging

import pytest

from gregor.client.admin import ResourceType
from gregor.client.errors import AuthenticationFailedError
from tests.broker.authentication.secured_broker import PLAIN_MODULE, SecuredBroker

PLANTED = "planted-secret"
JAAS = "listener.name.sasl_ssl.plain.sasl.jaas.config"
PROPERTIES = {
    JAAS: f'{PLAIN_MODULE} required user_alice="alice-secret" user_p="{PLANTED}";',
    "listener.name.other.ssl.key.password": PLANTED,
    "delegation.token.secret.key": PLANTED,
}


@pytest.mark.parametrize("properties", [PROPERTIES])
async def test_a_planted_secret_is_never_shown(secured: SecuredBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with secured.admin("SASL_SSL", **secured.client("SASL_SSL")) as admin:
            described = await admin.describe_configs(ResourceType.BROKER, "1", include_synonyms=True)
        login = f'{PLAIN_MODULE} required username="p" password="{PLANTED}x";'
        wrong = secured.config("SASL_SSL", sasl_jaas_config=login)
        with pytest.raises(AuthenticationFailedError) as refusal:
            await (await secured.connect("SASL_SSL", wrong)).run()
    by_name = {entry.name: entry for entry in described}
    for name in PROPERTIES:
        assert (by_name[name].value, by_name[name].is_sensitive) == (None, True)
    for shown in (caplog.text, repr(described), repr(refusal.value), repr(wrong)):
        assert PLANTED not in shown
        assert "alice-secret" not in shown
