"""The commit record: the state of a run after an epoch. Anything it does not name has never happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field

from penstock.base.files import Spec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


VERSION = 1


class Output(Spec):
    """Something a sink staged: it becomes visible under `final` once its epoch is committed, or is never seen."""

    sink: str
    staged: str
    final: str
    rows: int


class Commit(Spec):
    """One per epoch, in order, without gaps. `conductor` is the number of the process that wrote it: numbers only rise,
    and a process that finds its next epoch written by another has been replaced."""

    version: int = VERSION
    run: str
    conductor: int
    writer: str = ""
    """Drawn by the process that wrote it: two that take a run over at once have the same number."""
    generation: int
    epoch: int
    plan: str
    offsets: dict[str, Any] = Field(default_factory=dict)
    """Next offset of each source."""
    states: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Place of the state, by keyed operator and key group."""
    outputs: tuple[Output, ...] = ()
    """Outputs of this epoch."""
    audit: str = ""
    """Rows delivered since the run began, folded."""


class EpochPart(Protocol):
    """One bundle's part of an epoch, as `next_commit` needs it."""

    @property
    def offsets(self) -> Mapping[str, Any]: ...

    @property
    def states(self) -> Mapping[str, Mapping[str, str]]: ...

    @property
    def outputs(self) -> tuple[Output, ...]: ...


def next_commit(
    before: Commit, conductor: int, generation: int, plan: str, staged: Iterable[EpochPart], audit: str = ""
) -> Commit:
    """Return the commit of an epoch from the parts that all bundles staged: offsets and states replace those before,
    group by group. An offset of None removes the one before: its source is gone."""
    offsets = dict(before.offsets)
    states = {operator: dict(groups) for operator, groups in before.states.items()}
    outputs: list[Output] = []
    for part in staged:
        offsets.update(part.offsets)
        for operator, groups in part.states.items():
            states.setdefault(operator, {}).update(groups)
        outputs.extend(part.outputs)
    return Commit(
        run=before.run,
        conductor=conductor,
        writer=before.writer,
        generation=generation,
        epoch=before.epoch + 1,
        plan=plan,
        offsets={key: at for key, at in offsets.items() if at is not None},
        states=states,
        outputs=tuple(outputs),
        audit=audit,
    )


def state_of(commit: Commit, operator: str, first: int, end: int) -> Mapping[int, str]:
    """Return the place of the state of some groups; groups without state are left out."""
    return {int(group): where for group, where in commit.states.get(operator, {}).items() if first <= int(group) < end}


# Offsets of a commit: by source if it is one sequence, by source/TOPIC/PARTITION if it is several.


def of_sources(offsets: Mapping[str, Any], sources: Collection[str]) -> dict[str, int]:
    """Return the offsets needed by the bundle that emits these sources."""
    whole = dict.fromkeys(sources, 0)
    return {**whole, **{key: int(at) for key, at in offsets.items() if key.partition("/")[0] in whole}}


def taken_in(offsets: Mapping[str, Any]) -> int:
    """Tuples of the furthest source that emits the load, which all of them emit. Offsets of topics are no counts: they
    begin anywhere and have holes."""
    return max((int(at) for key, at in offsets.items() if "/" not in key), default=0)
