"""Where topics end now, as a Kafka broker says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError

try:
    from confluent_kafka import Consumer, KafkaException, TopicPartition
except ImportError as error:
    raise BadInputError("asking a broker needs confluent-kafka: pip install 'penstock[kafka]'") from error

if TYPE_CHECKING:
    from penstock.control.attached.batch_sources import Offsets

SECONDS = 15.0


def end_offsets(broker: str, known: Offsets) -> Offsets:
    """Of the topics and partitions that are known; nothing is read and no position is kept."""
    consumer = Consumer(
        {"bootstrap.servers": broker, "group.id": "penstock-advise", "enable.auto.commit": False, "log_level": 0}
    )
    ends: Offsets = {}
    try:
        for topic, parts in known.items():
            for part in parts:
                _, end = consumer.get_watermark_offsets(TopicPartition(topic, int(part)), timeout=SECONDS)
                ends.setdefault(topic, {})[part] = end
    except KafkaException as error:
        raise BadInputError(f"broker {broker}: {error.args[0].str() if error.args else error}") from error
    finally:
        consumer.close()
    return ends
