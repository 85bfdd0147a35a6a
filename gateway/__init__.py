"""`gregor gateway`: a stateless proxy that serves every old client in front of a Kafka that no longer does.

What the cluster behind it serves passes through byte for byte, but for addresses; the rest is translated
(`translations/`). Only newer Kafka's offers are offered: ApiVersions is the union of what upstream serves and what the
gateway can translate (`offered.py`).

    sessions.py    a client's connection, and its connections to brokers upstream (`link.py`, made by `upstream.py`)
    responder.py   what becomes of a request: passed on, rewritten, or translated
    routing/       one address for a whole cluster: requests are split by leaders and coordinators, answers merged
    fetching/      fetched records: streamed as they are, or converted for old consumers
"""
