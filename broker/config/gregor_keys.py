"""Keys that Kafka does not have; all begin with ``gregor.``."""

from .declare import CLUSTER_WIDE, boolean, integer, long, optional_string


class GregorKeys:
    """What only Gregor can be told."""

    gregor_client_census_max_clients = integer(
        1000, "Clients of which the broker remembers what they use, for `gregor clients` and metrics.", least=1
    )
    gregor_fault_clock_offset_ms = long(
        0, "Milliseconds by which this broker's clock is ahead, or behind if negative.", update=CLUSTER_WIDE
    )
    gregor_fault_file = optional_string("A YAML or JSON file with fault rules that hold from the start.")
    gregor_fault_injection_enable = boolean(
        False, "Whether gregor.fault.rule.NAME makes this broker slow, refuse, hang up or cheat; see docs/faults.md."
    )
    gregor_message_codec_threads = integer(
        4,
        "Threads in which large compressed batches are checked, and as many, each with a memory of its own, in which "
        "compressed batches are converted; who finds none waits.",
        least=1,
    )
    gregor_message_downconversion_chunk_bytes = integer(
        131072,
        "Bytes of stored batches that are converted at a time for an old consumer.",
        least=4096,
    )
    gregor_message_upconversion_enable = boolean(
        True,
        "Whether a current consumer gets batches of old producers in format v2; off, it gets them as stored.",
        update=CLUSTER_WIDE,
    )
    gregor_metrics_listener = optional_string(
        "Address for Prometheus and probes, as http://host:port; it has /metrics, /healthz and /readyz.",
    )
    gregor_shutdown_timeout_ms = integer(
        1500, "Milliseconds that requests in flight may take to end when the broker is told to stop.", least=0
    )
