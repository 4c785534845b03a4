"""A controller whose store fails: no decision that was answered is lost, none is made twice, and it resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from store_faults import Fault, StoreFaults
from test_control_store import plain

from effort import tries
from penstock.base.errors import PenstockError
from penstock.control.controller import Controller
from penstock.control.core.messages import Amend, Kill, PipelineOrder, StepOutcome, Submit
from penstock.control.core.records import ControllerState, PipelineState
from penstock.control.errors import StoreError, UnknownOutcomeError
from penstock.control.executors.simulated import SimulatedExecutors, SimulatedNodes
from penstock.control.store import schema
from penstock.control.store.store import Store
from penstock.testing import ManualClock
from penstock.testing.controller import RatePerUnit as PerUnit
from penstock.testing.controller import asked


class Watched(SimulatedExecutors):
    """Executors that check: nothing is ordered that is not in the store."""

    store: Store

    def want(self, orders: Any, fence: int) -> None:
        wanted: list[PipelineOrder] = list(orders)
        stored = self.store.load()
        assert stored is not None
        for order in wanted:
            assert stored.pipelines[order.pipeline].serial >= order.serial
        super().want(wanted, fence)


class Faulty:
    """A controller on simulated nodes over a store with faults."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'store.db'}"
        store = Store(self.url)
        self.faults = StoreFaults(store)
        self.clock = ManualClock(1000.0)
        executors = Watched(PerUnit(), 1)
        executors.store = store
        self.steps: list[StepOutcome] = []
        self.controller = Controller(
            store, executors, SimulatedNodes(6, 1), PerUnit(), self.clock, ManualClock(50.0), ControllerState()
        )
        self.controller.watch(self.steps.append)
        self.look()

    def look(self, seconds: float = 0.5) -> None:
        self.clock.time += seconds
        self.controller.look()

    def check(self) -> None:
        """What the controller knows is what another one would read, and its watchers were told all of it once."""
        store = Store(self.url)
        assert plain(store.load()) == plain(self.controller.state)
        numbers = [row["number"] for row in store.read(select(schema.decisions).order_by(schema.decisions.c.number))]
        assert numbers == list(range(1, self.controller.state.decided + 1))
        assert [decision.number for step in self.steps for decision in step.decisions] == numbers
        store.close()


@pytest.fixture
def faulty(tmp_path: Path) -> Any:
    made = Faulty(tmp_path)
    yield made
    made.controller.close()


class TestCommitsThatFail:
    def test_a_step_that_was_written_all_the_same_is_taken_and_not_made_again(self, faulty: Faulty) -> None:
        with (
            faulty.faults.failing(Fault.LOST_ANSWER),
            pytest.raises(UnknownOutcomeError, match="it is not known whether the step was written"),
        ):
            faulty.controller.ask(asked("a", 2))
        assert faulty.controller.state.pipelines == {}
        faulty.controller.ask(asked("b", 2))
        assert [record.number for record in faulty.controller.state.pipelines.values()] == [1, 2]
        faulty.check()

    def test_a_step_that_was_not_written_leaves_no_trace(self, faulty: Faulty) -> None:
        with faulty.faults.failing(Fault.LOST_COMMIT), pytest.raises(UnknownOutcomeError):
            faulty.controller.ask(asked("a", 2))
        faulty.controller.ask(asked("b", 2))
        assert set(faulty.controller.state.pipelines) == {"b"}
        faulty.check()

    @pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_COMMIT])
    def test_reports_of_executors_count_once(self, faulty: Faulty, fault: Fault) -> None:
        faulty.controller.ask(asked("a", 2, load="5"))
        for _ in range(30):
            with faulty.faults.failing(fault):
                try:
                    faulty.look()
                except UnknownOutcomeError:
                    assert faulty.controller._unheard
        faulty.look()
        assert faulty.controller._unheard == []
        assert faulty.controller.state.pipelines["a"].state is PipelineState.ACTIVE
        faulty.check()

    def test_while_the_outcome_is_unknown_nothing_else_is_decided(self, faulty: Faulty) -> None:
        with faulty.faults.failing(Fault.LOST_ANSWER), pytest.raises(UnknownOutcomeError):
            faulty.controller.ask(asked("a", 2))
        with faulty.faults.failing(Fault.LOCKED), pytest.raises(StoreError, match="locked"):
            faulty.controller.ask(asked("b", 2))
        faulty.look()
        assert set(faulty.controller.state.pipelines) == {"a"}
        faulty.check()


names = st.sampled_from("abc")
actions = st.one_of(
    st.builds(lambda name, units: asked(name, units, load="5"), names, st.integers(1, 4)),
    st.builds(Kill, names),
    st.builds(lambda name, level: Amend(name, priority=level), names, st.integers(1, 3)),
    st.none(),
)
faults = st.tuples(st.sampled_from([None, *Fault]), st.integers(0, 12))


GONE = {PipelineState.KILLED, PipelineState.ENDING}


def name_of(request: Submit | Kill | Amend) -> str:
    return request.submission.name if isinstance(request, Submit) else request.pipeline


def is_kept(promise: Submit | Kill | Amend, state: ControllerState) -> bool:
    record = state.pipelines.get(name_of(promise))
    if isinstance(promise, Kill):
        return record is None or record.state in GONE
    if record is None or record.state in GONE:
        return False
    return not isinstance(promise, Amend) or record.initial_priority == promise.priority


@tries(2)
@given(st.lists(st.tuples(actions, faults), min_size=3, max_size=20))
def test_after_any_faults_nothing_that_was_answered_is_lost(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[Any, tuple[Fault | None, int]]]
) -> None:
    faulty = Faulty(tmp_path_factory.mktemp("store"))
    promises: dict[str, Submit | Kill | Amend] = {}
    """The last that was answered about each pipeline."""
    for request, (fault, at) in history:
        with faulty.faults.failing(fault, at):
            try:
                if request is None:
                    faulty.look()
                else:
                    state = faulty.controller.ask(request)
                    if is_kept(request, state):
                        promises[name_of(request)] = request
            except StoreError:
                # not written, or unknown: nothing is promised any more
                promises.pop("" if request is None else name_of(request), None)
            except PenstockError:
                pass  # rejected: what was promised before stays
        faulty.look()
        faulty.check()
        assert [promise for promise in promises.values() if not is_kept(promise, faulty.controller.state)] == []
    faulty.controller.close()
