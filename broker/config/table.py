"""The table of supported broker keys, collected from the declarations by subject."""

from collections.abc import Iterator
from typing import Final

from .cluster import ClusterKeys
from .controller import ControllerKeys
from .coordinators import CoordinatorKeys
from .declare import Declaration
from .gregor_keys import GregorKeys
from .keys import Key
from .log import LogKeys
from .network import NetworkKeys
from .replication import ReplicationKeys

SECTIONS: Final = (
    ClusterKeys,
    ControllerKeys,
    ReplicationKeys,
    NetworkKeys,
    LogKeys,
    CoordinatorKeys,
    GregorKeys,
)


class SupportedKeys(ClusterKeys, ControllerKeys, ReplicationKeys, NetworkKeys, LogKeys, CoordinatorKeys, GregorKeys):
    """A class with the keys of all sections: the attributes of ``BrokerConfig``."""


def section_keys(section: type) -> Iterator[Key]:
    """Yield the keys that one section declares, in its order."""
    for attribute, declaration in vars(section).items():
        if isinstance(declaration, Declaration):
            yield declaration.named(attribute)


SUPPORTED_KEYS: Final[dict[str, Key]] = {key.name: key for section in SECTIONS for key in section_keys(section)}
