"""The store: what was written comes back, all of a step or nothing, one controller at a time, bounded as it ages."""

from __future__ import annotations

import math
import shutil
import socket
import subprocess
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, select, text, update
from test_histories import act, actions

from effort import tries
from penstock.base.errors import BadInputError
from penstock.control.controller import Controller
from penstock.control.core.division import divide
from penstock.control.core.messages import AddTrigger, Kill, StepOutcome, SwitchTrigger
from penstock.control.core.records import ControllerState, PipelineState, Policy, Rescheduling, Trigger
from penstock.control.elasticity.memory import Following
from penstock.control.errors import StoreError, UnstorableError
from penstock.control.executors.simulated import SimulatedExecutors, SimulatedNodes
from penstock.control.store import rows, schema
from penstock.control.store.lease import LeaseHeldError, LostLeaseError
from penstock.control.store.metric_history import History
from penstock.control.store.store import Store
from penstock.testing import ManualClock
from penstock.testing.controller import ControllerBench as Bench
from penstock.testing.controller import RatePerUnit as PerUnit
from penstock.testing.controller import asked, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


def sqlite(folder: Path, name: str = "store.db") -> Store:
    return Store(f"sqlite:///{folder / name}")


def plain(state: ControllerState | None) -> ControllerState:
    assert state is not None
    found = {name: replace(record, readings={}, following=Following()) for name, record in state.pipelines.items()}
    return replace(state, pipelines=found, nodes=dict(state.nodes))


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """A server of its own, on loopback, for as long as the tests of this file run."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").is_dir() else []
    if not found:
        pytest.skip("no PostgreSQL server is installed")
    # not in a folder of pytest's: the server refuses to be root, and nobody else may look into those
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    whom: list[str] = []
    if Path("/proc/self").owner() == "root":
        whom = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, tools = str(folder / "data"), found[-1]
    subprocess.run(
        [*whom, str(tools / "initdb"), "-A", "trust", "-U", "penstock", data], check=True, capture_output=True
    )
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    control = [*whom, str(tools / "pg_ctl"), "-D", data, "-w"]
    subprocess.run([*control, "-o", options, "-l", str(folder / "log"), "start"], check=True, capture_output=True)
    try:
        yield f"postgresql+psycopg://penstock@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True)
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both databases keep the same promises."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    found: str = request.getfixturevalue("postgres")
    store = Store(found)
    with store._engine.begin() as connection:
        schema.metadata.drop_all(connection)
    store.close()
    return found


def set_lease(store: Store, **values: object) -> None:
    with store._engine.begin() as connection:
        connection.execute(update(schema.lease).values(**values))


class Kept(Bench):
    """A bench whose steps are written."""

    def __init__(self, state: ControllerState, store: Store) -> None:
        super().__init__(state)
        self.store = store
        self.lease = store.take_lease(0.0)
        store.commit(ControllerState(), StepOutcome(state), self.lease, 0.0)

    def taken(self, before: ControllerState, found: StepOutcome) -> None:
        self.store.commit(before, found, self.lease, 0.0)


class TestRoundTrip:
    def test_what_was_written_comes_back(self, url: str) -> None:
        store = Store(url)
        bench = Kept(cluster(16, sharing="dynamic-priority"), store)
        for name in "abc":
            bench.tell(asked(name, 8, 2, load="10", maximum=7))
        bench.tell(AddTrigger("a", Trigger(0, "batch-share", above=80.0, field="reading")))
        bench.run(10)
        bench.tell(SwitchTrigger("a", 1, True))
        bench.run(3)
        assert plain(store.load()) == plain(bench.state)
        bench.tell(Kill("b"))
        bench.run(2 * 86_400, every=1200)
        assert "b" not in bench.state.pipelines
        assert plain(store.load()) == plain(bench.state)
        store.close()

    @tries(1)
    @given(st.lists(actions, min_size=1, max_size=12))
    def test_after_any_history(self, tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, Any]]) -> None:
        store = sqlite(tmp_path_factory.mktemp("store"))
        bench = Kept(cluster(6), store)
        for action in history:
            act(bench, action)
        assert plain(store.load()) == plain(bench.state)
        assert list(store.load().nodes) == list(bench.state.nodes)  # type: ignore[union-attr]
        store.close()

    def test_every_decision_can_be_repeated_from_the_store(self, url: str) -> None:
        store = Store(url)
        bench = Kept(cluster(8), store)
        for name in "abc":
            bench.tell(asked(name, 4, 2, load="10"))
        bench.run(10)
        kept = store.read(select(schema.passes))
        assert len(kept) == 3
        for row in kept:
            again = divide(row["inputs"])
            assert {name: len(slots) for name, slots in again.slots.items()} == row["shares"]
        overheads = [row["overhead"] for row in store.read(select(schema.decisions)) if row["kind"] == "start"]
        # the last that was submitted: its driver is up after 4 s, its executors were there before
        assert overheads[-1]["total_s"] == pytest.approx(4.0, abs=0.6)
        store.close()

    def test_infinity_and_numbers_of_many_digits_survive_in_documents(self, url: str) -> None:
        store = Store(url)
        bench = Kept(cluster(2), store)
        bench.tell(asked("a", 1))
        odd = {"endless": [math.inf, -math.inf], "long": 10**40, "text": "\x00 \ud800"}
        record = replace(bench["a"], submission=replace(bench["a"].submission, definition=odd))
        state = replace(bench.state, pipelines={"a": record})
        store.commit(bench.state, StepOutcome(state), bench.lease, 0.0)
        assert plain(store.load()) == plain(state)
        store.close()

    def test_a_number_too_large_for_its_column_is_rejected_and_not_taken_for_trouble(self, url: str) -> None:
        store = Store(url)
        bench = Kept(cluster(2), store)
        bench.tell(asked("a", 1))
        state = replace(bench.state, pipelines={"a": replace(bench["a"], priority=2**63)})
        with pytest.raises(UnstorableError):
            store.commit(bench.state, StepOutcome(state), bench.lease, 0.0)
        assert plain(store.load()) == plain(bench.state)
        store.close()


class TestOwner:
    def test_a_store_belongs_to_one_state_folder(self, url: str, tmp_path: Path) -> None:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
        first = Store(url, folder=tmp_path / "one")
        held = first.take_lease(0.0)
        first.give_back(held)
        second, taking = Store(url, folder=tmp_path / "other"), Store(url, folder=tmp_path / "other", take_over=True)
        with pytest.raises(LeaseHeldError, match=f"the controller of folder {tmp_path / 'one'} on host"):
            second.take_lease(0.0)
        assert taking.take_lease(0.0).number == held.number + 1
        with pytest.raises(LostLeaseError):
            first.renew(held, 0.0)
        for store in (first, second, taking):
            store.close()

    def test_tables_of_version_3_are_migrated(self, url: str) -> None:
        """On both databases; the scripts of test_store_migrations are SQLite's."""
        store = Store(url)
        bench = Kept(cluster(2), store)
        bench.tell(asked("a", 1, load="5"))
        double = "FLOAT" if url.startswith("sqlite") else "DOUBLE PRECISION"
        with store._engine.begin() as connection:
            for statement in (
                "DROP TABLE lease",
                "CREATE TABLE lease (id INTEGER PRIMARY KEY, number INTEGER NOT NULL, host VARCHAR(255) NOT NULL, "
                f"pid INTEGER NOT NULL, until {double} NOT NULL)",
                "INSERT INTO lease VALUES (1, 7, 'host', 4711, 0.0)",
                "ALTER TABLE controller DROP COLUMN step",
                "DROP TABLE metrics",
                "CREATE TABLE metrics (subject VARCHAR(1000) NOT NULL, metric VARCHAR(40) NOT NULL, "
                f"seconds INTEGER NOT NULL, at {double} NOT NULL, value {double} NOT NULL, "
                "PRIMARY KEY (subject, metric, seconds, at))",
                "CREATE INDEX metrics_by_age ON metrics (seconds, at)",
                "INSERT INTO metrics VALUES ('a/X', 'rate_in', 10, 1000.0, 2.5)",
                "UPDATE meta SET value = '3'",
            ):
                connection.execute(text(statement))
        store.close()
        store = Store(url)
        assert plain(store.load()) == plain(bench.state)
        assert list(store.windows("a", 0.0)) == [(1000.0, 10, {"X": {"rate_in": 2.5}})]
        assert store.take_lease(0.0).number == 8
        History(store).turn(0.0)
        store.close()


