"""What an experiment is: cases to sweep, one function that runs a case, and a judgement of all of them together.

An experiment decides nothing about Spark, folders or drawing. `cases` says what to run, `run_case` runs one in any
process of any machine, and when all are done `lines` and `charts` turn them into a table and pictures. No value of
the document stands in the code: those are in a file (`published_file`), and come in as `published`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.plugins import Chart
    from penstock_lab.published_values import Published

Case = dict[str, Any]
"""The parameters of one run: text, numbers and lists of them. Equal cases have equal results."""

Measures = dict[str, Any]
"""What a case gave: anything JSON can say. A number without bound is None."""


class Agreement(StrEnum):
    """The verdict on a value or claim of ours beside a published one, or on a policy of ours beside a published one."""

    AGREES = "agrees"
    """Equal to what is published; it could have come out differently."""
    DIFFERS = "differs"
    BETTER = "better"
    """For our own policies only: a published algorithm that is run again is not better than itself."""
    TIE = "tie"
    """For our own policies only: neither wins."""
    WORSE = "worse"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table: a published value or claim, ours, and how they compare."""

    where: str
    """The figure or table, and which part of it: "Fig 7a, Linear at 100"."""
    what: str
    published: str
    ours: str
    verdict: Agreement
    why: str = ""
    """Why it differs or cannot be compared; the tolerance where it agrees within one."""

    def document(self) -> dict[str, str]:
        return {
            "where": self.where,
            "what": self.what,
            "published": self.published,
            "ours": self.ours,
            "verdict": str(self.verdict),
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case that is done."""

    case: Case
    measures: Measures


@dataclass(frozen=True)
class Results:
    """All cases of a sweep, in the order of `cases`."""

    all: tuple[CaseResult, ...]

    def __iter__(self) -> Iterator[CaseResult]:
        return iter(self.all)

    def where(self, **wanted: Any) -> tuple[CaseResult, ...]:
        """The cases with these parameters."""
        return tuple(
            result
            for result in self.all
            if all(key in result.case and result.case[key] == wanted[key] for key in wanted)
        )

    def only(self, **wanted: Any) -> Measures:
        """The measures of the one case with these parameters."""
        matching = self.where(**wanted)
        if len(matching) != 1:
            raise BadInputError(f"{len(matching)} cases, not 1, have {wanted}")
        return matching[0].measures

    def values(self, key: str) -> list[Any]:
        """The different values a parameter has, in the order of the cases."""
        return list(dict.fromkeys(result.case[key] for result in self.all if key in result.case))


class Experiment(ABC):
    """One document's evaluation, or a part of it. Subclasses are frozen dataclasses without fields."""

    name: ClassVar[str]
    title: ClassVar[str]
    figures: ClassVar[str]
    """What of the document is repeated: "Figs 7-13"."""
    published: ClassVar[str | None]
    """The file of published values (`published/NAME.json`), if anything is published."""
    own: ClassVar[bool] = False
    """Whether its lines compare policies of ours with published ones, both run here: nothing can agree."""
    choices: ClassVar[tuple[str, ...]] = ()
    """What had to be chosen because the document does not say it."""
    gaps: ClassVar[tuple[str, ...]] = ()
    """What could not be repeated, and why."""

    @abstractmethod
    def cases(self, *, quick: bool) -> Sequence[Case]:
        """What to run. `quick` leaves out or shortens what takes long; a case says everything that matters."""

    @abstractmethod
    def run_case(self, case: Case) -> Measures:
        """Run one case. Called in a worker process: it may import whatever it needs, and reads nothing but `case`."""

    @abstractmethod
    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        """The table, once all cases are done."""

    @abstractmethod
    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        """The pictures, once all cases are done."""


def counted(lines: Sequence[Line]) -> Mapping[Agreement, int]:
    """How often each verdict was given."""
    return {verdict: sum(1 for line in lines if line.verdict is verdict) for verdict in Agreement}
