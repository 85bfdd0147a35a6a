"""``python -m bench``: the side-by-side with Kafka 3.9.1; ``chunks``: the sweep of chunk sizes; ``tls``: TLS's cost;
``curves``: costs as work grows."""

import sys

from . import chunks, side_by_side, tls
from .curves import measuring

TABLES = {"chunks": chunks.main, "curves": measuring.main, "tls": tls.main}
run = TABLES.get(sys.argv[1] if len(sys.argv) > 1 else "")
raise SystemExit(run(sys.argv[2:]) if run is not None else side_by_side.main())
