"""Keys of logs on disk: most are defaults that a topic may override, see :mod:`.topic_keys`."""

from .declare import (
    CLUSTER_WIDE,
    boolean,
    double,
    integer,
    long,
    optional_integer,
    optional_long,
    pieces,
    string,
    words,
)

_NO_LIMIT = 9223372036854775807
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class LogKeys:
    """A section of keys for the logs' directories, retention, and limits of appends."""

    log_dir = string("./gregor-data", "Directory of the logs if log.dirs is not set.")
    log_dirs = pieces((), "Directories of the logs; a new partition goes to the one with the fewest partitions.")
    num_partitions = integer(1, "Partitions of a topic that is created without a count.", least=1)
    default_replication_factor = integer(1, "Replicas of a topic that is created without a count.")
    min_insync_replicas = integer(
        1, "Number of in-sync replicas below which a write with acks=all is refused.", least=1, update=CLUSTER_WIDE
    )
    compression_type = string(
        "producer",
        "Compression of stored batches; Gregor ignores it and stores batches as they were produced.",
        one_of=_CODECS,
        update=CLUSTER_WIDE,
    )
    compression_gzip_level = integer(
        -1, "Level of gzip, 1 to 9, or -1 for the codec's default.", least=1, most=9, or_equal=-1, update=CLUSTER_WIDE
    )
    compression_lz4_level = integer(9, "Level of lz4.", least=1, most=17, update=CLUSTER_WIDE)
    compression_zstd_level = integer(3, "Level of zstd.", least=-131072, most=22, update=CLUSTER_WIDE)
    message_max_bytes = integer(1048588, "Largest batch in bytes that may be appended.", least=0, update=CLUSTER_WIDE)
    log_message_downconversion_enable = boolean(
        True,
        "Whether newer records are converted for old consumers; if not, fetching them gives UNSUPPORTED_VERSION.",
        update=CLUSTER_WIDE,
    )
    log_message_format_version = string(
        "3.0-IV1",
        "Accepted for old configurations, without effect: records are stored as they were produced.",
        pattern=r"(0\.([89]|1[01])|[1-4])\.\d(\.\d)?(-IV\d)?|[1-4]\.\d(-IV\d)?|0\.1[01](\.\d)?(-IV\d)?",
        otherwise="Version {} is not a valid version",
    )
    log_message_timestamp_type = string(
        "CreateTime",
        "Whether the timestamp of a record is set by the producer or by the broker at the append.",
        one_of=("CreateTime", "LogAppendTime"),
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms = long(
        _NO_LIMIT,
        "Milliseconds by which a record's timestamp may be before the broker's time.",
        least=0,
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms = long(
        _NO_LIMIT,
        "Milliseconds by which a record's timestamp may be after the broker's time.",
        least=0,
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_difference_max_ms = long(
        _NO_LIMIT,
        "The older name of both log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms.",
        least=0,
        update=CLUSTER_WIDE,
    )
    log_segment_bytes = integer(
        1073741824, "Size in bytes at which the log begins a new segment.", least=14, update=CLUSTER_WIDE
    )
    log_roll_ms = optional_long(
        "Age in milliseconds at which the log begins a new segment; prevails over log.roll.hours.",
        least=1,
        update=CLUSTER_WIDE,
    )
    log_roll_hours = integer(168, "Age in hours at which the log begins a new segment.", least=1)
    log_roll_jitter_ms = optional_long(
        "Most milliseconds to take at random from a segment's age limit; prevails over log.roll.jitter.hours.",
        least=0,
        update=CLUSTER_WIDE,
    )
    log_roll_jitter_hours = integer(0, "Most hours to take at random from a segment's age limit.", least=0)
    log_preallocate = boolean(False, "Whether a new segment's file gets its full size at once.", update=CLUSTER_WIDE)
    log_index_interval_bytes = integer(
        4096, "Bytes of log between two entries of its index.", least=0, update=CLUSTER_WIDE
    )
    log_index_size_max_bytes = integer(10485760, "Largest index of a segment in bytes.", least=4, update=CLUSTER_WIDE)
    log_retention_ms = optional_long(
        "Milliseconds that records are kept, -1 for ever; prevails over log.retention.minutes and log.retention.hours.",
        update=CLUSTER_WIDE,
    )
    log_retention_minutes = optional_integer("Minutes that records are kept; prevails over log.retention.hours.")
    log_retention_hours = integer(168, "Hours that records are kept, -1 for ever.")
    log_retention_bytes = long(-1, "Bytes that each partition keeps, -1 for no limit.", update=CLUSTER_WIDE)
    log_retention_check_interval_ms = long(
        300000, "Milliseconds between two checks for segments that retention may delete.", least=1
    )
    log_local_retention_ms = long(
        -2,
        "Milliseconds that records stay on this broker once tiered storage has them; without effect if tiered"
        " storage is off.",
        least=-2,
        update=CLUSTER_WIDE,
    )
    log_local_retention_bytes = long(
        -2,
        "Bytes that stay on this broker once tiered storage has them; without effect if tiered storage is off.",
        least=-2,
        update=CLUSTER_WIDE,
    )
    log_initial_task_delay_ms = long(
        30000, "Milliseconds after start before retention, flushing and cleaning begin.", least=0, internal=True
    )
    log_segment_delete_delay_ms = long(
        60000, "Milliseconds that a deleted segment's file stays on disk.", least=0, update=CLUSTER_WIDE
    )
    delete_topic_enable = boolean(True, "Whether topics may be deleted.")
    log_cleanup_policy = words(
        ("delete",),
        "Cleanup policy of old records: delete them, or compact the log to the last record of each key.",
        one_of=("compact", "delete"),
        update=CLUSTER_WIDE,
    )
    log_cleaner_enable = boolean(True, "Whether the broker compacts topics whose cleanup policy is compact.")
    log_cleaner_threads = integer(1, "Logs that may be compacted at the same time.", least=0, update=CLUSTER_WIDE)
    log_cleaner_backoff_ms = long(
        15000, "Milliseconds until the next check if no log needs compaction.", least=0, update=CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size = long(
        134217728, "Bytes of memory for the keys of compactions.", update=CLUSTER_WIDE
    )
    log_cleaner_io_buffer_load_factor = double(
        0.9, "Share of the memory for keys that compaction may fill.", update=CLUSTER_WIDE
    )
    log_cleaner_io_max_bytes_per_second = double(
        1.7976931348623157e308, "Bytes per second that compaction may read and write.", update=CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio = double(
        0.5,
        "Smallest uncompacted share of a log at which the log is compacted.",
        least=0,
        most=1,
        update=CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms = long(
        0, "Shortest time in milliseconds that a record stays uncompacted.", least=0, update=CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms = long(
        _NO_LIMIT, "Longest time in milliseconds that a record stays uncompacted.", least=1, update=CLUSTER_WIDE
    )
    log_cleaner_delete_retention_ms = long(
        86400000, "Milliseconds that compaction keeps the tombstone of a deleted key.", least=0, update=CLUSTER_WIDE
    )
    log_flush_interval_messages = long(
        _NO_LIMIT, "Records appended to a partition before its log is flushed.", least=1, update=CLUSTER_WIDE
    )
    log_flush_interval_ms = optional_long(
        "Longest time in milliseconds before an appended record is flushed.",
        update=CLUSTER_WIDE,
    )
    log_flush_scheduler_interval_ms = long(_NO_LIMIT, "Milliseconds between two checks for logs that must be flushed.")
    log_flush_offset_checkpoint_interval_ms = integer(
        60000, "Milliseconds between two writes of the recovery point checkpoint.", least=0
    )
    producer_id_expiration_ms = integer(
        86400000,
        "Milliseconds without a write after which a partition removes the state of an idempotent producer.",
        least=1,
        update=CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms = integer(
        600000, "Milliseconds between two looks for producers to forget.", least=1, internal=True
    )
