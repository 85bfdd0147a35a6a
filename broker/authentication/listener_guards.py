"""The guards of a node's listeners. A node without secured listeners imports no mechanism and no TLS."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...security.errors import SecuritySettingError
from ..config import BrokerConfig
from ..config.listener_security import LISTENER_PREFIX, unprefixed
from ..config.proposed_texts import ProposedTexts
from .credential_sources import CredentialSources

if TYPE_CHECKING:
    from .listener_guard import ListenerGuard

logger = logging.getLogger(__name__)

SECURED_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ListenerGuards:
    """The guards of all secured listeners of a node, the controller's included."""

    def __init__(self, config: BrokerConfig, sources: CredentialSources) -> None:
        self.sources = sources
        self._config = config
        self._guards: dict[str, ListenerGuard] = {}

    def open(self, protocols: Mapping[str, str], *, for_brokers: str | None = None) -> dict[str, ListenerGuard]:
        """Add and return the guards of those listeners that are secured, by name. Raises ListenerError.

        ``for_brokers`` is the listener that other brokers use.
        """
        secured = {name: protocol for name, protocol in protocols.items() if protocol in SECURED_PROTOCOLS}
        if not secured:
            return {}
        from .listener_guard import ListenerGuard

        opened = {
            name: ListenerGuard(self._config, name, protocol, self.sources, is_for_brokers=name == for_brokers)
            for name, protocol in secured.items()
        }
        self._guards |= opened
        return opened

    def check_change(self, touched: Iterable[str], broker_overrides: Mapping[str, str]) -> None:
        """Check the stores of the listeners that a change of this broker's dynamic configuration concerns.

        ``touched`` are the changed keys, and ``broker_overrides`` all keys after the change. A key that keeps its value
        counts as changed: the file that it names may have changed. Raises SecuritySettingError with Kafka's text.
        """
        concerned = [name for name in touched if unprefixed(name).startswith("ssl.")]
        if not concerned:
            return
        texts = ProposedTexts(self._config, broker_overrides)
        for listener, guard in self._guards.items():
            prefix = f"{LISTENER_PREFIX}{listener.lower()}."
            if any(name.startswith(("ssl.", prefix)) for name in concerned):
                guard.check_change(texts)

    def take_changes(self) -> None:
        """Give the listeners their present stores: after a change of the configuration, or of a file."""
        for name, guard in self._guards.items():
            try:
                guard.take_changes()
            except SecuritySettingError as error:
                logger.error("listener %s keeps its certificates: %s", name, error)
