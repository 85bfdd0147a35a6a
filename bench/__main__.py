"""``python -m bench``: the side-by-side with Kafka 3.9.1. With a word: ``chunks``, the sweep of chunk sizes;
``curves``, costs as work grows; ``tls``, the cost of TLS; ``spark``, topics to tables and back beside the connector.
"""

import sys
from importlib import import_module

from . import side_by_side

TABLES = {
    "chunks": "bench.chunks",
    "curves": "bench.curves.measuring",
    "spark": "bench.spark_tables",
    "tls": "bench.tls",
}
"""Imported when they are used, as they need more than the others."""
name = TABLES.get(sys.argv[1] if len(sys.argv) > 1 else "")
raise SystemExit(side_by_side.main() if name is None else import_module(name).main(sys.argv[2:]))
