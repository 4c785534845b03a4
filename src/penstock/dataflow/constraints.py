"""What may stand where: the constraints operators of a pipeline, and the pipeline itself, are declared with.

Labels and taints are plain words on nodes. What a constraint means is said here once; the same words are read from
pipeline files, from files of whole clusters, and given in Python.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, StrictBool, model_validator

from penstock.files import Count, Demand, Name, Positive, Spec

if TYPE_CHECKING:
    from collections.abc import Mapping

Pair = Annotated[tuple[Name, Name], Field(min_length=2, max_length=2)]


class OperatorConstraints(Spec):
    """Where threads of one operator may be, and what they take beside their heap."""

    required_labels: tuple[Name, ...] = ()
    """A node must have all of them."""
    preferred_labels: tuple[Name, ...] = ()
    """Of the nodes with room, those with the most of them."""
    forbidden_labels: tuple[Name, ...] = ()
    """A node must have none of them."""
    tolerates: tuple[Name, ...] = ()
    """Taints it does not mind, beside those its pipeline tolerates; a node with any other taint is not for it."""
    most_per_node: Count | None = None
    most_per_rack: Count | None = None
    off_heap_mb: Demand = 0.0
    """Memory of one thread outside the heap: it counts for the node, not for the limit of its slot."""

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        for kind, labels in (("required", self.required_labels), ("preferred", self.preferred_labels)):
            both = [label for label in labels if label in self.forbidden_labels]
            if both:
                raise ValueError(f"label '{both[0]}' is both {kind} and forbidden; keep one")
        return self


class SharedPer(StrEnum):
    """What shares a piece of memory."""

    SLOT = "slot"
    NODE = "node"


class SharedMemory(Spec):
    """Memory that threads of these operators have in common: taken once per slot, or once per node, that has any."""

    operators: Annotated[tuple[Name, ...], Field(min_length=1)]
    mb: Positive
    per: SharedPer = SharedPer.SLOT
    heap: StrictBool = True
    """Of a slot: whether it is part of the heap, and so of what the slot's limit counts."""

    @model_validator(mode="after")
    def _heaps_belong_to_slots(self) -> Self:
        if self.per is SharedPer.NODE and self.heap and "heap" in self.model_fields_set:
            raise ValueError("memory shared by a node is in no slot's heap; leave out heap, or share it per slot")
        return self


class PipelineConstraints(Spec):
    """What holds for a pipeline as a whole, or between its operators."""

    tolerates: tuple[Name, ...] = ()
    """Taints none of its operators minds."""
    apart_on_nodes: tuple[Pair, ...] = ()
    """Operators of which no two threads share a node."""
    apart_on_slots: tuple[Pair, ...] = ()
    """Operators of which no two threads share a slot."""
    one_operator_per_slot: StrictBool = False
    isolated: StrictBool = False
    """Its nodes run no other pipeline."""
    shared_memory: tuple[SharedMemory, ...] = ()

    @model_validator(mode="after")
    def _pairs_are_of_two(self) -> Self:
        for key in ("apart_on_nodes", "apart_on_slots"):
            for a, b in getattr(self, key):
                if a == b:
                    what = "most_per_node: 1 for" if key == "apart_on_nodes" else "a smaller slot limit for"
                    raise ValueError(f"{key}: '{a}' is named twice in one pair; say {what} one operator")
        return self

    def renamed(self, names: Mapping[str, tuple[str, ...]]) -> PipelineConstraints:
        """With the operators that took the place of those in `names`."""

        def now(*operators: str) -> tuple[str, ...]:
            return tuple(dict.fromkeys(new for old in operators for new in names.get(old, (old,))))

        def pairs(given: tuple[Pair, ...]) -> tuple[Pair, ...]:
            return tuple(dict.fromkeys((a, b) for left, right in given for a in now(left) for b in now(right)))

        return self.model_copy(
            update={
                "apart_on_nodes": pairs(self.apart_on_nodes),
                "apart_on_slots": pairs(self.apart_on_slots),
                "shared_memory": tuple(
                    shared.model_copy(update={"operators": now(*shared.operators)}) for shared in self.shared_memory
                ),
            }
        )

    def named(self) -> tuple[str, ...]:
        """Every operator it speaks of."""
        pairs = (name for pair in (*self.apart_on_nodes, *self.apart_on_slots) for name in pair)
        return (*pairs, *(name for shared in self.shared_memory for name in shared.operators))


ANYWHERE = OperatorConstraints()
UNCONSTRAINED = PipelineConstraints()
