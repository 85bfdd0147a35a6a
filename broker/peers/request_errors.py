"""Errors of requests to other nodes."""

from ...protocol.errors import ErrorCode

UNREACHABLE = (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION)
"""Errors of a request that got no answer."""
