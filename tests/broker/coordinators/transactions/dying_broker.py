"""A broker that kills itself with SIGKILL right after one append.

Run as a script: TOPIC PARTITION NUMBER, then the arguments of `gregor`. The NUMBERth append to that log, counted from
1, is the last thing that it does.
"""

import os
import signal
import sys
from typing import Any

from gregor.command_line import main
from gregor.storage.log.partition_log import PartitionLog

append = PartitionLog.append


def die_after(topic: str, partition: int, number: int) -> None:
    """Let every log count its appends from now on."""
    appends = 0

    def append_and_die(log: PartitionLog, *arguments: Any, **options: Any) -> Any:
        nonlocal appends
        result = append(log, *arguments, **options)
        if (log.topic, log.partition) == (topic, partition):
            appends += 1
            if appends == number:
                os.kill(os.getpid(), signal.SIGKILL)
        return result

    PartitionLog.append = append_and_die  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    die_after(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    raise SystemExit(main(sys.argv[4:]))
