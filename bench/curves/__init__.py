"""``make bench ARGS=curves``: what requests, memory and restarts cost as work grows, beside Apache Kafka 3.9.1."""
