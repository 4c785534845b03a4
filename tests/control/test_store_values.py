"""Values of any kind: what is stored is read again as it was, or rejected in a line before anything is written."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, text
from test_control_store import Kept, plain, sqlite

from effort import tries
from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError
from penstock.cli.main import run
from penstock.cluster.topology import Slot
from penstock.control.core.messages import Decision, DecisionKind, Event, StepOutcome
from penstock.control.core.records import (
    Change,
    ControllerState,
    EngineName,
    NodePhase,
    NodeRecord,
    PipelineRecord,
    PipelineState,
    Policy,
    Rescheduling,
    ServiceTarget,
    Submission,
    Trigger,
)
from penstock.control.errors import StoreError, UnstorableError
from penstock.control.registry import TRIGGER_KINDS
from penstock.control.store import schema
from penstock.control.store.database import StoreAddress
from penstock.control.store.rows import decode_json, encode_json
from penstock.control.store.store import Store
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.measures import Served
from penstock.testing.controller import asked, cluster

texts = st.text(max_size=8)
numbers = st.one_of(st.floats(allow_nan=False), st.sampled_from([math.inf, -math.inf, 5e-324, 1.7e308, -0.0]))
counts = st.one_of(st.integers(0, 9), st.sampled_from([0, 2**31, 2**63 - 1]))
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from([10**400, -(2**70)]), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
mappings = st.dictionaries(texts, documents, max_size=3)
slots = st.builds(Slot, texts, st.integers(0, 3))
targets = st.builds(ServiceTarget, st.none() | numbers, st.none() | numbers)
triggers = st.builds(
    Trigger,
    id=st.integers(1, 99),
    kind=st.sampled_from(TRIGGER_KINDS.names()),
    above=numbers,
    below=st.none() | numbers,
    field=texts,
    priority=counts,
    enabled=st.booleans(),
    on=st.booleans(),
    on_since=st.none() | numbers,
)


@st.composite
def pipelines(draw: st.DrawFn, name: str, number: int, held: list[Slot]) -> PipelineRecord:
    submission = st.builds(
        Submission,
        st.just(name),
        documents,
        definition=st.none() | mappings,
        target=targets,
        desired=st.none() | counts,
        engine=st.sampled_from(EngineName),
        elastic=st.none() | mappings,
    )
    return PipelineRecord(
        draw(submission),
        number,
        draw(st.sampled_from(PipelineState)),
        draw(numbers),
        draw(targets),
        draw(counts),
        draw(counts),
        draw(counts),
        waiting=draw(st.none() | texts),
        served=Served(draw(numbers), draw(numbers)),
        change=draw(st.none() | st.builds(Change, st.lists(counts, max_size=3).map(tuple), numbers)),
        triggers=tuple(sorted(draw(st.lists(triggers, max_size=2, unique_by=lambda it: it.id)), key=lambda it: it.id)),
        assigned=tuple(held),
        may_hold=frozenset(held),
    )


def nodes_of(names: list[str]) -> st.SearchStrategy[dict[str, NodeRecord]]:
    capacity = st.dictionaries(texts, numbers, max_size=2)
    of = {
        name: st.builds(NodeRecord, st.just(name), texts, counts, st.sampled_from(NodePhase), numbers, capacity)
        for name in names
    }
    return st.fixed_dictionaries(of)


@st.composite
def states(draw: st.DrawFn) -> ControllerState:
    names = draw(st.lists(texts, max_size=3, unique=True))
    held = draw(st.lists(slots, max_size=6, unique=True))
    made = {name: draw(pipelines(name, number + 1, held[number :: len(names)])) for number, name in enumerate(names)}
    return ControllerState(
        policy=Policy(draw(st.sampled_from(SHARERS.names())), draw(st.sampled_from(Rescheduling)), draw(counts)),
        unit_slots=draw(st.sampled_from([1, 2, 2**40])),
        pipelines=MappingProxyType(made),
        nodes=MappingProxyType(draw(st.lists(texts, max_size=3, unique=True).flatmap(nodes_of))),
        submitted=3 + draw(st.integers(0, 9)),
        decided=draw(counts),
        triggers_made=99,
        last_pass=draw(numbers),
    )


@tries(3)
@given(states(), states())
def test_any_state_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, first: ControllerState, second: ControllerState
) -> None:
    """Infinity, the smallest and largest numbers, numbers of hundreds of digits in documents, any text."""
    store = sqlite(tmp_path_factory.mktemp("store"))
    lease = store.take_lease(0.0)
    before = ControllerState()
    for state in (first, second):
        store.commit(before, StepOutcome(state), lease, 0.0)
        assert plain(store.load()) == plain(state)
        before = state
    store.close()


def spoilt(state: ControllerState, kind: str) -> ControllerState:
    """One value that no store takes; the state must have a pipeline and a node."""
    (name, record), (host, node) = next(iter(state.pipelines.items())), next(iter(state.nodes.items()))
    half = "half \ud800"
    changed: dict[str, Any] = {
        "name of a pipeline": {half: replace(record, submission=replace(record.submission, name=half))},
        "nan": {name: replace(record, since=math.nan)},
        "nan in a field": {name: replace(record, served=Served(math.nan, 0.0))},
        "nan in a document": {name: replace(record, submission=replace(record.submission, elastic={"x": [math.nan]}))},
        "too large": {name: replace(record, priority=2**63)},
        "negative": {name: replace(record, minimum=-1)},
        "thousands of digits": {name: replace(record, submission=replace(record.submission, pipeline=10**5000))},
        "another type": {name: replace(record, deaths="many")},  # type: ignore[arg-type] # that is the point
        "a set": {name: replace(record, submission=replace(record.submission, pipeline={1}))},
        "slot": {name: replace(record, held=(Slot(half, 0),))},
    }
    if kind in changed:
        return replace(state, pipelines={**state.pipelines, **changed[kind]})
    return replace(state, nodes={**state.nodes, host: replace(node, rack=half)})


SPOILT = ("name of a pipeline", "nan", "nan in a field", "nan in a document", "too large", "negative", "another type")
SPOILT_TOO = ("thousands of digits", "a set", "slot", "rack")


@pytest.mark.parametrize("kind", [*SPOILT, *SPOILT_TOO])
def test_a_value_that_cannot_be_read_again_is_rejected_by_table_and_row(tmp_path: Path, kind: str) -> None:
    store = sqlite(tmp_path)
    bench = Kept(cluster(2), store)
    bench.tell(asked("a", 1, load="5"))
    step = StepOutcome(spoilt(bench.state, kind))
    with pytest.raises(UnstorableError, match=r"^cannot be stored: table '\w+', row .*: ") as caught:
        store.commit(bench.state, step, bench.lease, 0.0)
    assert "\n" not in str(caught.value)
    assert plain(store.load()) == plain(bench.state)
    store.close()


@given(documents)
def test_documents_are_the_same_after_json_or_rejected(document: Any) -> None:
    try:
        written = encode_json(document)
    except ValueError:
        return
    assert "Infinity" not in written.replace('"', "") or "Infinity" in repr(document)
    assert decode_json(written) == document


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (replace(ControllerState(), last_pass=math.nan), "table 'controller', row 1: last_pass: expected a number"),
        (replace(ControllerState(), decided=2**63), "row 1: decided: expected a number of at least 0"),
        (replace(ControllerState(), unit_slots=0), "row 1: unit_slots: expected a number of at least 1"),
        (replace(ControllerState(), policy=Policy("zzz")), "policy.sharing: unknown sharing policy 'zzz'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_again_is_named(tmp_path: Path, step: ControllerState, said: str) -> None:
    store = sqlite(tmp_path)
    with pytest.raises(UnstorableError, match=said):
        store.commit(ControllerState(), StepOutcome(step), store.take_lease(0.0), 0.0)
    assert store.load() is None
    store.close()


def test_logs_are_checked_too(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    lease = store.take_lease(0.0)
    decision = Decision(1, 0.0, "a", DecisionKind.GROW, 0, 1, "", expected={"rate": math.nan})
    for step in (
        StepOutcome(ControllerState(), decisions=(decision,)),
        StepOutcome(ControllerState(), events=(Event(0.0, "\udcff", "state"),)),
    ):
        with pytest.raises(UnstorableError, match=r"cannot be stored: table '(decisions|events)', row"):
            store.commit(ControllerState(), step, lease, 0.0)
    endless = replace(decision, expected={"latency_ms": math.inf})
    store.commit(ControllerState(), StepOutcome(ControllerState(), decisions=(endless,)), lease, 0.0)
    assert store.read(select(schema.decisions))[0]["expected"] == {"latency_ms": math.inf}
    store.close()


class TestPrivacy:
    def test_a_new_file_is_its_owners_alone(self, tmp_path: Path) -> None:
        """And so are the files beside it, while it is in use; one of an earlier version becomes so."""
        store = sqlite(tmp_path)
        Kept(cluster(2), store)
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
        assert len(list(tmp_path.iterdir())) == 3
        store.close()
        (tmp_path / "store.db").chmod(0o644)
        sqlite(tmp_path).close()
        assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql+psycopg://u:S3CRET@127.0.0.1:1/db",
            "postgresql+psycopg://127.0.0.1:1/db?user=u&password=S3CRET",
            "postgresql+psycopg://127.0.0.1:1/db?sslpassword=S3CRET&PassWord=S3CRET",
            "postgresql+psycopg://u:S3CRET@/db?host=S3CRET.invalid",
            "nonsense:S3CRET",
            "mysql://u:S3CRET@h/db",
            "odd://u:S3CRET@h",
            "sqlite:////tmp/x.db?password=S3CRET",
        ],
    )
    def test_no_password_is_ever_shown(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(BadInputError, match="store '") as caught:
            Store(url)
        shown = [str(caught.value)]
        if url.startswith("postgresql"):
            shown += [str(StoreAddress.of(url)), repr(StoreAddress.of(url))]
        assert "S3CRET" not in " ".join(shown).replace("S3CRET.invalid", "")

    def test_a_password_on_the_command_line_is_rejected_with_a_remedy(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
        for words in (["up", "--simulated"], ["serve", "--simulated"], ["controller", "repair"]):
            assert run([*words, "--store", "postgresql+psycopg://u:S3CRET@127.0.0.1:1/db"]) == 2
            said = capsys.readouterr().err
            assert "give --store-file FILE, or set PENSTOCK_STORE" in said
            assert "S3CRET" not in said
        file = tmp_path / "store-url"
        file.write_text("postgresql+psycopg://u:S3CRET@127.0.0.1:1/db\n")
        file.chmod(0o644)
        assert run(["controller", "repair", "--store-file", str(file)]) == 2
        assert f"run chmod 600 {file}" in capsys.readouterr().err
        file.chmod(0o600)
        assert run(["controller", "repair", "--store-file", str(file)]) == 2
        assert "only SQLite files can be repaired" in capsys.readouterr().err
        monkeypatch.setenv("PENSTOCK_STORE", file.read_text().strip())
        assert run(["controller", "repair"]) == 2
        assert "store 'postgresql+psycopg://u:***@127.0.0.1:1/db': only SQLite" in capsys.readouterr().err


def test_readers_wait_for_no_writer(tmp_path: Path) -> None:
    """Every way to read, while another connection holds the lock of the writer."""
    store, other = sqlite(tmp_path), sqlite(tmp_path)
    bench = Kept(cluster(2), store)
    bench.tell(asked("a", 1, load="5"))
    fresh = sqlite(tmp_path)
    with other._engine.begin() as writer:
        writer.execute(text("UPDATE controller SET decided = decided"))
        watch = Stopwatch()
        assert fresh.load() is not None
        assert fresh.read(select(schema.decisions))
        assert fresh.count("events") > 0
        assert list(fresh.windows("a", 0.0)) == []
        assert fresh.windows_before(10, 0.0) == []
        assert watch.seconds() < 5  # a writer would have waited for 10 s, and failed
    with pytest.raises(StoreError, match="readonly"), fresh._reading() as reader:
        reader.execute(text("DELETE FROM events"))
    for each in (store, other, fresh):
        each.close()
