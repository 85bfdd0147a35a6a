"""The jobs by the names that people type."""

JOBS: dict[str, str] = {}
"""What a user types -> its module in this room."""
