"""The reuse of connections by the tasks that Spark runs one after the other in one Python process.

A task of a micro-batch may read a hundred records; connecting, logging in and asking for versions and leaders takes
longer than that. Spark's own connector caches its consumers for the same reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..worker_process import is_task
from .cluster_view import ClusterView
from .wire import WireSettings

IDLE_LIMIT_S = 60.0
"""The time after which connections that no task has used are not used again."""


@dataclass(frozen=True, slots=True)
class _Kept:
    settings: WireSettings
    view: ClusterView
    since: float


class _Keeper(threading.local):
    kept: _Kept | None = None


_keeper = _Keeper()


@contextmanager
def reused_view(settings: WireSettings) -> Iterator[ClusterView]:
    """Yield a view of the cluster: in a task of Spark that of the task before, if it has the same settings.

    After an exception in the context, also that of a generator which is not read to its end, it is not used again: an
    answer may be on its way.
    """
    view = _take(settings)
    try:
        yield view
    except BaseException:
        view.close()
        raise
    if is_task():
        _keeper.kept = _Kept(settings, view, time.monotonic())
    else:
        view.close()


def _take(settings: WireSettings) -> ClusterView:
    kept, _keeper.kept = _keeper.kept, None
    if kept is not None:
        is_young = time.monotonic() - kept.since < IDLE_LIMIT_S
        if kept.settings == settings and is_young and kept.view.is_quiet():
            return kept.view
        kept.view.close()
    return ClusterView(settings)
