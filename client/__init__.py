"""A trio-native producer, consumer and admin client for any Kafka from 0.10 to 4.x."""
