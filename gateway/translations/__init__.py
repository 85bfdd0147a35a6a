"""Translations of requests that Kafka 4 removed to requests that Kafka 4 serves; `table.py` lists all."""
