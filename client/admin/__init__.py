"""The admin client: a method for each of Kafka's administrative APIs, a module for each subject.

`base.py` selects the broker to ask (any, the controller, a coordinator, leaders, each one); the other modules build
the requests, and `client.py` combines them.
"""

from ...protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from .base import raise_for
from .client import Admin
from .cluster import ClusterDescription
from .configs import AlterOperation, ResourceType
from .groups import GroupMember, GroupOverview
from .quotas import QuotaAlteration, QuotaEntity
from .replicas import ElectionType
from .security import AclBinding, AclFilter, ScramMechanism, ScramUpsertion
from .topics import BROKER_DEFAULT, NewTopic

__all__ = [
    "BROKER_DEFAULT",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "AlterOperation",
    "ClusterDescription",
    "ElectionType",
    "GroupMember",
    "GroupOverview",
    "NewTopic",
    "PatternType",
    "QuotaAlteration",
    "QuotaEntity",
    "ResourceType",
    "ScramMechanism",
    "ScramUpsertion",
    "raise_for",
]
