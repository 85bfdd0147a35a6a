"""The format `kafka_log`: reads log directories without a broker."""
