"""``python -m bench``: the goals of Gregor's speed, beside Kafka 3.9.1, and which of them are missed.

With a word: ``versus``, all figures of the load driver; ``chunks``, the sweep of chunk sizes; ``compressed``, topics
that are stored compressed for old consumers; ``curves``, costs as work grows; ``tls``, the cost of TLS; ``spark``,
topics to tables and back beside the connector.
"""

import sys

from . import chunks, compressed, side_by_side, tls
from .curves import measuring
from .goals import table


def _spark(words: list[str]) -> int:
    # The others need no Spark, and some installations have none.
    try:
        from . import spark_tables
    except ModuleNotFoundError as missing:
        print(f"skipped: this needs {missing.name}, which `make pipeline` installs", file=sys.stderr)
        return 0
    return spark_tables.main(words)


TABLES = {
    "chunks": chunks.main,
    "compressed": compressed.main,
    "curves": measuring.main,
    "spark": _spark,
    "tls": tls.main,
    "versus": side_by_side.main,
}
run = TABLES.get(sys.argv[1] if len(sys.argv) > 1 else "")
raise SystemExit(run(sys.argv[2:]) if run is not None else table.main(sys.argv[1:]))
