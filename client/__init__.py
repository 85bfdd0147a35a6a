"""A trio-native producer, consumer, admin client and mirror for any Kafka from 0.10 to 4.x.

`wire/connection.py` holds the connection to one broker, `wire/cluster.py` the metadata of a cluster and the
connections to its brokers. `producer/` (KIP-126, 526, 794), `consumer/` and `admin/` are built on these two, and
`mirroring/` is built on all three. Configuration keys are Kafka's with underscores, see `config.py`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .admin import Admin
    from .consumer.consumer import Consumer
    from .consumer.consumer_record import ConsumerRecord
    from .producer.appending_cy import Delivery
    from .producer.producer import Producer
    from .producer.record_metadata import RecordMetadata

_HOMES = {
    "Admin": "admin",
    "Consumer": "consumer.consumer",
    "ConsumerRecord": "consumer.consumer_record",
    "Delivery": "producer.appending_cy",
    "Producer": "producer.producer",
    "RecordMetadata": "producer.record_metadata",
}

__all__ = ["Admin", "Consumer", "ConsumerRecord", "Delivery", "Producer", "RecordMetadata"]


def __getattr__(name: str) -> Any:
    """Import each class when it is first used: a command line that only administers needs no producer."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
