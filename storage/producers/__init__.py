"""The producer state of a log (KIP-98): sequences, open transactions, and their snapshots on disk."""
