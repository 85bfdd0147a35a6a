"""Log compaction: the choice of a log, the records that remain, and the replacement of segments (Kafka `Cleaner`)."""
