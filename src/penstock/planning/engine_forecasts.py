"""Forecasts of a plan: of a fused run, in which every slot runs the whole pipeline on its share of the stream, on the
smallest number of slots that keeps the rate; and of a placed run, by the placement."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.base.tolerance import covers
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT
from penstock.dataflow.pipeline import gains
from penstock.modelling.model import Model
from penstock.planning.prediction.fused import PlannedRun, fused_setup, most_work_seconds
from penstock.planning.prediction.placed import PlacedSetup
from penstock.planning.registry import SEGMENTERS
from penstock.planning.segmentation import segmentation, segments_on_slots

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Cluster, Slot
    from penstock.dataflow.pipeline import Gain, Pipeline
    from penstock.planning.prediction.fused import BatchAdmission, FusedSetup
    from penstock.planning.prediction.placement import Demands, Routing

MAX_TIMES_SLOTS = 4
"""Search up to this multiple of the slots of the allocation for a number that keeps the rate fused."""
THREAD_MARGINS = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.5, math.inf)
"""Threads of a slot are tried for these multiples of its share: batches leave less time than there is."""
CORES_TOLERANCE = 0.05
"""Cores that a forecast may exceed the machines by: it is not more exact than that."""
PLACED_SEGMENTER = "ends"
"""Segmenter of placed runs, unless another is given."""


@dataclass(frozen=True)
class FusedSizing:
    """Sizes fused runs of a pipeline for a rate."""

    pipeline: Pipeline
    demands: Demands
    rate: float
    sized_for: float
    interval_seconds: float
    admission: BatchAdmission
    confidence: float
    slot_memory_mb: float
    max_cores: float | None = None
    """Cores of the cluster that is given; None: machines are rented."""

    def setup(self, slots: int, threads: Mapping[str, int]) -> FusedSetup:
        """Return the fused run on `slots` slots with `threads` in each. With fewer slots than the machine of
        the models had cores, Spark itself uses the remaining ones."""
        cores = max(
            (demand.measured_on.cores or 1 for demand in self.demands.values() if isinstance(demand, Model)), default=1
        )
        there = cores if self.max_cores is None else min(cores, math.ceil(self.max_cores))
        return fused_setup(
            self.pipeline,
            PlannedRun(self.rate, {name: slots * count for name, count in threads.items()}, slots, {}),
            self.demands,
            slots,
            self.sized_for,
            max(slots, there),
            most_work_seconds(self.interval_seconds),
            self.admission,
        )

    def keeps(self, setup: FusedSetup) -> bool:
        """Whether it keeps the rate the plan is sized for with the confidence asked for, in the memory of its slots."""
        forecast = setup.forecast(self.sized_for, self.interval_seconds, self.confidence)
        return forecast.meets_target is True and covers(self.slot_memory_mb, forecast.slot_use[0].memory_mb)

    def on(self, slots: int) -> FusedSetup:
        """Return the run on `slots` slots with the smallest number of threads that keeps the rate, or with most."""
        tried: FusedSetup | None = None
        for margin in THREAD_MARGINS:
            threads = self._threads(slots, margin)
            if tried is None or threads != tried.threads:
                tried = self.setup(slots, threads)
            if self.keeps(tried):
                return tried
        assert tried is not None  # noqa: S101 - there are margins
        return tried

    def _threads(self, slots: int, margin: float) -> dict[str, int]:
        """Threads in one slot: those declared, else the smallest number that does `margin` times the slot's share."""
        threads = dict.fromkeys(self.pipeline.operators, 1)
        for name, gain in self.gains.items():
            model = self.demands[name]
            if isinstance(model, Model):
                threads[name] = fewest_threads(model, margin * gain.at(self.sized_for) / slots)
        declared = {name: operator.threads for name, operator in self.pipeline.operators.items() if operator.threads}
        return threads | {name: -(-count // slots) for name, count in declared.items()}

    @cached_property
    def gains(self) -> Mapping[str, Gain]:
        return gains(self.pipeline)

    def fewest_slots(self, most: int) -> int | None:
        """Return the smallest number of slots up to `most` that keeps the rate; None: none does. It is doubled until it
        suffices, then bisected: more slots keep no less."""
        refused, slots = 0, 1
        while not self.keeps(self.on(slots)):
            if slots >= most:
                return None
            refused, slots = slots, min(2 * slots, most)
        return (
            refused + 1 + bisect_left(range(refused + 1, slots), x=True, key=lambda fewer: self.keeps(self.on(fewer)))
        )


def fewest_threads(model: Model, rate: float) -> int:
    """Return the smallest number of threads whose peak rate, between measured points too, is `rate`; if there is none,
    that of the peak."""
    if not covers(model.peak_rate, rate):
        return model.peak_threads
    return 1 + bisect_left(
        range(1, model.peak_threads), x=True, key=lambda threads: covers(max_rate_up_to(model, threads), rate)
    )


def max_rate_up_to(model: Model, threads: int) -> float:
    """Return the highest rate of at most `threads` threads: a model may fall before it rises again."""
    return max([model.rate(threads), *(point.rate for point in model.points if point.threads <= threads)])


def placed_setup(
    pipeline: Pipeline,
    demands: Demands,
    threads: Mapping[Slot, Mapping[str, int]],
    cluster: Cluster,
    routing: Routing,
) -> PlacedSetup:
    """Return the placed run of a pipeline dealt by `routing`, in the segments placed runs have by default."""
    cut = segmentation(pipeline, SEGMENTERS.create(PLACED_SEGMENTER), None)
    nodes = {slot.node for slot in threads}
    cores = sum(cluster.node(node).capacity[CPU] for node in nodes) / CPU_POINTS_PER_SLOT
    there = segments_on_slots(pipeline, cut.segments, threads)
    return PlacedSetup(pipeline, demands, threads, there, routing, cores if len(nodes) == 1 else None)
