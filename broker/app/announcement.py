"""Tells programs that a broker is ready and where: a port file and a line of JSON on standard output."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..config import ConfigError
from .broker import Broker


@dataclass(frozen=True, slots=True)
class Announcement:
    """A pair of choices that says how programs learn that the broker is ready."""

    port_file: Path | None = None
    """A file that holds the port of the first listener while the broker is ready."""
    is_json: bool = False
    """Whether standard output gets one line of JSON, and the log goes to standard error."""
    further: Mapping[str, object] = field(default_factory=dict)
    """Further members of that JSON."""

    def ready(self, broker: Broker) -> None:
        """Announce a broker that serves clients. Raises ConfigError if the port file cannot be written."""
        listening = broker.services.serving.listening
        if self.port_file is not None:
            # A reader must never find the file without the port.
            unfinished = self.port_file.with_name(f"{self.port_file.name}.{os.getpid()}")
            try:
                unfinished.write_text(f"{listening[0].port}\n")
                unfinished.replace(self.port_file)
            except OSError as fault:
                raise ConfigError(f"port file {self.port_file}: {fault.strerror}") from None
        if self.is_json:
            print(json.dumps({**facts(broker), **self.further}), flush=True)  # noqa: T201 (the line that a program reads)

    def ended(self) -> None:
        """Remove the port file."""
        if self.port_file is not None:
            self.port_file.unlink(missing_ok=True)


UNANNOUNCED = Announcement()


def facts(broker: Broker) -> dict[str, object]:
    """Return what programs need to know of a broker that serves clients."""
    listening = broker.services.serving.listening
    addresses = [str(endpoint).partition("://")[2] for endpoint in listening]
    return {
        "ready": True,
        "bootstrap_servers": addresses[0],
        "port": listening[0].port,
        "listeners": [str(endpoint) for endpoint in listening],
        "cluster_id": broker.services.metadata.cluster_id,
        "node_id": broker.config.node_id,
        "log_dirs": list(broker.config.log_dirs),
        "pid": os.getpid(),
    }
