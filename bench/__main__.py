"""``python -m bench``: the side-by-side with Kafka 3.9.1; ``chunks``: the sweep of chunk sizes; ``tls``: TLS's cost."""

import sys

from . import chunks, side_by_side, tls

TABLES = {"chunks": chunks.main, "tls": tls.main}
run = TABLES.get(sys.argv[1] if len(sys.argv) > 1 else "")
raise SystemExit(run(sys.argv[2:]) if run is not None else side_by_side.main())
