"""The format `kafka_raw`: reading topics over the network, with the options of Spark's own connector."""
