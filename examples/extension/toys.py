"""One small thing of every kind that another package can add to Penstock: docs/extend.md explains each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from penstock.base.errors import BadInputError
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.control.contracts import NodeOffer, ProvidedNode
from penstock.control.core.trigger_kinds import TriggerKind
from penstock.control.metrics import Metric
from penstock.dataflow.formats import Format, Medium, PlacedCommit, SinkCommit
from penstock.planning.allocation.baselines import LinearScaling
from penstock.service.pages.page_list import Page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import Request
    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.log_contract import TopicLog
    from penstock.control.contracts import ProviderSetting
    from penstock.control.core.records import Trigger
    from penstock.modelling.model import Model
    from penstock.planning.allocation.contract import OperatorAllocation
    from penstock.service.routes.views import ViewContext


# An allocator: linear scaling for a rate that is higher by a part.


@dataclass(frozen=True, slots=True)
class Spare:
    name: ClassVar[str] = "spare"

    part: float = 0.5

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        return LinearScaling().allocate(operator, rate * (1 + self.part), model)


# A format whose sink writes a file of JSON lines for each batch: one that is written again replaces the first.


LINES = Format(name="lines", can_read=False, commit=SinkCommit.WRITER, writer="toys:line_writer")


@dataclass
class LineWriter:
    folder: Path
    exactly_once = True

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, frame: DataFrame, batch: int) -> None:
        (self.folder / f"{batch:09d}.jsonl").write_text("\n".join(map(str, frame.toJSON().collect())))

    def close(self) -> None:
        pass


def line_writer(_session: SparkSession, sink: str, options: Mapping[str, str], _owner: str) -> LineWriter:
    if "path" not in options:
        raise BadInputError(f"sink '{sink}': format lines needs options: path")
    return LineWriter(Path(options["path"]))


# A log of messages, as Kafka is one: another name for the log in a folder.


SHELF = Format(
    name="shelf",
    medium=Medium.LOG,
    rereadable=True,
    commit=SinkCommit.TRANSACTION,
    placed_commit=PlacedCommit.LOG,
    log="toys:open_shelf",
)


def open_shelf(options: Mapping[str, str]) -> TopicLog:
    return EmbeddedLog(Path(options["path"]))


# A kind of trigger, with an option of its own: `idle:share=0.2`.


@dataclass(frozen=True)
class Idle(TriggerKind):
    fires = "Its slots use less than the part `share` of what they can do."
    costs = "Nothing: the share is reported anyway."
    needs = ()
    takes = ()

    share: float = 0.1

    def value(self, trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float]) -> float | None:
        busy = values.get(Metric.BUSY)
        return None if busy is None else 1 - busy

    def threshold(self, trigger: Trigger) -> float:
        return 1 - self.share

    def describe(self, trigger: Trigger) -> str:
        return f"less than {100 * self.share:g} % busy"


# A source of nodes: `drawer:2` has nodes of two slots, and gives as many as are asked for.


class Drawer:
    def __init__(self, offer: NodeOffer) -> None:
        self._offer = offer
        self._nodes: dict[str, ProvidedNode] = {}
        self._made = 0

    @classmethod
    def offer(cls, options: str) -> NodeOffer:
        if not options.isdigit() or int(options) < 1:
            raise BadInputError(f"node provider 'drawer': expected drawer:SLOTS, found '{options[:80]}'")
        return NodeOffer(int(options), price=0.1)

    @classmethod
    def make(cls, options: str, _setting: ProviderSetting) -> Drawer:
        return cls(cls.offer(options))

    def acquire(self, count: int, _size: str | None) -> list[ProvidedNode]:
        names = [f"drawer-{self._made + number}" for number in range(1, count + 1)]
        self._made += count
        asked = [ProvidedNode(name, self._offer.slots, price=self._offer.price) for name in names]
        self._nodes |= {node.name: node for node in asked}
        return asked

    def release(self, name: str) -> None:
        self._nodes.pop(name, None)

    def list(self) -> list[ProvidedNode]:
        return list(self._nodes.values())


# A page of the dashboard.


NAMES = Page(
    path="/names", title="Names", script="names.js", folder=Path(__file__).parent, view="toys:show_names", key="n"
)


async def show_names(context: ViewContext, _request: Request) -> dict[str, Any]:
    return {"names": sorted(context.controller.state.pipelines), "at": context.controller.clock.now()}


# A command: `penstock dev hello NAME`.


hello = typer.Typer()


@hello.command()
def greet(name: str) -> None:
    """Greet somebody."""
    typer.echo(f"hello {name}")
