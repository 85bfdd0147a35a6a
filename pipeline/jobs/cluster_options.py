"""The connection of a job to a cluster: bootstrap servers, and a properties file with the settings of the client."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ...client.config import ConsumerConfig
from ...client.errors import ConfigError
from ...client.shared_properties import properties_for
from ...storage.disk.properties import parse_properties
from ..errors import OptionError
from ..kafka.wire import WireSettings

CONFIG_HELP = "properties file with client configurations: security.protocol, ssl.*, sasl.* and others"


def add_config_argument(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    name: str = "--command-config",
    of: str = "",
    *,
    destination: str | None = None,
) -> None:
    """Add the argument for a properties file; ``of`` names the cluster where a job has several."""
    named: dict[str, Any] = {} if destination is None else {"dest": destination}
    parser.add_argument(name, metavar="FILE", help=CONFIG_HELP + (f" ({of})" if of else ""), **named)


def cluster_options(bootstrap_server: str, config: str | None) -> dict[str, str]:
    """Return the connector's `kafka.*` options for a cluster. Raises OptionError for a file that cannot be read."""
    properties: dict[str, str] = {}
    if config is not None:
        try:
            properties = properties_for(ConsumerConfig, parse_properties(Path(config).read_text(encoding="utf-8")))
        except ConfigError as error:
            raise OptionError(f"{config}: {error}") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise OptionError(f"cannot read {config}: {reason}") from None
    named = {f"kafka.{name}": text for name, text in properties.items()}
    return {**named, "kafka.bootstrap.servers": bootstrap_server}


def cluster_settings(bootstrap_server: str, config: str | None) -> WireSettings:
    """Return the settings of connections to a cluster. Raises OptionError."""
    return WireSettings.from_options(cluster_options(bootstrap_server, config))
