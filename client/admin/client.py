"""The admin client itself, combined from its subjects."""

from __future__ import annotations

from .cluster import ClusterAdmin
from .configs import ConfigAdmin
from .groups import GroupAdmin
from .quotas import QuotaAdmin
from .records import RecordAdmin
from .replicas import ReplicaAdmin
from .security import SecurityAdmin
from .topics import TopicAdmin
from .transactions import TransactionAdmin


class Admin(
    TopicAdmin,
    ConfigAdmin,
    GroupAdmin,
    RecordAdmin,
    ClusterAdmin,
    ReplicaAdmin,
    TransactionAdmin,
    QuotaAdmin,
    SecurityAdmin,
):
    """A client that administers a cluster::

        async with Admin("localhost:9092") as admin:
            await admin.create_topics([NewTopic("orders", partition_count=3)])

    Keywords are Kafka's admin keys with underscores (`AdminConfig`); on errors see `AdminBase`.
    """
