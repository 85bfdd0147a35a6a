"""The part of `gregor configs` for users, clients and addresses: quotas, and users' SCRAM credentials."""

from __future__ import annotations

from ..client.admin import Admin, QuotaAlteration, QuotaEntity, ScramMechanism, ScramUpsertion
from ..client.admin.quotas import ANY_NAME
from .asking import UsageError, say, say_json

ENTITY_KEYS = {"users": "user", "clients": "client-id", "ips": "ip"}
"""--entity-type -> the entity type of quotas."""
_TITLES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_MECHANISMS = {mechanism.name.replace("_", "-"): mechanism for mechanism in ScramMechanism}


async def alter_quotas(admin: Admin, entity: QuotaEntity, settings: dict[str, str], deleted: list[str]) -> None:
    """Set and remove quotas and credentials. Raises UsageError for invalid values."""
    quotas: dict[str, float | None] = {}
    upsertions, deletions = [], []
    for key, value in settings.items():
        if key in _MECHANISMS:
            upsertions.append(_upsertion(_only_user(entity), _MECHANISMS[key], value))
        else:
            quotas[key] = _number(key, value)
    for key in deleted:
        if key in _MECHANISMS:
            deletions.append((_only_user(entity), _MECHANISMS[key]))
        else:
            quotas[key] = None
    if upsertions or deletions:
        await admin.alter_scram_credentials(upsertions, deletions)
    if quotas:
        await admin.alter_client_quotas([QuotaAlteration(entity, quotas)])
    say(f"Completed updating config for {_described(entity)}.")


async def describe_quotas(admin: Admin, entity: QuotaEntity, *, as_json: bool) -> None:
    """Print the quotas of these entities, and the credentials if only users are named."""
    quotas = await admin.describe_client_quotas(entity)
    if as_json:
        say_json([{"entity": found, "quotas": values} for found, values in quotas])
        return
    for found, values in quotas:
        listed = ", ".join(f"{key}={value}" for key, value in sorted(values.items()))
        say(f"Quota configs for {_described(found)} are {listed}")
    if set(entity) == {"user"} and entity["user"] is not None:
        users = None if entity["user"] == ANY_NAME else [entity["user"]]
        for user, credentials in (await admin.describe_scram_credentials(users)).items():
            names = ", ".join(
                f"{ScramMechanism(item.mechanism).name.replace('_', '-')}=iterations={item.iterations}"
                for item in credentials
            )
            say(f"SCRAM credential configs for user-principal '{user}' are {names}")


def _upsertion(user: str, mechanism: ScramMechanism, text: str) -> ScramUpsertion:
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if "password" not in fields:
        raise UsageError(f"{mechanism.name.replace('_', '-')} must look like [iterations=8192,password=secret]")
    iterations = fields.get("iterations", "4096")
    if not iterations.isdecimal():
        raise UsageError(f"iterations must be a number, not {iterations!r}")
    return ScramUpsertion(user, mechanism, fields["password"].encode(), int(iterations))


def _only_user(entity: QuotaEntity) -> str:
    user = entity.get("user")
    if len(entity) != 1 or user is None:
        raise UsageError("SCRAM credentials belong to one user: give --entity-type users and --entity-name alone")
    return user


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{key} must be a number, not {value!r}") from None


def _described(entity: QuotaEntity) -> str:
    parts = {
        kind: f"the default {title}" if entity[kind] is None else f"{title} '{entity[kind]}'"
        for kind, title in _TITLES.items()
        if kind in entity
    }
    return ", ".join(parts.values())
