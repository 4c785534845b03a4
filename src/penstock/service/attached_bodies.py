"""What attached applications may say: strict shapes. Counts are of slots; an executor of two cores is two."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from penstock.control.metrics import Metric
from penstock.files import Name, Spec
from penstock.service.bodies import MOST_UNITS, Level, Number, PipelineName, TargetBody, Text, Units

Slots = Annotated[int, Field(ge=0, le=MOST_UNITS, strict=True)]
Size = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False, strict=True)]
Sentence = Annotated[str, Field(max_length=2000, strict=True)]


class ApplicationBody(Spec):
    name: PipelineName
    target: TargetBody = TargetBody()
    minimum: Units = 1
    maximum: Units | None = None
    priority: Level | None = None


class ReadingsBody(Spec):
    """Metrics of the one list, as far as an application knows them."""

    rate: Size | None = None
    offered_rate: Size | None = None
    backlog: Size | None = None
    latency_ms: Size | None = None
    busy: Size | None = None

    def known(self) -> dict[str, float]:
        return {str(Metric(name)): value for name, value in self.model_dump().items() if value is not None}


class AdviceBody(Spec):
    limit: Text
    what_to_do: Sentence
    evidence: Annotated[tuple[Sentence, ...], Field(max_length=20)] = ()
    target_rate: Size
    most_rate_now: Size
    headroom: Number
    batch_seconds: Size
    max_offsets_per_trigger: Size
    needed: Slots | None = None
    """None: no number is enough."""
    useful: Slots | None = None
    acts: bool = True
    """Whether its executors follow; else this is advice only."""
    why_not: StrictStr | None = None


class ReportBody(Spec):
    held: Slots
    wanted: Units
    why: Sentence
    values: ReadingsBody = ReadingsBody()
    serial: Annotated[int, Field(ge=-1, le=2**53, strict=True)] = -1
    nodes: Annotated[dict[Name, Slots], Field(max_length=10_000)] | None = None
    advice: AdviceBody | None = None
