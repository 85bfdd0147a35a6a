"""Errors of requests to the control port; the text of each is the answer's."""

from __future__ import annotations


class RefusedError(Exception):
    """An error for a request that cannot be done as it was sent."""


class NotFoundError(RefusedError):
    """An error for a path that names nothing."""
