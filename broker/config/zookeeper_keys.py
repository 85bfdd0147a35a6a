"""Keys of the listeners that speak ZooKeeper's protocol, with ZooKeeper's names where it has the key."""

from .declare import integer, long, pieces


class ZooKeeperKeys:
    """A section of the keys of ZooKeeper's protocol, which brokers and gateways have."""

    gregor_zookeeper_listeners = pieces(
        (),
        "Addresses, as zookeeper://host:port, of listeners that serve ZooKeeper's protocol to consumers of "
        "Kafka 0.8 and 0.9; none by default. Set this key on one broker of a cluster only: all members of a "
        "group must use the same broker.",
    )
    gregor_zookeeper_tickTime = integer(  # noqa: N815 (ZooKeeper's name)
        3000, "Milliseconds between two checks for expired ZooKeeper sessions.", least=1
    )
    gregor_zookeeper_minSessionTimeout = integer(  # noqa: N815
        -1,
        "Least timeout of a ZooKeeper session in milliseconds, for clients that ask for less; -1 is twice tickTime.",
        least=-1,
    )
    gregor_zookeeper_maxSessionTimeout = integer(  # noqa: N815
        -1,
        "Greatest timeout of a ZooKeeper session in milliseconds, for clients that ask for more; -1 is 20 times "
        "tickTime.",
        least=-1,
    )
    gregor_zookeeper_maxClientCnxns = integer(  # noqa: N815
        60, "Most connections to the ZooKeeper listeners from one address; 0 is no limit.", least=0
    )
    gregor_zookeeper_maxCnxns = integer(  # noqa: N815
        1000, "Most connections to the ZooKeeper listeners in all; 0 is no limit.", least=0
    )
    gregor_zookeeper_jute_maxbuffer = integer(
        1048575, "Largest request in bytes to a ZooKeeper listener, which also limits the data of a node.", least=1024
    )
    gregor_zookeeper_max_sessions = integer(
        10000, "Most ZooKeeper sessions; a further client is disconnected.", least=1
    )
    gregor_zookeeper_max_watches_per_session = integer(
        10000, "Most ZooKeeper watches of one connection; a further one is refused with SYSTEMERROR.", least=1
    )
    gregor_zookeeper_max_nodes = integer(
        100000,
        "Most ZooKeeper nodes that clients create; a further one is refused with SYSTEMERROR. Nodes that show topics, "
        "brokers and committed offsets do not count.",
        least=1,
    )
    gregor_zookeeper_max_bytes = long(
        67108864,
        "Most memory in bytes for ZooKeeper watches and nodes that clients create; further ones are refused with "
        "SYSTEMERROR.",
        least=1048576,
    )
    gregor_zookeeper_request_timeout_ms = integer(
        5000,
        "Milliseconds that a ZooKeeper request may wait for Kafka, for example for the coordinator of a group, before "
        "it fails with OPERATIONTIMEOUT.",
        least=1,
    )
