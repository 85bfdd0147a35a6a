"""A progress bar on standard error, drawn by tqdm; nothing is drawn unless that is a terminal."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .asking import say

if TYPE_CHECKING:
    from tqdm import tqdm

SECONDS_BETWEEN_DRAWS = 0.1


class ProgressBar:
    """A bar such as `` 42%|████▏     | 51.2k/123k [00:02<00:03, 20.5k records/s]``, erased at the end."""

    def __init__(self, total: int, unit: str) -> None:
        self._bar = _open_bar(total, unit) if sys.stderr.isatty() else None
        self._is_output_beside_bar = sys.stdout.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, done: int) -> None:
        """Show the number of finished items."""
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def say(self, line: str) -> None:
        """Print a line of output above the bar."""
        if self._bar is not None and self._is_output_beside_bar:
            self._bar.clear()
        say(line)


def _open_bar(total: int, unit: str) -> tqdm[None]:
    """Return a bar that appears after the first interval. tqdm is imported here, as most commands draw no bar."""
    from tqdm import tqdm

    # Neither tqdm's thread, which is for bars that skip draws, nor its semaphore between processes is needed.
    tqdm.monitor_interval = 0
    tqdm.set_lock(threading.RLock())
    return tqdm(
        total=total,
        unit=f" {unit}",
        unit_scale=True,
        file=sys.stderr,
        leave=False,
        dynamic_ncols=True,
        miniters=1,
        mininterval=SECONDS_BETWEEN_DRAWS,
        delay=SECONDS_BETWEEN_DRAWS,
    )
