"""The consumer: fetching, positions, subscriptions and membership in consumer groups."""
