"""Conversion of records to another format while they are sent, in memory that all clients share.

Brokers convert batches of their logs, a gateway converts batches that it has fetched from the brokers behind it.
"""
