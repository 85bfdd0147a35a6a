"""Keys of listeners, connections and requests."""

from .declare import CLUSTER_WIDE, PER_BROKER, boolean, integer, long, pieces, string


class NetworkKeys:
    """A section of keys for listeners, connections, and limits of requests."""

    listeners = pieces(
        ("PLAINTEXT://localhost:9092",),
        "Addresses to accept connections on, as NAME://host:port; no host means every interface.",
    )
    advertised_listeners = pieces(
        (),
        "Addresses that Metadata gives to clients; default: for each client the address that it connected to.",
    )
    listener_security_protocol_map = pieces(
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "Security protocol of each listener name, as NAME:PROTOCOL.",
    )
    controller_listener_names = pieces(
        (), "Listeners of the controller; a broker that is a cluster of its own does not open them."
    )
    socket_request_max_bytes = integer(
        104857600, "Largest request in bytes; a client that announces a larger one is disconnected.", least=1
    )
    socket_send_buffer_bytes = integer(
        102400,
        "Send buffer of each socket in bytes; -1 leaves it to the operating system. Unless set, it is 262144.",
    )
    socket_receive_buffer_bytes = integer(
        102400, "Receive buffer of each socket in bytes; -1, or unset, leaves it to the operating system."
    )
    num_network_threads = integer(
        3,
        "Threads that read, convert and send large answers; everything else is the event loop's work.",
        least=1,
        update=CLUSTER_WIDE,
    )
    socket_listen_backlog_size = integer(
        50,
        "Length of each listener's queue of connections to accept; the operating system may shorten it. Unless set, it "
        "is 1024.",
        least=1,
    )
    connections_max_idle_ms = long(600000, "Milliseconds after which an idle connection is closed.")
    max_connections = integer(
        2147483647, "Most connections at the same time, over all listeners.", least=0, update=CLUSTER_WIDE
    )
    max_connections_per_ip = integer(
        2147483647, "Most connections from one address at the same time.", least=0, update=PER_BROKER
    )
    max_connections_per_ip_overrides = string(
        "", "Exceptions from max.connections.per.ip, as host:count, separated by commas.", update=PER_BROKER
    )
    max_connection_creation_rate = integer(
        2147483647, "Connections accepted per second, over all listeners.", least=0, update=CLUSTER_WIDE
    )
    fetch_max_bytes = integer(
        57671680, "Most bytes that one Fetch may return, even if the client requests more.", least=1024
    )
    max_incremental_fetch_session_cache_slots = integer(
        1000, "Most incremental fetch sessions (KIP-227) that the broker keeps.", least=0
    )
    max_request_partition_size_limit = integer(
        2000, "Most partitions that one DescribeTopicPartitions answer may list.", least=1
    )
    auto_create_topics_enable = boolean(True, "Whether a topic that a client names is created on first use.")
    telemetry_max_bytes = integer(1048576, "Largest metrics report in bytes that a client may push (KIP-714).", least=1)
