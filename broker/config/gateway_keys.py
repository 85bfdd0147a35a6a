"""Keys of `gregor gateway`, the proxy through which old clients reach a newer Kafka; a broker ignores these keys."""

from .declare import boolean, integer, long, pieces, string

UPSTREAM_PREFIX = "gregor.gateway.upstream."
"""A prefix of the keys of Kafka's clients for security, for a gateway as a client of the cluster behind it.

The gateway checks the keys with this prefix, as all clients do: a misspelt one would send requests in clear.
"""


class GatewayKeys:
    """A section of the keys of a gateway, which also uses the keys of listeners, connections and conversions."""

    gregor_gateway_upstream = pieces((), "Bootstrap servers, as host:port, of the Kafka cluster behind the gateway.")
    gregor_gateway_broker_ports = string(
        "",
        "Ports, as FIRST-LAST, of which a gateway opens one for each upstream broker: FIRST plus the node id. With"
        " several listeners, one range for each, in their order: FIRST-LAST,FIRST-LAST. Without this key, one address"
        " serves the whole cluster.",
        pattern=r"(\d{1,5}-\d{1,5}( *, *\d{1,5}-\d{1,5})*)?",
        otherwise="Write the range as FIRST-LAST, one for each listener",
    )
    gregor_gateway_buffer_memory = long(
        33554432,
        "Bytes of fetched batches that a gateway holds for conversion, for all clients together; further fetches of "
        "old clients wait.",
        least=1048576,
    )
    gregor_gateway_isolation_level = string(
        "read_uncommitted",
        "Isolation level of consumers whose Fetch requests have none (Fetch v0 to v3).",
        one_of=("read_uncommitted", "read_committed"),
    )
    gregor_gateway_metadata_refresh_ms = integer(
        5000, "Milliseconds between two requests for the metadata of the upstream cluster.", least=100
    )
    gregor_gateway_response_max_bytes = integer(
        104857600,
        "Largest upstream response in bytes that a gateway keeps in memory; it never keeps fetched records of new "
        "clients.",
        least=1048576,
    )
    gregor_gateway_upstream_timeout_ms = integer(
        10000,
        "Milliseconds within which a gateway must reach an upstream broker before a client's request fails.",
        least=1,
    )
    gregor_gateway_sasl_pass_through = boolean(
        False,
        "Whether a client's SASL exchange is passed on to its broker, which then sees the client's principal; if not, "
        "all clients act as the gateway's own principal. SCRAM needs gregor.gateway.broker.ports, unless upstream is "
        "one broker.",
    )