class TestCrash:
    def test_between_any_two_writes(self, tmp_path: Path) -> None:
        """The step in which a priority changes, broken off before each of its statements in turn."""

        def made(number: int) -> tuple[Kept, Store]:
            store = sqlite(tmp_path, f"{number}.db")
            bench = Kept(cluster(8, sharing="dynamic-priority"), store)
            bench.tell(asked("a", 6, load="5"), asked("b", 6, load="5"))
            bench.run(10)
            bench.tell(AddTrigger("a", Trigger(0, "arrival-rate", above=1e9)))
            return bench, store

        broken = 0
        for number in range(200):
            bench, store = made(number)
            before, left = plain(bench.state), number

            def count(*_: object) -> None:
                nonlocal left
                if left == 0:
                    raise OSError("the machine stopped")
                left -= 1

            event.listen(store._engine, "before_cursor_execute", count)
            try:
                bench.tell(SwitchTrigger("a", 1, True))
            except OSError:
                broken += 1
                event.remove(store._engine, "before_cursor_execute", count)
                assert plain(store.load()) == before
                store.close()
                continue
            event.remove(store._engine, "before_cursor_execute", count)
            assert plain(store.load()) == plain(bench.state) != before
            store.close()
            break
        assert broken >= 8

    def test_a_controller_that_is_killed_goes_on(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.control.store.lease.LEASE_SECONDS", 0.1)
        clock, wall = ManualClock(1000.0), ManualClock(50.0)

        def controller(made: SimulatedNodes) -> Controller:
            executors = SimulatedExecutors(PerUnit(), 1)
            return Controller(Store(url), executors, made, PerUnit(), clock, wall, ControllerState())

        first = controller(SimulatedNodes(4, 1))
        first.look()
        first.ask(asked("a", 3, load="5"))
        first.ask(asked("b", 3, 2, load="5"))
        held = {}
        for _ in range(100):
            clock.time += 0.25
            first.look()
            held = {name: record.held for name, record in first.state.pipelines.items()}
        assert sum(map(len, held.values())) == 4
        # never closed, and its process cannot be seen: its lease stands until it has been silent for so long
        set_lease(first.store, boot="of another machine")
        nodes = SimulatedNodes(0, 1)
        second = controller(nodes)
        assert second.fence == first.fence + 1
        assert second.state.pipelines["a"].assigned == first.state.pipelines["a"].assigned
        nodes.know(second.state.nodes)
        for _ in range(100):
            clock.time += 0.25
            second.look()
        assert {name: set(record.held) for name, record in second.state.pipelines.items()} == {
            name: set(slots) for name, slots in held.items()
        }
        with pytest.raises(LostLeaseError):
            first.ask(Kill("a"))
        assert second.state.pipelines["a"].state is PipelineState.ACTIVE
        second.close()
        first.store.close()


def fill(bench: Kept) -> None:
    for _ in range(2000):
        bench.tell(asked("a", 2, load="5"), Kill("a"))
        bench.run(5)


class TestTrouble:
    def test_locked_and_full_are_said_and_change_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.control.store.store.BUSY_SECONDS", 0.1)
        store = sqlite(tmp_path)
        bench = Kept(cluster(4), store)
        other = sqlite(tmp_path)
        with other._engine.begin(), pytest.raises(StoreError, match="locked"):
            bench.tell(asked("a", 2))
        assert bench.state.pipelines == {}

        def limit(connection: Any, _: object) -> None:
            connection.execute("PRAGMA max_page_count=1")

        event.listen(store._engine, "connect", limit)
        store._engine.dispose()
        with pytest.raises(StoreError, match="full"):
            fill(bench)
        event.remove(store._engine, "connect", limit)
        store._engine.dispose()
        other.close()
        assert plain(store.load()) == plain(bench.state)
        store.close()

    def test_what_is_no_store_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "no.db").write_text("nothing of the kind")
        for url in ("sqlite:////no/such/folder/x.db", "nonsense", f"sqlite:///{tmp_path / 'no.db'}", "odd://x"):
            with pytest.raises(BadInputError, match="store '"):
                Store(url)


