"""What a bundle's process knows from its start, and what it is told for every generation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.dataflow.load import Load
from penstock.dataflow.pipeline import Grouping
from penstock.flow.dealing import ReceivingBundle, Route
from penstock.flow.layout import Channel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.log.feed import TopicShare
    from penstock.connectors.staged_sinks import SinkFiles
    from penstock.runtime.steps import Step
    from penstock.spark.placed.keyed import KeyedCode


@dataclass(frozen=True)
class BundleCode:
    """The part of a pipeline a bundle runs; it travels with the task, as all code of Spark's does."""

    name: str
    steps: tuple[Step, ...]
    """Threads are those of the generation."""
    entrances: Mapping[int, int]
    """By number of a stream that comes from outside: where it enters the segment."""
    sources: Mapping[str, int]
    """By source: where its tuples enter."""
    sinks: Mapping[str, SinkFiles]
    shown: tuple[str, ...] = ()
    """Sinks of which a few rows are shown on the console."""
    keyed: KeyedCode | None = None
    """Instead of steps: a keyed aggregation."""
    environment: Mapping[str, str] = field(default_factory=dict)
    audit: bool = True
    topics: Mapping[str, TopicShare] = field(default_factory=dict)
    """Sources that are topics, and which of their partitions are read here."""


@dataclass(frozen=True)
class GenerationOrder:
    """One generation, as one bundle needs to know it."""

    run: str
    conductor: int
    generation: int
    epoch: int
    """The last that was committed."""
    inputs: frozenset[Channel]
    outputs: Mapping[Channel, tuple[str, int]]
    """With the addresses of their receivers."""
    routes: tuple[Route, ...]
    threads: Mapping[str, int]
    offsets: Mapping[str, int]
    states: Mapping[int, str]
    groups: tuple[int, int]
    held: bool
    careful: bool
    load: Load
    began: float
    """When the load did."""
    limit: int | None
    """Tuples there are; None: no end."""
    checkpoint: str
    """Where state is put."""

    def document(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "conductor": self.conductor,
            "generation": self.generation,
            "epoch": self.epoch,
            "inputs": [_channel(channel) for channel in sorted(self.inputs)],
            "outputs": [[*_channel(channel), *address] for channel, address in self.outputs.items()],
            "routes": [_route(route) for route in self.routes],
            "threads": dict(self.threads),
            "offsets": dict(self.offsets),
            "states": {str(group): where for group, where in self.states.items()},
            "groups": list(self.groups),
            "held": self.held,
            "careful": self.careful,
            "load": self.load.document(),
            "began": self.began,
            "limit": self.limit,
            "checkpoint": self.checkpoint,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> GenerationOrder:
        load = document["load"]
        return cls(
            document["run"],
            document["conductor"],
            document["generation"],
            document["epoch"],
            frozenset(Channel(*channel) for channel in document["inputs"]),
            {Channel(*channel[:3]): (channel[3], channel[4]) for channel in document["outputs"]},
            tuple(
                Route(
                    route["stream"],
                    route["sender"],
                    route["path"],
                    (route["share"][0], route["share"][1]),
                    Grouping(route["grouping"]),
                    tuple(route["key"]),
                    tuple(ReceivingBundle(*target) for target in route["targets"]),
                )
                for route in document["routes"]
            ),
            document["threads"],
            document["offsets"],
            {int(group): where for group, where in document["states"].items()},
            (document["groups"][0], document["groups"][1]),
            document["held"],
            document["careful"],
            Load(tuple((float(seconds), float(rate)) for seconds, rate in load["spells"]), load["repeats"]),
            document["began"],
            document["limit"],
            document["checkpoint"],
        )


def _channel(channel: Channel) -> list[Any]:
    return [channel.stream, channel.sender, channel.receiver]


def _route(route: Route) -> dict[str, Any]:
    return {
        "stream": route.stream,
        "sender": route.sender,
        "path": route.path,
        "share": list(route.share),
        "grouping": str(route.grouping),
        "key": list(route.key),
        "targets": [[target.bundle, target.threads, target.capacity, target.local] for target in route.targets],
    }
