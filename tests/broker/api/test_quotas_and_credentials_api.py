"""Client quotas, SCRAM credentials, ACLs and tokens without an authorizer, telemetry."""

from uuid import UUID, uuid4

import pytest

from gregor.broker.api.handlers.acls import handle_create_acls, handle_delete_acls, handle_describe_acls
from gregor.broker.api.handlers.delegation_tokens import handle_create_delegation_token
from gregor.broker.api.handlers.quotas import handle_alter_client_quotas, handle_describe_client_quotas
from gregor.broker.api.handlers.security import (
    handle_alter_user_scram_credentials,
    handle_describe_user_scram_credentials,
)
from gregor.broker.api.handlers.telemetry import (
    handle_get_telemetry_subscriptions,
    handle_list_client_metrics_resources,
    handle_push_telemetry,
)
from gregor.broker.metadata.state import ResourceType
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages import alter_client_quotas, alter_user_scram_credentials, create_acls, delete_acls
from gregor.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from gregor.protocol.messages.describe_acls import DescribeAclsRequest
from gregor.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from gregor.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from gregor.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from gregor.protocol.messages.list_client_metrics_resources import ListClientMetricsResourcesRequest
from gregor.protocol.messages.push_telemetry import PushTelemetryRequest
from tests.asking import Asking

Names = dict[str, str | None]


async def set_quota(
    asking: Asking, names: Names, key: str, value: float | None, *, validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    entry = alter_client_quotas.EntryData(
        entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
        ops=[alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    (answer,) = (await asking.ask(handle_alter_client_quotas, request)).entries
    return ErrorCode(answer.error_code), answer.error_message


async def quotas(asking: Asking, *components: tuple[str, int, str | None], strict: bool = False) -> list[Names]:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components],
        strict=strict,
    )
    response = await asking.ask(handle_describe_client_quotas, request)
    assert response.error_code == ErrorCode.NONE
    return [{part.entity_type: part.entity_name for part in entry.entity} for entry in response.entries]


async def test_describe_client_quotas_returns_the_matching_entities(asking: Asking) -> None:
    bob: Names = {"user": "bob"}
    default: Names = {"user": None}
    both: Names = {"client-id": "app", "user": "bob"}
    for names in (bob, default, both):
        assert await set_quota(asking, names, "producer_byte_rate", 1e6) == (ErrorCode.NONE, None)
    assert await quotas(asking) == [bob, default, both]
    assert await quotas(asking, ("user", 0, "bob")) == [bob, both]
    assert await quotas(asking, ("user", 0, "bob"), strict=True) == [bob]
    assert await quotas(asking, ("user", 1, None)) == [default]
    assert await quotas(asking, ("user", 2, None)) == [bob, default, both]
    assert await quotas(asking, ("ip", 2, None)) == []
    assert await set_quota(asking, bob, "producer_byte_rate", None) == (ErrorCode.NONE, None)
    assert await quotas(asking, ("user", 0, "bob")) == [both]


async def test_a_validated_quota_is_not_set(asking: Asking) -> None:
    assert await set_quota(asking, {"user": "bob"}, "producer_byte_rate", 1e6, validate_only=True) == (0, None)
    assert await quotas(asking) == []


@pytest.mark.parametrize(
    ("names", "key", "value", "message"),
    [
        ({"user": "u"}, "moon", 1.0, "Invalid configuration key moon"),
        ({"moon": "u"}, "producer_byte_rate", 1.0, "Unhandled client quota entity type: moon"),
        ({}, "producer_byte_rate", 1.0, "Invalid empty client quota entity"),
        ({"user": ""}, "producer_byte_rate", 1.0, "Empty user not supported"),
        ({"user": "u"}, "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "u"}, "producer_byte_rate", float("nan"), "Quota producer_byte_rate must be greater than 0"),
        ({"user": "u"}, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        ({"user": "u"}, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ({"ip": "not an ip"}, "connection_creation_rate", 1.0, "not an ip is not a valid IP or resolvable host."),
        (
            {"user": "u", "ip": "127.0.0.1"},
            "producer_byte_rate",
            1.0,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
    ],
)
async def test_alter_client_quotas_refuses_invalid_quotas(
    asking: Asking, names: Names, key: str, value: float, message: str
) -> None:
    entry = alter_client_quotas.EntryData(
        entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
        ops=[alter_client_quotas.OpData(key=key, value=value)],
    )
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry])
    (answer,) = (await asking.ask(handle_alter_client_quotas, request)).entries
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)


async def alter_scram(
    asking: Asking, *alterations: alter_user_scram_credentials.ScramCredentialUpsertion | str
) -> list[tuple[str, ErrorCode]]:
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=[
            alter_user_scram_credentials.ScramCredentialDeletion(name=name, mechanism=1)
            for name in alterations
            if isinstance(name, str)
        ],
        upsertions=[wanted for wanted in alterations if not isinstance(wanted, str)],
    )
    response = await asking.ask(handle_alter_user_scram_credentials, request)
    return [(result.user, ErrorCode(result.error_code)) for result in response.results]


def credential(
    name: str, mechanism: int = 1, iterations: int = 4096
) -> alter_user_scram_credentials.ScramCredentialUpsertion:
    return alter_user_scram_credentials.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"s" * 8, salted_password=b"p" * 32
    )


