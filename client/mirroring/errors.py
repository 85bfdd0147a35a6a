"""What a mirror raises of its own accord."""

from ..errors import ClientError


class MirrorError(ClientError):
    """The copy cannot go on without someone's decision: source or target are not what the progress says of them."""
