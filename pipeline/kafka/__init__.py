"""The format `kafka_raw`: reads topics over the network, with the options of Spark's own connector."""
