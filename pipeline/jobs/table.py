"""The jobs by their names on the command line."""

JOBS = {
    "archive": "archive",
    "audit": "audit",
    "backfill": "backfill",
    "convert": "convert",
    "dead-letters": "dead_letters",
    "generate": "generate",
    "mirror": "mirror",
    "package": "package",
    "replay": "replay",
    "restore": "restore",
    "stats": "stats",
}
"""The name on the command line -> the module in this package."""
