"""The log on a real Kafka, through confluent-kafka."""

from .log import KafkaLog

__all__ = ["KafkaLog"]
