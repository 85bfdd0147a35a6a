"""``make bench``: the goals of Gregor's speed, measured beside Apache Kafka 3.9.1, and which of them are missed."""
