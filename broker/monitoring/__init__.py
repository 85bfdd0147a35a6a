"""What the broker tells of itself: metrics by Kafka's names, who its clients are, and the pages that show both."""
