"""The jobs by the names that people type."""

JOBS = {
    "archive": "archive",
    "audit": "audit",
    "backfill": "backfill",
    "convert": "convert",
    "generate": "generate",
    "mirror": "mirror",
    "replay": "replay",
    "restore": "restore",
    "stats": "stats",
}
"""What a user types -> its module in this room."""
