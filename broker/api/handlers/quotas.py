"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import BrokerError
from ....protocol.messages import alter_client_quotas, describe_client_quotas
from ...metadata.state import Entity
from ...quotas.client_quotas import QuotaFilter, entity_of, filter_of, validated_changes
from ..contract import RequestContext


def handle_describe_client_quotas(
    request: describe_client_quotas.DescribeClientQuotasRequest, context: RequestContext
) -> describe_client_quotas.DescribeClientQuotasResponse:
    """Describe the quotas of all entities that the filter matches."""
    components = [(part.entity_type, part.match_type, part.match) for part in request.components]
    try:
        context.authorize(AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME)
        wanted: QuotaFilter = filter_of(components, strict=request.strict)
    except BrokerError as error:
        return describe_client_quotas.DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    found = {
        entity: values for entity, values in context.services.metadata.state.quotas.items() if wanted.takes(entity)
    }
    return describe_client_quotas.DescribeClientQuotasResponse(
        entries=[_entry(entity, values) for entity, values in found.items()]
    )


def _entry(entity: Entity, values: dict[str, float]) -> describe_client_quotas.EntryData:
    return describe_client_quotas.EntryData(
        entity=[describe_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[describe_client_quotas.ValueData(key=key, value=value) for key, value in values.items()],
    )


def handle_alter_client_quotas(
    request: alter_client_quotas.AlterClientQuotasRequest, context: RequestContext
) -> alter_client_quotas.AlterClientQuotasResponse:
    """Set and remove quotas, independently for each entity."""
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[_alter(entry, context, validate_only=request.validate_only) for entry in request.entries]
    )


def _alter(
    entry: alter_client_quotas.EntryData, context: RequestContext, *, validate_only: bool
) -> alter_client_quotas.EntryDataResponse:
    answer = alter_client_quotas.EntryDataResponse(
        error_message=None,
        entity=[
            alter_client_quotas.EntityDataResponse(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
    )
    try:
        entity = entity_of([(part.entity_type, part.entity_name) for part in entry.entity])
        changes = validated_changes(entity, [(op.key, None if op.remove else op.value) for op in entry.ops])
        if not validate_only:
            context.services.metadata.set_quotas((entity, key, value) for key, value in changes.items())
    except BrokerError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer
