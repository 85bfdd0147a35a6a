"""Opening a log, repairing its files after a crash, and read-only verification."""
