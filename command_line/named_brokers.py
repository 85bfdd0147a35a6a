"""Brokers that options name by their ids."""

from __future__ import annotations

from collections.abc import Iterable

from ..client.admin import Admin
from .asking import UsageError


async def check_brokers(admin: Admin, option: str, broker_ids: Iterable[int]) -> None:
    """Raise UsageError, which names the option, if the cluster lacks one of these brokers.

    A request to such a broker would be retried until the time for it is over. Raises ClientError.
    """
    known = (await admin.describe_cluster()).brokers
    unknown = sorted(set(broker_ids) - set(known))
    if unknown:
        raise UsageError(f"{option}: there is no broker {unknown[0]}; there are {', '.join(map(str, sorted(known)))}")
