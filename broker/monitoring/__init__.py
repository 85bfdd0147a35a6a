"""Monitoring: metrics by Kafka's names, levels of loggers, and subscriptions to clients' metrics."""
