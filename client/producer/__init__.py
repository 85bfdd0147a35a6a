"""The producer: it collects records into batches by partition, sends and retries them, optionally in transactions."""
