"""Keys of consumer groups, committed offsets and transactions."""

from .declare import CLUSTER_WIDE, boolean, integer, long, short, string, words

_ASSIGNORS = (
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
)


class CoordinatorKeys:
    """A section of keys for the group and transaction coordinators and their internal topics."""

    group_initial_rebalance_delay_ms = integer(
        3000, "Milliseconds that a new group waits for more members before its first rebalance."
    )
    group_min_session_timeout_ms = integer(6000, "Shortest session timeout that a member may request.")
    group_max_session_timeout_ms = integer(1800000, "Longest session timeout that a member may request.")
    group_max_size = integer(2147483647, "Most members of a group.", least=1)
    group_coordinator_rebalance_protocols = words(
        ("classic", "consumer"), "Group protocols that are served.", one_of=("consumer", "classic", "share", "unknown")
    )
    group_consumer_assignors = words(
        _ASSIGNORS, "Server-side assignors of the consumer protocol (KIP-848), the default first."
    )
    group_consumer_session_timeout_ms = integer(45000, "Session timeout of members of the consumer protocol.", least=1)
    group_consumer_min_session_timeout_ms = integer(
        45000, "Shortest session timeout that a group of the consumer protocol may be given.", least=1
    )
    group_consumer_max_session_timeout_ms = integer(
        60000, "Longest session timeout that a group of the consumer protocol may be given.", least=1
    )
    group_consumer_heartbeat_interval_ms = integer(
        5000, "Heartbeat interval of members of the consumer protocol.", least=1
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        5000, "Shortest heartbeat interval that a group of the consumer protocol may be given.", least=1
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        15000, "Longest heartbeat interval that a group of the consumer protocol may be given.", least=1
    )
    group_consumer_migration_policy = string(
        "disabled",
        "Whether living groups may change their protocol: disabled, upgrade, downgrade or bidirectional.",
        one_of=("disabled", "upgrade", "downgrade", "bidirectional"),
        internal=True,
    )
    group_consumer_max_size = integer(2147483647, "Most members of a group of the consumer protocol.", least=1)
    offset_metadata_max_bytes = integer(4096, "Longest metadata text in bytes that may come with a committed offset.")
    offsets_commit_timeout_ms = integer(
        5000,
        "Milliseconds that the response of a coordinator waits for the followers of the coordinator's partitions.",
        least=1,
    )
    offsets_retention_minutes = integer(
        10080, "Minutes that offsets are kept after their group has lost its last member.", least=1
    )
    offsets_retention_check_interval_ms = long(600000, "Milliseconds between two checks for expired offsets.", least=1)
    offsets_topic_num_partitions = integer(
        50, "Partitions of __consumer_offsets; the number must not change once the topic exists.", least=1
    )
    offsets_topic_replication_factor = short(
        3, "Replicas of __consumer_offsets, but no more than there are brokers.", least=1
    )
    offsets_topic_segment_bytes = integer(104857600, "Segment size of __consumer_offsets in bytes.", least=1)
    offsets_topic_compression_codec = integer(
        0, "Codec of batches in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."
    )
    transactional_id_expiration_ms = integer(
        604800000, "Milliseconds that a transactional id is kept after its last use.", least=1
    )
    transaction_max_timeout_ms = integer(900000, "Longest transaction timeout that a producer may request.", least=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        10000, "Milliseconds between two checks for transactions that have timed out.", least=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        3600000, "Milliseconds between two checks for expired transactional ids.", least=1
    )
    transaction_partition_verification_enable = boolean(
        True,
        "Whether a transactional write is refused if the partition was not added to the transaction.",
        update=CLUSTER_WIDE,
    )
    transaction_state_log_num_partitions = integer(
        50, "Partitions of __transaction_state; the number must not change once the topic exists.", least=1
    )
    transaction_state_log_replication_factor = short(
        3, "Replicas of __transaction_state, but no more than there are brokers.", least=1
    )
    transaction_state_log_min_isr = integer(
        2, "In-sync replicas that __transaction_state needs, but no more than there are brokers.", least=1
    )
    transaction_state_log_segment_bytes = integer(104857600, "Segment size of __transaction_state in bytes.", least=1)
