"""Measurements: Gregor beside Apache Kafka 3.9.1 in one run, and our own pieces. Never imported by the product."""
