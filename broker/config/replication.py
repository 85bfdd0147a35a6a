"""Keys of replication: copying by followers, and the condition for being in sync."""

from .declare import CLUSTER_WIDE, integer, long, optional_string

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
"""Kafka's two replica selectors (KIP-392)."""


class ReplicationKeys:
    """A section of keys for the copying of partitions between brokers."""

    num_replica_fetchers = integer(
        1, "Connections over which a broker fetches replicas from each other broker.", update=CLUSTER_WIDE, least=1
    )
    replica_fetch_backoff_ms = integer(1000, "Longest pause in milliseconds after a follower's failed Fetch.", least=0)
    replica_fetch_max_bytes = integer(1048576, "Bytes of one partition that a follower requests in one Fetch.", least=0)
    replica_fetch_min_bytes = integer(1, "Bytes of records for which a leader delays a follower's Fetch.")
    replica_fetch_response_max_bytes = integer(10485760, "Bytes that a follower requests in one Fetch.", least=0)
    replica_fetch_wait_max_ms = integer(500, "Longest time in milliseconds that a leader delays a follower's Fetch.")
    replica_high_watermark_checkpoint_interval_ms = long(
        5000, "Milliseconds between two writes of the high watermark checkpoint.", least=1
    )
    replica_lag_time_max_ms = long(
        30000, "Milliseconds for which a follower may lack records and still count as in sync.", least=1
    )
    replica_selector_class = optional_string(
        "Class that selects the replica a consumer reads from; the rack-aware one selects the consumer's rack.",
        one_of=(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
    )
    replication_quota_window_num = integer(
        11, "Samples over which the rate of throttled replication is measured.", least=1
    )
    replication_quota_window_size_seconds = integer(
        1, "Seconds of one sample of the rate of throttled replication.", least=1
    )
    replica_socket_timeout_ms = integer(
        30000, "Milliseconds that a follower waits for the response to its Fetch.", least=1
    )