async def test_scram_credentials_are_kept_as_kafka_keeps_them(asking: Asking) -> None:
    assert await alter_scram(asking, credential("al")) == [("al", ErrorCode.NONE)]
    kept = asking.broker.services.metadata.scram_credentials()["al", 1]
    # Records of Apache Kafka 3.9.1 after the same upsertion.
    assert kept.stored_key.hex() == "e5f154c55d000f6eb15a4a09260edb5d5adfb02d7ca0effdb5ea09c7d3c9b53d"
    assert kept.server_key.hex() == "1c4b5802f3b04ee6d6d368c92fee4c1049636db3a6b17850b86afd785a8948ed"
    response = await asking.ask(handle_describe_user_scram_credentials, DescribeUserScramCredentialsRequest(users=None))
    described = [(r.user, [(c.mechanism, c.iterations) for c in r.credential_infos]) for r in response.results]
    assert described == [("al", [(1, 4096)])]
    assert await alter_scram(asking, "al") == [("al", ErrorCode.NONE)]
    assert await alter_scram(asking, "al") == [("al", ErrorCode.RESOURCE_NOT_FOUND)]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (credential(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (credential("a", mechanism=9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (credential("a", iterations=1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (credential("a", iterations=20_000), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
async def test_invalid_scram_credentials_are_refused(
    asking: Asking, wanted: alter_user_scram_credentials.ScramCredentialUpsertion, code: ErrorCode
) -> None:
    assert await alter_scram(asking, wanted) == [(wanted.name, code)]


@pytest.mark.parametrize(
    ("alterations", "answered"),
    [
        (["al", credential("al")], {"al": ErrorCode.RESOURCE_NOT_FOUND}),
        ([credential("al"), credential("al", 2)], {"al": ErrorCode.DUPLICATE_RESOURCE}),
        ([credential("al"), credential("al", 9), credential("bo")], {"bo": 0, "al": ErrorCode.DUPLICATE_RESOURCE}),
        ([credential("al", 9), credential("al")], {"al": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([credential("al", iterations=1), credential("al")], {"al": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([credential(""), credential("")], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        (["held", credential("held", 2)], {"held": ErrorCode.DUPLICATE_RESOURCE}),
    ],
)
async def test_a_user_may_be_altered_once_in_a_request(
    asking: Asking,
    alterations: list[str | alter_user_scram_credentials.ScramCredentialUpsertion],
    answered: dict[str, int],
) -> None:
    """The answers are those of Apache Kafka 3.9.1 to the same requests."""
    assert await alter_scram(asking, credential("held")) == [("held", ErrorCode.NONE)]
    assert dict(await alter_scram(asking, *alterations)) == answered
    kept = asking.broker.services.metadata.scram_credentials()
    assert set(kept) == {("held", 1)} | {(name, 1) for name, code in answered.items() if not code}


async def test_a_user_may_be_described_once_in_a_request(asking: Asking) -> None:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name="al"), UserName(name="al")])
    response = await asking.ask(handle_describe_user_scram_credentials, request)
    assert [result.error_code for result in response.results] == [ErrorCode.DUPLICATE_RESOURCE]


async def test_without_an_authorizer_acl_requests_are_refused_as_security_disabled(asking: Asking) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    with pytest.raises(BrokerError) as refused:
        await asking.ask(handle_describe_acls, DescribeAclsRequest())
    assert refused.value.code == disabled
    creation = create_acls.CreateAclsRequest(creations=[create_acls.AclCreation()])
    assert [r.error_code for r in (await asking.ask(handle_create_acls, creation)).results] == [disabled]
    deletion = delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter()])
    assert [r.error_code for r in (await asking.ask(handle_delete_acls, deletion)).filter_results] == [disabled]


async def test_delegation_tokens_are_refused_on_plaintext_listeners(asking: Asking) -> None:
    response = await asking.ask(handle_create_delegation_token, CreateDelegationTokenRequest())
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_a_client_pushes_what_it_is_subscribed_to(asking: Asking) -> None:
    configs = {"metrics": "org.apache.kafka.producer.", "interval.ms": "5000", "match": "client_id=tes.*"}
    asking.broker.services.metadata.set_configs(ResourceType.CLIENT_METRICS, "s", configs)
    wanted = await asking.ask(handle_get_telemetry_subscriptions, GetTelemetrySubscriptionsRequest())
    assert wanted.client_instance_id != UUID(int=0)
    assert (wanted.requested_metrics, wanted.push_interval_ms) == (["org.apache.kafka.producer."], 5000)

    async def pushed(instance_id: UUID, subscription_id: int, metrics: bytes = b"", codec: int = 0) -> ErrorCode:
        request = PushTelemetryRequest(
            client_instance_id=instance_id, subscription_id=subscription_id, metrics=metrics, compression_type=codec
        )
        return ErrorCode((await asking.ask(handle_push_telemetry, request)).error_code)

    mine = wanted.client_instance_id
    assert await pushed(mine, wanted.subscription_id) == ErrorCode.NONE
    assert await pushed(uuid4(), wanted.subscription_id) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert await pushed(mine, wanted.subscription_id, bytes(1_048_577)) == ErrorCode.TELEMETRY_TOO_LARGE
    assert await pushed(mine, wanted.subscription_id, codec=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    named = await asking.ask(handle_list_client_metrics_resources, ListClientMetricsResourcesRequest())
    assert [resource.name for resource in named.client_metrics_resources] == ["s"]
    asking.broker.services.metadata.set_configs(ResourceType.CLIENT_METRICS, "s", {"metrics": "other."})
    assert await pushed(mine, wanted.subscription_id) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
