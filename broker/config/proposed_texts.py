"""The texts of a broker's configuration as they would be after a change at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker_config import BrokerConfig


class ProposedTexts:
    """The texts of a configuration with other dynamic values for this broker, which are not in effect yet."""

    def __init__(self, config: BrokerConfig, broker_overrides: Mapping[str, str]) -> None:
        self._config = config
        self._layers = (broker_overrides, config.cluster_overrides, config.properties)

    def text(self, name: str) -> str | None:
        """Return the text of a key; None if it has none."""
        for layer in self._layers:
            if name in layer:
                return layer[name]
        return self._config.default_text(name)

    def is_set(self, name: str) -> bool:
        """Return whether a layer above the defaults sets ``name``."""
        return any(name in layer for layer in self._layers)
