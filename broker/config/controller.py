"""Keys of the controller, and of the brokers that follow it."""

from .declare import CLUSTER_WIDE, boolean, integer, long, optional_string, words


class ControllerKeys:
    """A section of keys for the controller's address, heartbeats, and leader elections."""

    process_roles = words(
        (),
        "Roles of this node: broker, controller, or both; empty for a broker that is a cluster of its own.",
        one_of=("broker", "controller"),
    )
    controller_quorum_voters = words(
        (), "Address of the controller, as id@host:port; if there are several, Gregor uses only the first."
    )
    controller_quorum_bootstrap_servers = words(
        (), "Address of the controller, as host:port, for brokers that do not know the controller's id."
    )
    controller_quorum_request_timeout_ms = integer(
        2000, "Milliseconds that a broker waits for an answer of the controller.", least=1
    )
    controller_quorum_retry_backoff_ms = integer(
        20, "Milliseconds that a broker waits before it connects to a lost controller again.", least=1
    )
    inter_broker_listener_name = optional_string(
        "Listener for connections between brokers; default: PLAINTEXT, or the first listener for clients."
    )
    broker_heartbeat_interval_ms = integer(2000, "Milliseconds between two heartbeats of a broker to the controller.")
    broker_session_timeout_ms = integer(9000, "Milliseconds without a heartbeat after which a broker counts as dead.")
    initial_broker_registration_timeout_ms = integer(
        60000, "Milliseconds that a broker tries to register at start, before it gives up."
    )
    controlled_shutdown_enable = boolean(
        True, "Whether a broker moves its leaderships to other brokers before it stops."
    )
    auto_leader_rebalance_enable = boolean(True, "Whether leadership returns to preferred replicas automatically.")
    leader_imbalance_check_interval_seconds = long(
        300, "Seconds between two checks for partitions not led by their preferred replica.", least=1
    )
    unclean_leader_election_enable = boolean(
        False,
        "Whether a replica that is not in sync may become leader if no in-sync replica is left.",
        update=CLUSTER_WIDE,
    )
