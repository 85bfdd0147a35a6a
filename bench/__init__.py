"""Measurements: Gregor beside Apache Kafka 3.9.1 in one run, and our own parts. Never imported by the product."""
