"""The topics in which the broker keeps its own state (Kafka: Topic.isInternal)."""

GROUP_METADATA = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"

INTERNAL_TOPICS = frozenset({GROUP_METADATA, TRANSACTION_STATE})


def is_internal(topic: str) -> bool:
    """Return whether clients may only read the topic."""
    return topic in INTERNAL_TOPICS
