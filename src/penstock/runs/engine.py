"""The contract between a run and its engine, and the registry of engines.

A third engine is one folder: a class that meets `Engine`, named by an entry point of the group `penstock.engines`.
`tests/runs/test_engine_contract.py` holds for every engine.

    penstock.start ──► Engine.prepare ──► Engine.start ──► EngineRun
                       (checks only)                       (driven by Run)

`Run` alone calls `EngineRun`: it checks that the state permits a request before it calls, so an engine only has to do
what it is asked. Requests come from several threads; each is answered when the call returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.cluster.contract import ExecutorSize
    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Pipeline
    from penstock.inputs.finders import RunnableLike
    from penstock.planning.files import SavedPlan
    from penstock.report.figures import Figures
    from penstock.report.listener import Listener
    from penstock.runs.config import RunConfig
    from penstock.runs.folder import RunFolder
    from penstock.runs.states import StateHistory


class Prepared(Protocol):
    """A pipeline whose code, schemas, models and options were found and checked. Each engine has its own kind."""

    @property
    def pipeline(self) -> Pipeline: ...

    @property
    def plan(self) -> SavedPlan | None:
        """The plan it runs by; None: the pipeline alone was given."""


class EngineRun(Protocol):
    """One run from its start to its end, pauses included. Made by `Engine.start`, driven by `Run`."""

    history: StateHistory
    """Its state and the moves that led to it; only the engine makes them while the run lives."""

    # Requests. Each returns when it is done, or raises a PenstockError and leaves the run as it was.

    def stop(self) -> None:
        """Ask the run to commit the rows in flight and to end. Returns at once; `wait` returns the result."""

    def kill(self) -> None:
        """Ask the run to end at once; rows that are not committed are processed again on resume. Returns at once."""

    def pause(self, *, keep_executors: bool = False) -> None:
        """Commit the rows in flight and keep the position. Without `keep_executors` they are released."""

    def resume(self, plan: RunnableLike | None = None, slots: int | None = None) -> None:
        """Continue a paused run from its last commit, by another plan or with other slots if given."""

    def rescale(
        self,
        slots: int | None = None,
        plan: RunnableLike | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> None:
        """Change to that number of slots, to exactly the executors of `places`, or to another plan, while rows flow.
        New executors start before any are released. One that changes its size on its slot is released before the other
        starts. What does not change keeps its processes."""

    def wait(self, timeout: float | None = None) -> Any:
        """Return the result (`RunResult`, `PlacedResult`, `SimulatedResult`) once it has ended, None if it still lives
        after `timeout` seconds. Raise its failure. A paused run lives."""

    # Observations. Called once a second or more often, from any thread; they never block.

    @property
    def plan(self) -> SavedPlan | None:
        """The plan it runs by now."""

    @property
    def slots(self) -> int: ...

    @property
    def progress(self) -> Figures | None:
        """Rates, backlog, latency and use, of the last seconds; None before there are any."""

    @property
    def details(self) -> Mapping[str, Any]:
        """Details in `state.json` beside the state. `resumable` is false once its input or time has ended."""

    @property
    def nodes(self) -> Mapping[str, int]:
        """Slots it holds on each node, if that is known."""

    @property
    def last_batch(self) -> float | None:
        """Seconds since the epoch: rows taken in before then have reached their sinks."""

    @property
    def idle_seconds(self) -> float:
        """Seconds without new rows; 0 while there are some."""

    @property
    def is_source_away(self) -> bool:
        """Whether a source waits for its broker, so that no rows means nothing."""

    @property
    def pause_seconds(self) -> float | None:
        """Seconds without output of the last change of slots or plan; None if that is not known."""

    @property
    def max_work_seconds(self) -> float | None:
        """Seconds of work that a batch holds at most; None: the engine has no batches."""

    def threads_on(self, operator: str, slot: str) -> int:
        """Threads of an operator in a slot; 0 if that is not known."""

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        """Count from now on, for each number, the rows whose field is above a threshold."""

    @property
    def shares(self) -> Mapping[int, float]:
        """Share of the last rows above the threshold, by the number of the watched field."""


class Engine(Protocol):
    """A way to run plans. Made once per process by the registry; holds no state of a run."""

    @property
    def name(self) -> str: ...

    @property
    def places_operators(self) -> bool:
        """Whether it needs a plan that places operators on slots."""

    def prepare(
        self,
        config: RunConfig,
        pipeline: RunnableLike,
        listener: Listener,
        *,
        given: Pipeline | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> Prepared:
        """Check everything that can be wrong before processes are started. Called once by `penstock.start` and by the
        controller's driver; starts nothing and writes nothing. Raises BadInputError, or RefusedError with the reason.

        `given`: the pipeline of a plan, if its code exists only in Python. `places`: the executors a controller
        orders for the run; slots outside them are released, and the run waits for another order if one is lost."""

    def prepare_again(
        self,
        folder: RunFolder,
        config: RunConfig,
        plan: RunnableLike | None,
        listener: Listener,
        *,
        given: Pipeline | None = None,
        before: Any = None,
    ) -> Prepared:
        """Prepare the run that is in `folder` to continue from its last commit, with the options it was started with;
        options that are set in `config`, and `plan`, replace them. `before`: what `prepare` returned, if this process
        conducted the run before."""

    def default_folder(self, pipeline: str) -> Path:
        """A new folder for a run whose user named none."""

    def start(self, prepared: Any, folder: RunFolder, history: StateHistory) -> EngineRun:
        """Conduct the run in `folder` from this process, write its run.json, and start it or continue it from its last
        commit. Called by `Run`, which releases the folder at the end. Returns while the run is starting."""

    def find_highest_rate(self, prepared: Any, folder: RunFolder, listener: Listener) -> Any:
        """Run trials until the highest stable rate is known, and return the result of the best. Called by
        `penstock.run(..., find_max=True)`, which waits for it."""

    def has_begun(self, folder: RunFolder) -> bool:
        """Whether something of the run may be in its sinks."""


ENGINES: Registry[Engine] = Registry(
    "engine",
    "penstock.engines",
    {
        "fused": "penstock.engines.fused.engine:FusedEngine",
        "placed": "penstock.engines.placed.engine:PlacedEngine",
        "simulated": "penstock.engines.simulated.engine:SimulatedEngine",
    },
)
