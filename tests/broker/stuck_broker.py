"""A broker whose worker threads, for checks and for conversions, never end.

Run as a script with the arguments of `gregor`. Each such thread says so in one line.
"""

import sys
import threading
from typing import Any

from gregor.broker.api.handlers import produce
from gregor.broker.conversion import converted_sending
from gregor.command_line import main

STUCK = "a worker thread is stuck"


def never_end(*_: Any, **__: Any) -> Any:
    """Wait for ever, like a library call that never returns."""
    print(STUCK, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    vars(produce)["validate"] = never_end
    vars(converted_sending)["plan_down_conversion"] = never_end
    raise SystemExit(main(sys.argv[1:]))
