"""Keys that Kafka does not have; all begin with ``gregor.``."""

from .declare import CLUSTER_WIDE, boolean, integer, long, optional_string, pieces, string, words


class GregorKeys:
    """A section of the keys that only Gregor has."""

    gregor_client_census_max_clients = integer(
        1000, "Most clients whose API versions the broker keeps, for `gregor clients` and metrics.", least=1
    )
    gregor_cluster_id = optional_string(
        "Cluster id that log directories get at the first start; default: a random one.",
        pattern="[A-Za-z0-9_-]*",
        otherwise="A cluster id is made of letters, digits, - and _",
    )
    gregor_console_client_config = optional_string(
        "Properties file with the client configurations with which the web console connects to this broker.",
    )
    gregor_console_hosts = words(
        (), "Host names by which browsers may reach the web console, besides localhost and addresses."
    )
    gregor_console_listeners = pieces(
        (),
        "Addresses of the web console, as http://host:port; without a host only this machine can reach the console. "
        "The console asks for no password.",
    )
    gregor_console_max_batch_bytes = integer(
        16777216, "Largest record batch, stored and decompressed, that the web console reads.", least=4096
    )
    gregor_console_read_only = boolean(False, "Whether the web console refuses all changes.")
    gregor_console_schema_dir = optional_string(
        "Directory with Avro schemas for the web console: TOPIC-key.avsc, TOPIC-value.avsc, and ID.avsc for the ids of "
        "a schema registry.",
    )
    gregor_control_hosts = words(
        (), "Host names by which programs may reach the control port, besides localhost and addresses."
    )
    gregor_control_listeners = pieces(
        (),
        "Addresses of the control port for tests, as http://host:port; without a host only this machine can "
        "reach the port. It asks for no password, and any program that reaches it can change and delete "
        "topics and records.",
    )
    gregor_control_max_states = integer(16, "Most named states that the control port keeps.", least=1)
    gregor_create_topics = pieces(
        (),
        "Topics that are created before clients are served, as name:partitions:replication:policy; all but the name "
        "may be left out, and key=value sets a topic key.",
    )
    gregor_fault_clock_offset_ms = long(
        0, "Milliseconds by which this broker's clock is ahead, or behind if negative.", update=CLUSTER_WIDE
    )
    gregor_fault_file = optional_string("YAML or JSON file with fault rules that apply from the start.")
    gregor_fault_injection_enable = boolean(
        False, "Whether fault rules (gregor.fault.rule.NAME) have an effect on this broker; see docs/faults.md."
    )
    gregor_gateway_advertised_listeners = pieces(
        (),
        "Addresses, as NAME://host:port, for clients that connect through the default gateway of this "
        "network, as the clients of a container's published port do; advertised.listeners prevails.",
    )
    gregor_http_max_body_bytes = integer(
        1048576, "Most bytes of the body of a request to an HTTP listener (metrics, console).", least=1024
    )
    gregor_http_max_connections = integer(
        32,
        "Most connections of each HTTP listener; a further one disconnects the oldest without a request, else the "
        "oldest of all.",
        least=1,
    )
    gregor_http_max_header_bytes = integer(
        16384, "Most bytes of the request line and headers of a request to an HTTP listener.", least=1024
    )
    gregor_http_timeout_ms = integer(
        10000,
        "Milliseconds in which a client of an HTTP listener must send a request, and take each 64 KiB of the answer.",
        least=1,
    )
    gregor_load = pieces(
        (),
        "Files of JSON lines, and directories of such files or of partitions, that are loaded into topics "
        "without records before clients are served; only a broker that is a cluster of its own can load "
        "files.",
    )
    gregor_log_level = string(
        "INFO",
        "Lowest level of the lines that the broker logs.",
        one_of=("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"),
    )
    gregor_message_codec_threads = integer(
        2,
        "Threads that check large compressed batches; as many further threads, each with its own memory, "
        "convert compressed batches of answers below 256 kB and to clients with TLS. A batch waits for a free thread.",
        least=1,
    )
    gregor_message_downconversion_chunk_bytes = integer(
        131072,
        "Bytes of stored batches that are converted at a time.",
        least=4096,
    )
    gregor_message_downconversion_zstd_codec = string(
        "none",
        "Codec that replaces zstd for consumers of Fetch v0 to v9, which cannot read zstd; with none they are refused, "
        "as in Kafka: Fetch v0 to v3 for each such batch, v4 to v9 for topics with compression.type=zstd.",
        one_of=("none", "gzip", "snappy", "lz4"),
    )
    gregor_message_upconversion_enable = boolean(
        True,
        "Whether batches of old producers are converted to format v2 for consumers that read it.",
        update=CLUSTER_WIDE,
    )
    gregor_metrics_listener = optional_string(
        "Address for Prometheus and probes, as http://host:port; it has /metrics, /healthz and /readyz.",
    )
    gregor_network_busy_poll_max_us = integer(
        50,
        "Longest time in microseconds that the broker looks for the next request before it sleeps, which it does only "
        "while requests come that fast, and never with fewer than two processors; 0: it always sleeps at once.",
        least=0,
    )
    gregor_retention_by = string(
        "timestamp",
        "Time from which retention.ms counts: the timestamps of records, as in Kafka, or their receipt by the broker, "
        "so that wrong clocks of producers neither delete records at once nor keep them for ever.",
        one_of=("timestamp", "receipt"),
        update=CLUSTER_WIDE,
    )
    gregor_shutdown_timeout_ms = integer(
        1500, "Milliseconds that requests in flight may take to end when the broker is stopped.", least=0
    )
