"""Stored batches and records as Arrow columns, and the schemas of each `mode`."""
