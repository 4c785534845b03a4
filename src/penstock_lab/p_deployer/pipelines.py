"""The pipelines P-Deployer was evaluated with, and what a tuple costs their operators.

The document states the shapes in words, what the operators do (30,000 random numbers; parsing JSON; sleeping 10 ms;
keeping a window of 300 s), and one result of its own profiles: Linear of CPU-bound operators at 2,000 tuples/s is
planned with one thread each on three nodes of two cores. The profiles themselves it does not print. Those here are
chosen: the sojourn-bound one as stated, the CPU-bound one so that the stated plan comes out, the others freely.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.cluster.resources import CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.cluster.topology import Cluster, Node
from penstock.dataflow.builder import PipelineBuilder
from penstock.modelling.library import ModelLibrary
from penstock.modelling.task_profile import Bound, TaskProfile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline

NODE_SLOTS = 2
NODE_MEMORY_MB = 4096.0
"""m1.medium: two cores and 4 GB."""
BUDGET = 16
"""Nodes the document may use."""
METIS_SOJOURN_THREADS = 5
"""The document gives sojourn-bound operators five times the threads under Metis."""

TARGETS = {
    "word-count": (2000, 4000, 6000),
    "linear": (1000, 2000, 3000, 4000),
    "diamond": (1000, 2000, 3000, 4000),
    "star": (1000, 2000, 3000, 4000),
}
"""Tuples/s. 2,000 and Word Count's 6,000 are stated; the others are only drawn, and chosen."""
WAYS = {"packing": ("profiled", "packing"), "metis": ("per-node", "metis")}

PROFILES = (
    TaskProfile(
        name="spout", sojourn_seconds=0.0001, processing_cpu=0.005, moving_cpu=0.004, memory_mb=0.02, bound=Bound.IO
    ),
    TaskProfile(
        name="cpu", sojourn_seconds=0.0005, processing_cpu=0.05, moving_cpu=0.004, memory_mb=0.02, bound=Bound.CPU
    ),
    TaskProfile(
        name="io", sojourn_seconds=0.0001, processing_cpu=0.01, moving_cpu=0.004, memory_mb=0.02, bound=Bound.IO
    ),
    TaskProfile(
        name="sojourn", sojourn_seconds=0.01, processing_cpu=0.01, moving_cpu=0.004, memory_mb=0.02, bound=Bound.SOJOURN
    ),
    TaskProfile(
        name="memory", sojourn_seconds=0.0002, processing_cpu=0.01, moving_cpu=0.004, memory_mb=0.3, bound=Bound.MEMORY
    ),
    TaskProfile(
        name="json", sojourn_seconds=0.0003, processing_cpu=0.025, moving_cpu=0.004, memory_mb=0.02, bound=Bound.CPU
    ),
    TaskProfile(
        name="split", sojourn_seconds=0.0002, processing_cpu=0.015, moving_cpu=0.004, memory_mb=0.02, bound=Bound.CPU
    ),
    TaskProfile(
        name="count", sojourn_seconds=0.00002, processing_cpu=0.0015, moving_cpu=0.0008, memory_mb=0.01, bound=Bound.CPU
    ),
)


def library(*, for_metis: bool) -> ModelLibrary:
    """The profiles; under Metis a thread of a sojourn-bound operator stands for five."""
    profiles = list(PROFILES)
    if for_metis:
        profiles = [
            profile.model_copy(update={"sojourn_seconds": profile.sojourn_seconds / METIS_SOJOURN_THREADS})
            if profile.bound is Bound.SOJOURN
            else profile
            for profile in profiles
        ]
    return ModelLibrary.of((), profiles)


def nodes(count: int) -> Cluster:
    capacity = MappingProxyType({CPU: CPU_POINTS_PER_SLOT * NODE_SLOTS, MEMORY: NODE_MEMORY_MB})
    first = Node("n1", "r1", NODE_SLOTS, capacity, "m1.medium")
    return Cluster(tuple(replace(first, name=f"n{number}") for number in range(1, count + 1)))


def pipelines() -> Mapping[str, Pipeline]:
    """By name: Word Count, and Linear, Diamond and Star with the kinds of operators section 7.2 gives them."""
    word_count = (
        PipelineBuilder("word-count")
        .source("spout", model="spout")
        .then("parse", model="json")
        .then("split", model="split")
        .then("count", model="count", selectivity=9)
        .build()
    )
    linear = PipelineBuilder("linear").source("op1", model="spout")
    for number in (2, 3, 4):
        linear = linear.then(f"op{number}", model="cpu")
    diamond = PipelineBuilder("diamond").source("op1", model="spout")
    kinds = ("cpu", "io", "sojourn", "memory")
    for number, kind in enumerate(kinds, start=2):
        diamond = diamond.then(f"op{number}", reads="op1", model=kind)
    diamond = diamond.then("op6", reads=[f"op{number}" for number in range(2, 2 + len(kinds))], model="io")
    star = PipelineBuilder("star").source("op1", model="spout").source("op2", model="spout")
    star = star.then("hub", reads=["op1", "op2"], model="io", selectivity=2)
    star = star.then("op4", reads="hub", model="io", selectivity=2).then("op5", reads="hub", model="io", selectivity=2)
    return {pipeline.name: pipeline for pipeline in (word_count, linear.build(), diamond.build(), star.build())}
