"""The jobs by the names that people type."""

JOBS = {
    "convert": "convert",
    "generate": "generate",
    "stats": "stats",
}
"""What a user types -> its module in this room."""
