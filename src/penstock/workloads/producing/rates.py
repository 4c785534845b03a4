"""Rates of a producer over time: those every load has, and the shapes the documents feed their pipelines with."""

from __future__ import annotations

import math

from penstock.dataflow.load import MOST_RATE, Load, parse_load
from penstock.errors import BadInputError

SINE_STEPS = 48
"""Spells one period of a sine is cut into."""
BATCH_RATE = 1_000.0
"""Messages/s within a batch, where nothing else is said."""


def producer_load(text: str) -> Load:
    """As `parse_load`, and: `on-off:HIGH,ON,OFF,LOW` (a low rate instead of none), `sine:MEAN,AMPLITUDE,SECONDS`, and
    `batches:LENGTH,GAP[,RATE]` (so many messages, then seconds of silence)."""
    kind, _, rest = text.partition(":")
    parts = rest.split(",")
    try:
        if kind == "on-off" and len(parts) == 4:
            high, on_seconds, off_seconds, low = map(float, parts)
            return Load(((on_seconds, high), (off_seconds, low)), repeats=True)
        if kind == "sine":
            mean, amplitude, seconds = map(float, parts)
            return sine(mean, amplitude, seconds)
        if kind == "batches":
            length, gap, *more = map(float, parts)
            return batches(length, gap, *more)
    except (ValueError, TypeError) as error:
        raise BadInputError(f"rate '{text}': {error}") from error
    return parse_load(text)


def sine(mean: float, amplitude: float, seconds: float) -> Load:
    """mean + amplitude sin(2 pi t / seconds), in steps; each has the rate of its middle."""
    if not 0 <= amplitude <= mean:
        raise BadInputError(f"sine: expected an amplitude from 0 to the mean of {mean:g}, found {amplitude:g}")
    middles = ((step + 0.5) / SINE_STEPS for step in range(SINE_STEPS))
    rates = (max(0.0, mean + amplitude * math.sin(2 * math.pi * middle)) for middle in middles)
    return Load(tuple((seconds / SINE_STEPS, rate) for rate in rates), repeats=True)


def batches(length: float, gap: float, rate: float = BATCH_RATE) -> Load:
    """`length` messages at `rate`, then `gap` seconds of nothing."""
    if not length >= 1:
        raise BadInputError(f"batches: expected at least one message, found {length:g}")
    if not 0 < rate <= MOST_RATE:
        raise BadInputError(f"batches: expected a rate above 0, found {rate:g}")
    return Load(((length / rate, rate), (gap, 0.0)), repeats=True)
