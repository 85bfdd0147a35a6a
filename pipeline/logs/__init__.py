"""The format `kafka_log`: reading log directories without a broker."""
