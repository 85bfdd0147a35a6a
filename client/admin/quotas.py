"""Quotas of users, clients and addresses (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from ...protocol.messages import alter_client_quotas
from ...protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, OpData
from ...protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from .base import AdminBase, raise_for

QuotaEntity: TypeAlias = Mapping[str, str | None]
"""The entity of a quota, by type (`user`, `client-id`, `ip`): a name, or None for the default entity."""


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


ANY_NAME = "*"
"""Name in a filter of `describe_client_quotas` that matches any name."""


@dataclass(slots=True)
class QuotaAlteration:
    """The changes of one entity: new values by key (`producer_byte_rate`...), None to remove a value."""

    entity: QuotaEntity
    values: Mapping[str, float | None] = field(default_factory=dict)


class QuotaAdmin(AdminBase):
    """The methods of the admin client for quotas."""

    async def describe_client_quotas(
        self, components: QuotaEntity | None = None, *, strict: bool = False
    ) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Return (entity, values) of the entities that match all `components` (none: of every entity).

        A component's name is exact, None for the default entity, ANY_NAME for any; `strict` excludes entities that
        have other components too.
        """
        request = DescribeClientQuotasRequest(
            components=[_component(kind, name) for kind, name in (components or {}).items()], strict=strict
        )
        answer = await self.ask_any(request, DescribeClientQuotasResponse)
        raise_for(answer.error_code, answer.error_message)
        return [
            (
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries or []
        ]

    async def alter_client_quotas(self, alterations: Iterable[QuotaAlteration], *, validate_only: bool = False) -> None:
        """Set and remove quotas."""
        request = AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.EntryData(
                    entity=[
                        alter_client_quotas.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in alteration.entity.items()
                    ],
                    ops=[
                        OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in alteration.values.items()
                    ],
                )
                for alteration in alterations
            ],
            validate_only=validate_only,
        )
        answer = await self.ask_controller(request, AlterClientQuotasResponse)
        for entry in answer.entries:
            raise_for(entry.error_code, entry.error_message)


def _component(kind: str, name: str | None) -> ComponentData:
    if name is None:
        return ComponentData(entity_type=kind, match_type=_Match.DEFAULT, match=None)
    if name == ANY_NAME:
        return ComponentData(entity_type=kind, match_type=_Match.ANY, match=None)
    return ComponentData(entity_type=kind, match_type=_Match.EXACT, match=name)
