"""Keys of the node, its cluster, quotas and metadata."""

from .declare import integer, long, optional_string, string


class ClusterKeys:
    """A section of keys for the node's identity, metadata and quotas."""

    node_id = integer(1, "Id of this node, unique in its cluster.", least=0)
    broker_id = integer(-1, "The older name of node.id.")
    broker_rack = optional_string("Rack or availability zone of this broker, as reported to clients.")
    inter_broker_protocol_version = string(
        "3.9-IV0", "Kafka version whose behaviour this broker has; some tools read this key."
    )
    metadata_log_segment_bytes = integer(1073741824, "Segment size of the metadata log in bytes.", least=12)
    metadata_log_max_record_bytes_between_snapshots = long(
        20971520, "Bytes of new metadata records after which a snapshot replaces the older records.", least=1
    )
    quota_window_num = integer(11, "Samples over which a client's rate is measured.", least=1)
    quota_window_size_seconds = integer(1, "Seconds of one sample of a client's rate.", least=1)
    controller_quota_window_num = integer(11, "Samples over which the rate of topic changes is measured.", least=1)
    controller_quota_window_size_seconds = integer(1, "Seconds of one sample of the rate of topic changes.", least=1)
