"""The embedded broker: a real single-node Kafka, started and stopped for the user."""
