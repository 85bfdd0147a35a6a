"""ZooKeeper's monitoring commands, which are four letters on a new connection: envi, ruok, srvr, stat."""

from __future__ import annotations

from collections.abc import Collection

from .. import __version__
from .service import ZooKeeperService

WORD_BYTES = 4
VERSION = f"3.4.6-gregor-{__version__}"
WORDS = ("conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srst", "srvr", "stat")
WORDS_WITH_WATCHES = ("stmk", "wchc", "wchp", "wchs")
KNOWN_WORDS = frozenset(word.encode() for word in WORDS + WORDS_WITH_WATCHES)
"""All commands of ZooKeeper, served or not: such bytes at the beginning of a connection are no length of a frame."""


def answer_word(word: bytes, service: ZooKeeperService, peers: Collection[tuple[str, int]]) -> bytes:
    """Return the answer to one of `KNOWN_WORDS`; `peers` are the clients' addresses."""
    match word:
        case b"ruok":
            return b"imok"
        case b"envi":
            return f"Environment:\nzookeeper.version={VERSION}\n".encode()
        case b"srvr":
            return _server(service, len(peers)).encode()
        case b"stat":
            clients = "".join(f" /{host}:{port}\n" for host, port in peers)
            version, _, rest = _server(service, len(peers)).partition("\n")
            return f"{version}\nClients:\n{clients}\n{rest}".encode()
    return f"{word.decode()} is not executed because it is not in the whitelist.\n".encode()


def _server(service: ZooKeeperService, connection_count: int) -> str:
    traffic = service.traffic
    average_ms = traffic.total_ms // traffic.received if traffic.received else 0
    return (
        f"Zookeeper version: {VERSION}\n"
        f"Latency min/avg/max: {traffic.min_ms}/{average_ms}/{traffic.max_ms}\n"
        f"Received: {traffic.received}\n"
        f"Sent: {traffic.sent}\n"
        f"Connections: {connection_count}\n"
        "Outstanding: 0\n"
        f"Zxid: 0x{service.tree.zxid:x}\n"
        "Mode: standalone\n"
        f"Node count: {len(service.tree)}\n"
    )
