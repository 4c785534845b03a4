"""The run's state machine, event by event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.cluster.topology import Slot
from penstock.connectors.commit import Commit, next_commit
from penstock.engines.placed.flow import events as ev
from penstock.engines.placed.flow import instructions as do
from penstock.engines.placed.flow.layout import Bundle, Channel, Layout
from penstock.engines.placed.flow.run import FlowRun
from penstock.engines.placed.flow.states import FlowState, ImpossibleError, Patience

START = Commit(run="r", conductor=1, generation=0, epoch=0, plan="p")


def layout(plan: str = "p", **where: Slot) -> Layout:
    """A source `s` and an operator `o`, by default on two slots of node n1."""
    slots = {"s": Slot("n1", 0), "o": Slot("n1", 1), **where}
    names = {op: f"{op}@{slot}" for op, slot in slots.items()}
    bundles = tuple(Bundle(names[op], slots[op], (op,), (1,), ("s",) if op == "s" else ()) for op in slots)
    return Layout(plan, bundles, (Channel(0, names["s"], names["o"]),))


class Driver:
    """Plays everybody a run talks to; every process says hello at once, unless it is in `absent`."""

    def __init__(self, home: Layout | None = None, *, is_led: bool = False, **patience: Any) -> None:
        self.run = FlowRun(home or layout(), START, Patience(**patience), is_led=is_led)
        self.now = 100.0
        self.absent: set[str] = set()
        self.done: list[do.Instruction] = []
        self._connection = 0

    def is_in(self, state: FlowState) -> bool:
        return self.run.state is state

    def tell(self, event: ev.Event, seconds: float = 0.0) -> list[do.Instruction]:
        self.now += seconds
        found = self.run.handle(event, self.now)
        self.done += found
        for one in found:
            if isinstance(one, do.StartBundle) and one.bundle.name not in self.absent:
                self._connection += 1
                found += self.tell(ev.Hello(one.bundle.name, one.start, self._connection, "here"))
        return found

    def link(self) -> None:
        for name in sorted(self.run.layout.names):
            self.tell(ev.Linked(name, self.run.generation))

    def stage(self) -> do.WriteCommit:
        found: list[do.Instruction] = []
        for name in sorted(self.run.layout.names):
            found += self.tell(ev.Staged(name, self.run.generation, self.run.commit.epoch + 1, {"s": 10}))
        (write,) = [one for one in found if isinstance(one, do.WriteCommit)]
        return write

    def commit(self, write: do.WriteCommit) -> list[do.Instruction]:
        return self.tell(ev.Committed(next_commit(write.before, 1, write.generation, write.plan, write.staged)))

    def flowing(self) -> Driver:
        self.tell(ev.Tick())
        self.link()
        assert self.is_in(FlowState.FLOWING)
        return self

    def last(self, kind: type) -> Any:
        return next((one for one in reversed(self.done) if isinstance(one, kind)), None)

    def connection(self, bundle: str) -> int:
        found = self.run.presence.processes[bundle].connection
        assert found is not None
        return found


def test_it_starts_links_flows_and_commits() -> None:
    driver = Driver()
    driver.tell(ev.Tick())
    assert [one.bundle.name for one in driver.done if isinstance(one, do.StartBundle)] == ["s@n1/0", "o@n1/1"]
    assert driver.is_in(FlowState.LINKING)
    form = driver.last(do.Form)
    assert (form.generation, form.commit, form.held) == (1, START, False)
    driver.link()
    assert driver.is_in(FlowState.FLOWING)
    assert driver.last(do.OpenEpoch) is None
    driver.tell(ev.Tick(), seconds=1.1)
    assert driver.last(do.OpenEpoch) == do.OpenEpoch(1, 1, hold=False)
    driver.commit(driver.stage())
    assert driver.run.commit.epoch == 1
    assert driver.run.commit.offsets == {"s": 10}


def test_an_epoch_opens_only_when_the_one_before_is_committed() -> None:
    driver = Driver().flowing()
    driver.tell(ev.Tick(), seconds=1.1)
    write = driver.stage()
    for name in sorted(driver.run.layout.names):
        driver.tell(ev.Beat(driver.connection(name)))
    assert not [one for one in driver.tell(ev.Tick(), seconds=2.0) if isinstance(one, do.OpenEpoch)]
    driver.commit(write)
    assert [one for one in driver.tell(ev.Tick(), seconds=1.1) if isinstance(one, do.OpenEpoch)]


def test_a_death_starts_a_new_generation_from_the_last_commit() -> None:
    driver = Driver().flowing()
    found = driver.tell(ev.Lost(driver.connection("o@n1/1"), "reset"))
    assert [(one.bundle.name, one.start) for one in found if isinstance(one, do.StartBundle)] == [("o@n1/1", 2)]
    assert driver.last(do.Form).generation == 2
    assert driver.last(do.Form).commit == START


def test_a_commit_that_is_being_written_is_awaited_before_a_generation_is_formed() -> None:
    driver = Driver().flowing()
    driver.tell(ev.Tick(), seconds=1.1)
    write = driver.stage()
    driver.tell(ev.Lost(driver.connection("o@n1/1"), "reset"))
    assert driver.is_in(FlowState.GATHERING)
    driver.commit(write)
    assert driver.is_in(FlowState.LINKING)
    assert driver.last(do.Form).commit.epoch == 1


def test_what_older_generations_say_does_not_count_and_newer_ones_cannot_be() -> None:
    driver = Driver().flowing()
    driver.tell(ev.Lost(driver.connection("o@n1/1"), "reset"))
    driver.tell(ev.Linked("s@n1/0", 1))
    driver.tell(ev.Staged("s@n1/0", 1, 1))
    assert driver.is_in(FlowState.LINKING)
    with pytest.raises(ImpossibleError, match="generation 3"):
        driver.tell(ev.Linked("s@n1/0", 3))


def test_what_cannot_happen_raises() -> None:
    driver = Driver().flowing()
    with pytest.raises(ImpossibleError, match="not open"):
        driver.tell(ev.Staged("s@n1/0", 1, 1))
    with pytest.raises(ImpossibleError, match="nobody asked for"):
        driver.tell(ev.NotCommitted(1, "full"))
    with pytest.raises(ImpossibleError, match="twice"):
        driver.tell(ev.Hello("s@n1/0", 1, driver.connection("s@n1/0"), "here"))


def test_a_process_that_is_silent_is_given_up() -> None:
    driver = Driver(silence=5.0).flowing()
    driver.tell(ev.Beat(driver.connection("s@n1/0")), seconds=4.0)
    found = driver.tell(ev.Tick(), seconds=2.0)
    assert [one.bundle.name for one in found if isinstance(one, do.StartBundle)] == ["o@n1/1"]
    assert [one for one in found if isinstance(one, do.Dismiss)]


def test_failures_count_by_rate_and_not_by_lifetime() -> None:
    """8 within 60 s are borne, the 9th is not; 9 that are 10 s apart are at most 7 within 60 s."""
    slow = Driver(silence=1e9, most_failures=8).flowing()
    for _ in range(20):
        slow.tell(ev.Lost(slow.connection("o@n1/1"), "reset"))
        slow.tell(ev.Tick(), seconds=10.0)
    assert not slow.is_in(FlowState.FAILED)
    fast = Driver(silence=1e9, most_failures=8, retry=0.0).flowing()
    for _ in range(8):
        fast.tell(ev.Lost(fast.connection("o@n1/1"), "reset"), seconds=1.0)
    assert not fast.is_in(FlowState.FAILED)
    fast.tell(ev.Lost(fast.connection("o@n1/1"), "reset"), seconds=1.0)
    assert fast.is_in(FlowState.FAILED)
    assert "failed 9 times within 60 s" in fast.last(do.Stop).failed


def test_what_dies_again_and_again_is_told_to_be_careful() -> None:
    driver = Driver(retry=0.0).flowing()
    driver.tell(ev.Lost(driver.connection("o@n1/1"), "reset"))
    assert driver.last(do.Form).careful == frozenset()
    driver.tell(ev.Lost(driver.connection("o@n1/1"), "reset"))
    assert driver.last(do.Form).careful == {"o@n1/1"}


def test_a_drain_holds_the_sources_behind_the_last_marker() -> None:
    driver = Driver().flowing()
    assert driver.tell(ev.DrainAsked("d")) == [do.OpenEpoch(1, 1, hold=True)]
    found = driver.commit(driver.stage())
    assert driver.is_in(FlowState.HELD)
    assert do.Answer("d") in found
    assert do.Go(1) in driver.tell(ev.ResumeAsked("r"))
    assert driver.is_in(FlowState.FLOWING)


def test_a_drained_run_ends_when_asked_to() -> None:
    driver = Driver().flowing()
    driver.tell(ev.DrainAsked("d"))
    driver.commit(driver.stage())
    found = driver.tell(ev.DrainAsked("e", end=True))
    assert driver.is_in(FlowState.ENDED)
    assert {one.bundle for one in found if isinstance(one, do.EndBundle)} == driver.run.layout.names
    assert do.Stop(None) in found


def test_resume_is_refused_where_nothing_is_drained() -> None:
    driver = Driver().flowing()
    assert driver.tell(ev.ResumeAsked("r")) == [do.Answer("r", "the run is not drained; drain it first")]


def test_another_plan_keeps_the_processes_of_bundles_that_stay() -> None:
    driver = Driver().flowing()
    other = layout("other", o=Slot("n2", 0))
    started = [one.bundle.name for one in driver.tell(ev.ChangeAsked("c", other)) if isinstance(one, do.StartBundle)]
    assert started == ["o@n2/0"]
    assert driver.last(do.OpenEpoch) == do.OpenEpoch(1, 1, hold=True)
    driver.commit(driver.stage())
    assert driver.run.layout is other
    assert driver.last(do.Form).generation == 2
    assert driver.last(do.EndBundle) is None, "the old bundle stays until the new generation flows"
    driver.link()
    assert driver.last(do.EndBundle) == do.EndBundle("o@n1/1")
    assert driver.last(do.Answer) == do.Answer("c")
    assert driver.run.commit.plan == "p", "the plan of a commit is the one that made it"


@pytest.mark.parametrize("arrives", [False, True], ids=["its processes never start", "its links never come up"])
def test_a_plan_that_does_not_start_in_time_leaves_the_old_one(arrives: bool) -> None:
    driver = Driver(silence=1e9, change=30.0, link=60.0).flowing()
    if not arrives:
        driver.absent.add("o@n2/0")
    driver.tell(ev.ChangeAsked("c", layout("other", o=Slot("n2", 0))))
    if arrives:
        driver.commit(driver.stage())
        assert driver.run.layout.plan == "other"
    driver.tell(ev.Tick(), seconds=31.0)
    answer = driver.last(do.Answer)
    assert answer.request == "c"
    assert "did not start within 30 s" in answer.refused
    assert driver.run.layout.plan == "p"
    assert driver.last(do.EndBundle) == do.EndBundle("o@n2/0")
    if arrives:
        driver.link()
    assert driver.is_in(FlowState.FLOWING)


def test_a_node_that_is_gone_is_left_for_a_refuge() -> None:
    driver = Driver(layout(o=Slot("n2", 0))).flowing()
    found = driver.tell(ev.NodeGone("n2", "the Master says so"))
    assert do.SeekRefuge(frozenset({Slot("n2", 0)})) in found
    driver.tell(ev.RefugeFound(layout(o=Slot("n1", 0))))
    driver.link()
    assert driver.is_in(FlowState.FLOWING)
    assert driver.run.layout.names == {"s@n1/0", "o@n1/0"}


def test_a_slot_on_which_nothing_starts_any_more_is_left() -> None:
    driver = Driver(silence=1e9, start=20.0).flowing()
    driver.absent.add("o@n1/1")
    driver.tell(ev.Lost(driver.connection("o@n1/1"), "reset"))
    assert do.SeekRefuge(frozenset({Slot("n1", 1)})) in driver.tell(ev.Tick(), seconds=21.0)
    driver.tell(ev.NoRefuge("n1 has no other slot"))
    assert driver.is_in(FlowState.FAILED)
    assert "n1/1" in driver.last(do.Stop).failed


def test_a_run_whose_slots_never_start_says_which() -> None:
    driver = Driver(first_start=20.0)
    driver.absent.add("o@n1/1")
    driver.tell(ev.Tick())
    driver.tell(ev.Tick(), seconds=21.0)
    assert driver.is_in(FlowState.FAILED)
    assert "no slot for 'o@n1/1' within 20 s" in driver.last(do.Stop).failed


def test_a_full_disk_is_waited_for() -> None:
    driver = Driver(silence=1e9).flowing()
    driver.tell(ev.Tick(), seconds=1.1)
    write = driver.stage()
    driver.tell(ev.NotCommitted(1, "disk full"))
    assert write in driver.tell(ev.Tick(), seconds=1.1)
    driver.commit(write)
    assert "can be written again" in driver.last(do.Say).text
    assert driver.is_in(FlowState.FLOWING)


@pytest.mark.parametrize(
    ("at_sink", "seconds", "waits", "gives_up"),
    [
        (False, 60.0, "away; waiting until the checkpoint can be written", "away for 60 s: make room"),
        (True, 300.0, "away; waiting", "away for 300 s; nothing is lost"),
    ],
)
def test_a_broker_that_is_away_has_longer_than_a_full_disk(
    at_sink: bool, seconds: float, waits: str, gives_up: str
) -> None:
    driver = Driver(silence=1e9).flowing()
    driver.tell(ev.Tick(), seconds=1.1)
    driver.stage()
    driver.tell(ev.NotCommitted(1, "away", at_sink))
    assert driver.last(do.Say).text == waits
    driver.tell(ev.NotCommitted(1, "away", at_sink), seconds=seconds)
    assert driver.is_in(FlowState.FLOWING)
    driver.tell(ev.NotCommitted(1, "away", at_sink), seconds=1.0)
    assert driver.is_in(FlowState.FAILED)
    assert driver.last(do.Stop).failed.startswith(gives_up)


def test_another_trouble_is_waited_for_anew() -> None:
    driver = Driver(silence=1e9).flowing()
    driver.tell(ev.Tick(), seconds=1.1)
    driver.stage()
    driver.tell(ev.NotCommitted(1, "broker away", at_sink=True))
    driver.tell(ev.NotCommitted(1, "disk full"), seconds=200.0)
    assert driver.is_in(FlowState.FLOWING)
    assert driver.last(do.Say).text == "disk full; waiting until the checkpoint can be written"


def test_whoever_was_replaced_lets_go() -> None:
    driver = Driver().flowing()
    driver.tell(ev.Fenced("process 7 on h"))
    assert driver.is_in(FlowState.FENCED)
    assert "process 7 on h" in driver.last(do.Stop).failed
    assert driver.tell(ev.Tick(), seconds=100.0) == []


def test_code_that_stops_the_pipeline_fails_the_run() -> None:
    driver = Driver().flowing()
    driver.tell(ev.GaveUp("o@n1/1", 1, "ValueError: no"))
    assert driver.is_in(FlowState.FAILED)
    assert "stopped by its own code in bundle 'o@n1/1': ValueError: no" in driver.last(do.Stop).failed


def with_memory(plan: str, memory_mb: int, **where: Slot) -> Layout:
    """As `layout`, with another memory of the executor of `o`."""
    made = layout(plan, **where)
    bundles = tuple(replace(it, memory_mb=memory_mb) if it.operators == ("o",) else it for it in made.bundles)
    return Layout(plan, bundles, made.channels)


def starts(found: list[do.Instruction]) -> list[tuple[str, int | None]]:
    return [(one.bundle.name, one.bundle.memory_mb) for one in found if isinstance(one, do.StartBundle)]


def test_an_executor_that_changes_its_memory_ends_before_the_other_starts() -> None:
    driver = Driver().flowing()
    kept = driver.connection("s@n1/0")
    # nothing can be started beside the old one: the flow is held for it at once
    assert starts(driver.tell(ev.ChangeAsked("x", with_memory("q", 900)))) == []
    assert driver.last(do.OpenEpoch).hold
    found = driver.commit(driver.stage())
    assert do.EndBundle("o@n1/1") in found
    assert starts(found) == [("o@n1/1", 900)]
    driver.link()
    assert driver.last(do.Answer) == do.Answer("x")
    assert (driver.run.layout.plan, driver.connection("s@n1/0")) == ("q", kept)


def test_where_the_memory_stays_processes_stay() -> None:
    driver = Driver(with_memory("p", 900)).flowing()
    before = {name: driver.connection(name) for name in driver.run.layout.names}
    assert starts(driver.tell(ev.ChangeAsked("x", with_memory("q", 900)))) == []
    driver.commit(driver.stage())
    driver.link()
    assert driver.last(do.Answer) == do.Answer("x")
    assert {name: driver.connection(name) for name in driver.run.layout.names} == before


def test_the_former_memory_comes_back_where_the_other_cannot() -> None:
    driver = Driver(change=30.0).flowing()
    driver.tell(ev.ChangeAsked("x", with_memory("q", 900)))
    driver.absent = {"o@n1/1"}
    driver.commit(driver.stage())
    # from when it was adopted on, the new executor has as long as any change
    for _ in range(7):
        driver.tell(ev.Beat(driver.connection("s@n1/0")), seconds=4.0)
    assert driver.run.changing
    driver.absent = set()
    found = driver.tell(ev.Tick(), seconds=3.0)
    assert starts(found) == [("o@n1/1", None)]
    assert "did not start within" in (driver.last(do.Answer).refused or "")
    driver.link()
    assert (driver.run.layout.plan, driver.run.state) == ("p", FlowState.FLOWING)


class TestLed:
    """A run whose layouts are ordered from outside."""

    def lost(self) -> Driver:
        driver = Driver(layout(o=Slot("n2", 0)), is_led=True).flowing()
        driver.tell(ev.NodeGone("n2", "the Master has lost its Worker"))
        return driver

    def test_it_looks_for_no_other_slots(self) -> None:
        driver = self.lost()
        assert driver.last(do.SeekRefuge) is None
        assert driver.is_in(FlowState.GATHERING)
        driver.tell(ev.Tick(), seconds=3.0)
        assert driver.is_in(FlowState.GATHERING)

    def test_it_goes_on_by_the_next_order_with_what_is_left(self) -> None:
        driver = self.lost()
        kept = driver.connection("s@n1/0")
        assert starts(driver.tell(ev.ChangeAsked("x", layout("q", o=Slot("n3", 0))))) == [("o@n3/0", None)]
        driver.link()
        assert (driver.run.layout.plan, driver.run.state) == ("q", FlowState.FLOWING)
        assert driver.connection("s@n1/0") == kept

    def test_it_goes_on_when_the_node_is_back(self) -> None:
        driver = self.lost()
        assert starts(driver.tell(ev.NodeBack("n2"))) == [("o@n2/0", None)]
        driver.link()
        assert driver.is_in(FlowState.FLOWING)

    def test_a_slot_on_which_nothing_starts_is_tried_again(self) -> None:
        driver = Driver(is_led=True, start=20.0).flowing()
        driver.absent = {"o@n1/1"}
        driver.tell(ev.Lost(driver.connection("o@n1/1"), "reset"))
        for _ in range(5):
            driver.tell(ev.Beat(driver.connection("s@n1/0")), seconds=4.0)
        driver.absent = set()
        found = driver.tell(ev.Beat(driver.connection("s@n1/0")), seconds=2.0) + driver.tell(ev.Tick())
        assert starts(found) == [("o@n1/1", None)]
        driver.link()
        assert driver.is_in(FlowState.FLOWING)
