"""Log compaction: which log is next, what remains, and how it replaces the old segments (Kafka `Cleaner`)."""
