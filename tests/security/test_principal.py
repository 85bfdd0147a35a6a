"""Principals: Kafka's text form, and what their equality covers."""

from __future__ import annotations

import pytest

from gregor.security.principal import ANONYMOUS, KafkaPrincipal


@pytest.mark.parametrize(
    ("text", "principal_type", "name"),
    [
        ("User:alice", "User", "alice"),
        ("User:CN=broker,O=a:b", "User", "CN=broker,O=a:b"),
        ("Group:", "Group", ""),
        ("User:*", "User", "*"),
    ],
)
def test_a_principal_reads_and_prints_kafkas_form(text: str, principal_type: str, name: str) -> None:
    principal = KafkaPrincipal.parse(text)
    assert (principal.principal_type, principal.name, str(principal)) == (principal_type, name, text)


@pytest.mark.parametrize("text", ["", "alice"])
def test_text_without_a_type_is_refused_in_kafkas_words(text: str) -> None:
    with pytest.raises(ValueError, match="expected a string in format principalType:principalName but got"):
        KafkaPrincipal.parse(text)


def test_token_authentication_does_not_change_the_equality_of_principals() -> None:
    assert KafkaPrincipal("User", "ANONYMOUS", token_authenticated=True) == ANONYMOUS
    assert hash(KafkaPrincipal("User", "ANONYMOUS", token_authenticated=True)) == hash(ANONYMOUS)
