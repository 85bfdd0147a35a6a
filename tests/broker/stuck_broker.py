"""A broker whose worker threads never end: neither those that check batches nor those that convert them.

Run as a script with the arguments of `gregor`. Each such thread says so in one line.
"""

import sys
import threading
from typing import Any

from gregor.broker.api.handlers import produce
from gregor.broker.replicas.fetching import conversion
from gregor.command_line import main

STUCK = "a worker thread is stuck"


def never_end(*_: Any, **__: Any) -> Any:
    """Wait for ever, as a library would that does not come back."""
    print(STUCK, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    vars(produce)["validate"] = never_end
    vars(conversion)["plan_down_conversion"] = never_end
    raise SystemExit(main(sys.argv[1:]))
