"""Keys that Kafka does not have; all begin with ``gregor.``."""

from .declare import CLUSTER_WIDE, boolean, integer, long, optional_string, pieces, string


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
        "Addresses, as NAME://host:port, that are told to clients who come through the default gateway of this "
        "network, which is how a container sees whoever uses its published port; advertised.listeners wins.",
    )
    gregor_load = pieces(
        (),
        "Files of JSON lines, and directories of such files or of partitions, that are loaded into topics without "
        "records before clients are served; a broker that is a cluster of its own can load, no other.",
    )
    gregor_log_level = string(
        "INFO",
        "Lowest level of the lines that the broker logs.",
        one_of=("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"),
    )
    gregor_message_codec_threads = integer(
        2,
        "Threads in which large compressed batches are checked, and as many, each with a memory of its own, in which "
        "compressed batches are converted; who finds none waits.",
        least=1,
    )
    gregor_message_downconversion_chunk_bytes = integer(
        131072,
        "Bytes of stored batches that are converted at a time.",
        least=4096,
    )
    gregor_message_upconversion_enable = boolean(
        True,
        "Whether batches of old producers are converted to format v2 for consumers that read it.",
        update=CLUSTER_WIDE,
    )
    gregor_metrics_listener = optional_string(
        "Address for Prometheus and probes, as http://host:port; it has /metrics, /healthz and /readyz.",
    )
    gregor_shutdown_timeout_ms = integer(
        1500, "Milliseconds that requests in flight may take to end when the broker is stopped.", least=0
    )
