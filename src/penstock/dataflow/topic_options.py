"""Options of sources and sinks that are topics, by their names. As Spark takes them, in small and capital letters
alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataflow.secret_options import PREFIX
from penstock.digits import is_whole
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

OURS = (
    "connector",
    "delivery",
    "failOnDataLoss",
    "groupId",
    "maxOffsetsPerTrigger",
    "path",
    "startingOffsets",
    "subscribe",
    "topic",
)
"""What our own connector knows, besides what its clients are told (`kafka.*`)."""
ONLY_SPARKS = (
    "assign",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribePattern",
)
"""What else Spark's own connector to Kafka knows of a source."""

_SPELLED = {name.lower(): name for name in (*OURS, *ONLY_SPARKS)}


def well_spelled(options: Mapping[str, str], who: str) -> dict[str, str]:
    """Options as the lists above spell them, those for Kafka's clients in small letters as all their names are."""
    spelled: dict[str, str] = {}
    for option, value in options.items():
        small = option.lower()
        name = small if small.startswith(PREFIX) else _SPELLED.get(small, option)
        if name in spelled:
            raise BadInputError(f"{who}: option {name} is there twice, in other letters: leave out one")
        spelled[name] = value
    return spelled


def check_known_to_us(options: Mapping[str, str], who: str) -> None:
    """For sources that our own connector reads: what it would pass over in silence is refused."""
    for option in options:
        if option in ONLY_SPARKS:
            raise BadInputError(
                f"{who}: option {option}: only Spark's own connector knows it; say connector: spark (in a fused run, "
                "with its package), or leave it out"
            )


def most_per_batch(options: Mapping[str, str], who: str) -> int | None:
    """What a batch takes in of a source at most, in offsets; None: nobody says."""
    text = options.get("maxOffsetsPerTrigger")
    if text is None:
        return None
    if not is_whole(text) or int(text) < 1:
        raise BadInputError(f"{who}: option maxOffsetsPerTrigger: expected a number of at least 1, found '{text[:80]}'")
    return int(text)
