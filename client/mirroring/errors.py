"""The errors that a mirror raises itself."""

from ..errors import ClientError


class MirrorError(ClientError):
    """The mirror cannot continue without a decision of the user: source or target contradict the recorded progress."""