class TestAgeing:
    def test_means_are_kept_while_rows_become_few(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A reading of n at second n for two hours: ten minutes of 10 s, half an hour of 60 s, the rest of 600 s."""
        ages = ((600, 10, 60), (2400, 60, 600), (28_800, 600, 0))
        monkeypatch.setattr("penstock.control.store.metric_history.AGES", ages)
        store = Store(url)
        history = History(store)
        for second in range(0, 2 * 3600, 10):
            history.add("a", "", {"rate": float(second)}, float(second))
            history.add("a/", "X/n1/0", {"rate": float(second)}, float(second))
        rows = list(store.windows("a", 0.0))
        counts = Counter(seconds for _, seconds, _ in rows)
        # thinning may be ten minutes behind, and goes by whole windows of the next size
        assert 60 <= counts[10] <= 60 + 66
        # (2400 - 600) / 60, and up to one window of 600 s more
        assert 30 <= counts[60] <= 30 + 10
        # what is older than 2400 s: (7200 - 2400) / 600, or one fewer
        assert 7 <= counts[600] <= 8
        old = next(readings for at, seconds, readings in rows if seconds == 600 and at == 1200.0)
        # the mean of 1200, 1210, ... 1790 is 1200 + 59 * 10 / 2
        assert old[""]["rate"] == pytest.approx(1200 + 295)
        # of threads nothing is older than the first age, and a window of 60 s
        assert 60 <= len(list(store.windows("a/", 0.0))) <= 60 + 66
        history.turn(3 * 86_400.0)
        assert store.count("metrics") <= 2
        store.close()

    def test_logs_are_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.control.store.store.KEPT", {"events": 5, "decisions": 3, "passes": 2})
        store = sqlite(tmp_path)
        bench = Kept(cluster(4), store)
        for _ in range(10):
            bench.tell(asked("a", 2, load="5"))
            bench.run(6)
            bench.tell(Kill("a"))
            bench.run(3)
        store.trim()
        assert [store.count(name) for name in ("events", "decisions", "passes")] == [5, 3, 2]
        newest = max(row["number"] for row in store.read(select(schema.decisions)))
        assert newest == bench.state.decided
        store.close()


def test_a_policy_of_an_earlier_store_that_said_nothing_of_rescheduling_is_live() -> None:
    kept = rows.policy_document(Policy("dynamic-priority", Rescheduling.DOCUMENTED))
    assert rows.policy_of(kept) == Policy("dynamic-priority", Rescheduling.DOCUMENTED)
    assert rows.policy_of({**kept, "rescheduling": None}) == Policy("dynamic-priority")
