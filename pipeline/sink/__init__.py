"""Writes of rows and stored batches to topics, exactly once where a transaction is used."""
