"""The table of supported broker keys, collected from the declarations by subject."""

from collections.abc import Iterator
from typing import Final

from .authorization import AuthorizationKeys
from .cluster import ClusterKeys
from .controller import ControllerKeys
from .coordinators import CoordinatorKeys
from .declare import Declaration
from .gateway_keys import GatewayKeys
from .gregor_keys import GregorKeys
from .keys import Key
from .log import LogKeys
from .network import NetworkKeys
from .replication import ReplicationKeys
from .security_keys import SecurityKeys
from .zookeeper_keys import ZooKeeperKeys


class SupportedKeys(
    ClusterKeys,
    ControllerKeys,
    ReplicationKeys,
    NetworkKeys,
    SecurityKeys,
    LogKeys,
    CoordinatorKeys,
    AuthorizationKeys,
    GregorKeys,
    ZooKeeperKeys,
    GatewayKeys,
):
    """A class with the keys of all sections: the attributes of ``BrokerConfig``."""

    def text(self, name: str) -> str | None:
        """Return the effective value of a key as text, None if it has none."""
        raise NotImplementedError


SECTIONS: Final = SupportedKeys.__bases__
"""The classes that declare the keys of one subject each, in the order of `config/server.properties`."""


def section_keys(section: type) -> Iterator[Key]:
    """Yield the keys that one section declares, in its order."""
    for attribute, declaration in vars(section).items():
        if isinstance(declaration, Declaration):
            yield declaration.named(attribute)


SUPPORTED_KEYS: Final[dict[str, Key]] = {key.name: key for section in SECTIONS for key in section_keys(section)}
