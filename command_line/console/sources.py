"""The sources of the pages: the cluster, and the broker in whose process the console runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...broker.api.services import Services
    from ...broker.app.lifetime import BrokerLifetime
    from ...client.admin import Admin
    from .avro_schemas import AvroSchemas
    from .history import History
    from .records import RecordReader


@dataclass(frozen=True, slots=True)
class Sources:
    """A record of what pages read from and write to."""

    admin: Admin
    records: RecordReader
    schemas: AvroSchemas
    lifetime: BrokerLifetime | None
    """The broker of this process; None if the console runs by itself."""
    history: History | None
    """The samples of that broker."""

    @property
    def services(self) -> Services | None:
        """The parts of the broker of this process, which are others after a restart."""
        return None if self.lifetime is None else self.lifetime.broker.services
