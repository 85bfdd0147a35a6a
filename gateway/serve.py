"""`gregor gateway`: one gateway in one process."""

from __future__ import annotations

import logging
import sys

from .. import __version__
from ..broker.config import BrokerConfig
from ..broker.process.running import is_kernel_compiled, milliseconds_since_exec, run_until_signalled
from .gateway import Gateway

logger = logging.getLogger(__name__)


def serve(config: BrokerConfig) -> int:
    """Run a gateway until SIGTERM or SIGINT; return the exit status: 0, or 1 after one line of error."""
    return run_until_signalled(config, lambda: Gateway(config), _log_started, sys.stdout)


def _log_started(gateway: Gateway) -> None:
    logger.info(
        "gregor %s gateway accepts connections on %s in front of %s; up after %d ms, record kernel %s",
        __version__,
        ",".join(map(str, gateway.listening)),
        ",".join(gateway.config.gregor_gateway_upstream),
        milliseconds_since_exec(),
        "compiled" if is_kernel_compiled() else "in pure Python",
    )
