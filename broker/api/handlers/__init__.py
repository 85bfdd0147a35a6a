"""The handlers, one module for each family of APIs: functions from a typed request to a typed response.

A handler owns no socket and no bytes. It raises `BrokerError` only if the whole request fails; the failure of one topic
or partition is a field of the response.

``from .handlers import groups`` imports nothing yet: `groups` is a `DeferredHandlers`, until something imports
the module itself, as ``from .handlers.groups import handle_heartbeat`` does.
"""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:
    from ..deferred_handlers import deferred_handlers

    __getattr__ = deferred_handlers
