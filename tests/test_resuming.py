"""A fused run is gone on with as it was started, wherever it is resumed; no Spark is started here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.cli.main import run
from penstock.engines.fused import engine as fused_engine
from penstock.engines.fused.engine import FusedEngine, FusedPrepared
from penstock.engines.fused.preparation import FusedJob, describe_run, describe_slots, prepare
from penstock.planning.files import write_plan
from penstock.report.listener import Listener
from penstock.runs.config import RunConfig
from penstock.runs.environment import with_executor_memory
from penstock.runs.folder import RunFolder
from penstock.spark.session.hadoop import FOLDERS, is_local_by_default

PIPELINE = """
name: p
operators:
  s: {kind: source}
  o: {run: "%s:work", threads: 4, cpu: 1, memory_mb: 1}
  end: {kind: sink}
streams: [{from: s, to: o}, {from: o, to: end}]
"""
CODE = "def work(row):\n    return row\n"

FUSED = (11, 22)
"""Slots of the fused run of a plan of `linear` at 100 tuples/s, and the threads of B in each."""

Resume = Callable[..., tuple[FusedJob, RunConfig]]


class DiedError(Exception):
    """In the place of a session."""


def died(*_: Any) -> Any:
    raise DiedError


def begin(given: Any, folder: Path | None, **more: Any) -> None:
    """A run whose process died when it was about to have a session, with a first batch begun."""
    with pytest.raises(DiedError):
        penstock.start(given, 10.0, folder=folder, **more)


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(fused_engine, "spark_session", died)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Resume:
    """Resumes from another folder in which no module of the run is found, as far as to what would be started."""
    (tmp_path / "elsewhere").mkdir()

    def resumed(folder: Path, *words: Any, **more: Any) -> tuple[FusedJob, RunConfig]:
        kept: list[tuple[FusedJob, RunConfig]] = []

        def start(_engine: FusedEngine, prepared: FusedPrepared, *_: Any) -> Any:
            kept.append((prepared.job, prepared.job.config))
            raise DiedError

        with monkeypatch.context() as there:
            there.chdir(tmp_path / "elsewhere")
            there.setattr(FusedEngine, "start", start)
            there.setattr(sys, "path", [entry for entry in sys.path if str(tmp_path) not in entry])
            with pytest.raises(DiedError):
                penstock.resume(folder, *words, **more)
            assert Path.cwd() == tmp_path / "elsewhere"
        return kept[0]

    return resumed


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("kind", ["pipeline", "plan file", "plan"])
def test_a_run_goes_on_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: Resume, kind: str
) -> None:
    project, module = tmp_path / "project", f"beside_{kind.replace(' ', '_')}"
    project.mkdir()
    (project / "p.yaml").write_text(PIPELINE % module)
    (project / f"{module}.py").write_text(CODE)
    monkeypatch.chdir(project)
    # as a script that lies there would find its modules
    monkeypatch.setattr(sys, "path", [*sys.path, str(project)])
    plan = penstock.plan("p.yaml", 10)
    write_plan(plan, Path("plan.json"))
    begin({"pipeline": "p.yaml", "plan file": "plan.json", "plan": plan}[kind], Path("run"), slots=2)
    sys.modules.pop(module, None)
    job, _ = elsewhere(project / "run")
    assert (job.slots, job.threads["o"]) == (2, 2)
    assert job.logic["o"]({"a": 1}) == {"a": 1}


@pytest.mark.usefixtures("no_session")
def test_threads_and_batches_are_those_it_was_started_with(tmp_path: Path, elsewhere: Resume) -> None:
    plan = penstock.plan("linear", 100)
    begin(plan, tmp_path / "run")
    assert (plan.forecast.slots, plan.forecast.threads["B"]) == FUSED
    # models alone would say otherwise
    assert prepare("linear", RunConfig(rate=10, slots=11)).threads["B"] != 22
    folder = RunFolder(tmp_path / "run")
    folder.describe(folder.description.model_copy(update={"most_rows": 77, "batch_seconds": 0.5}))
    job, _ = elsewhere(tmp_path / "run")
    assert (job.slots, job.threads["B"], job.most_rows, job.batch_seconds) == (*FUSED, 77, 0.5)
    # 11 x 22 threads over 5 slots are 48.4, and batches hold what these slots process
    job, _ = elsewhere(tmp_path / "run", slots=5)
    assert (job.slots, job.threads["B"]) == (5, 49)
    assert job.most_rows != 77


@pytest.mark.usefixtures("no_session")
def test_slots_that_changed_stay(tmp_path: Path, elsewhere: Resume) -> None:
    begin(penstock.plan("linear", 100), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    most_rows = folder.description.most_rows
    describe_slots(folder, 14)
    job, _ = elsewhere(tmp_path / "run")
    assert (job.slots, job.threads["B"], job.most_rows) == (14, FUSED[1], most_rows * 14 // FUSED[0])


def test_a_run_is_resumed_with_the_slots_it_has_now(tmp_path: Path) -> None:
    engine, folder = FusedEngine(), RunFolder(tmp_path / "run")
    prepared = engine.prepare(RunConfig(), penstock.plan("linear", 100), Listener())
    folder.create()
    describe_run(prepared.job, folder, "checkpoint", None)
    describe_slots(folder, 14)
    again = engine.prepare_again(folder, RunConfig(), None, Listener(), before=prepared)
    assert (prepared.job.slots, prepared.job.threads["B"]) == FUSED
    assert (again.job.slots, again.job.threads["B"]) == (14, FUSED[1])


@pytest.mark.usefixtures("no_session")
def test_another_plan_brings_other_threads_and_stays(tmp_path: Path, elsewhere: Resume) -> None:
    begin("linear", tmp_path / "run", slots=1)
    write_plan(penstock.plan("linear", 100), tmp_path / "plan.json")
    job, _ = elsewhere(tmp_path / "run", tmp_path / "plan.json")
    assert (job.slots, job.threads["B"]) == FUSED


@pytest.mark.parametrize(
    ("asked", "of_a_slot", "executor_mb"),
    [(None, None, 1024), (None, 3584.5, 3584), (2048, 3584.0, 2048), (None, 64.0, 512)],
)
def test_executors_have_the_memory_of_the_plans_slots(
    asked: int | None, of_a_slot: float | None, executor_mb: int
) -> None:
    config = RunConfig(executor_memory_mb=asked)
    assert with_executor_memory(config, of_a_slot).executor_memory_mb == executor_mb


@pytest.mark.usefixtures("no_session")
def test_a_run_of_a_plan_writes_down_the_memory_of_its_executors(tmp_path: Path) -> None:
    begin(penstock.plan("linear", 100), tmp_path / "run")
    assert RunFolder(tmp_path / "run").description.config.executor_memory_mb == 3584


@pytest.mark.usefixtures("no_session")
def test_options_stay(tmp_path: Path, elsewhere: Resume) -> None:
    begin(
        "linear",
        tmp_path / "run",
        max_dead_letter_ratio=0.2,
        checkpoint=str(tmp_path / "its own"),
        batch_interval_ms=50,
    )
    _, config = elsewhere(tmp_path / "run")
    assert (config.max_dead_letter_ratio, config.checkpoint, config.batch_interval_ms) == (
        0.2,
        str(tmp_path / "its own"),
        50,
    )


@pytest.mark.usefixtures("no_session")
def test_dead_letters_go_to_another_place(tmp_path: Path, elsewhere: Resume) -> None:
    begin("linear", tmp_path / "run", dead_letters="dead")
    assert elsewhere(tmp_path / "run")[1].dead_letters == str(Path("dead").absolute())
    # as whoever resumes it sees the path
    _, options = elsewhere(tmp_path / "run", dead_letters="more")
    assert options.dead_letters == str(tmp_path / "elsewhere" / "more")
    begin("linear", tmp_path / "without")
    with pytest.raises(BadInputError, match=r"dead_letters=: run 'linear-.*' was started without; start another run"):
        penstock.resume(tmp_path / "without", dead_letters="dead")


@pytest.mark.usefixtures("no_session")
def test_the_shell_says_where_dead_letters_go_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin("linear", tmp_path / "without")
    assert run(["runs", "resume", str(tmp_path / "without"), "--dead-letters", "dead"]) == 2
    assert capsys.readouterr().err.startswith("error: --dead-letters: run 'linear-")


@pytest.mark.usefixtures("no_session")
def test_the_checkpoint_in_the_folder_is_of_this_machine_whatever_hadoop_takes_paths_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: Resume
) -> None:
    folder, earlier = tmp_path / "runs" / "linear-1", tmp_path / "earlier"
    begin("linear", earlier)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://name:8020</value></property></configuration>"
    )
    (folder / "checkpoint" / "offsets").mkdir(parents=True)
    (folder / "checkpoint" / "offsets" / "0").touch()
    begin("linear", folder)
    # it had begun, and that was seen
    assert RunFolder(folder).description.config.checkpoint == f"file:{folder}/checkpoint"
    assert elsewhere(folder)[1].checkpoint is None
    # where it began on another file system it goes on there
    begin("linear", earlier)
    assert RunFolder(earlier).description.config.checkpoint == f"{earlier}/checkpoint"


@pytest.mark.parametrize(
    ("settings", "in_file", "is_local"),
    [
        ({}, None, True),
        ({}, "hdfs://name:8020", False),
        ({}, "file:///", True),
        ({"spark.hadoop.fs.defaultFS": "file:///"}, "hdfs://name:8020", True),
        ({"spark.hadoop.fs.defaultFS": "s3a://bucket"}, None, False),
    ],
)
def test_where_hadoop_looks_for_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], in_file: str | None, is_local: bool
) -> None:
    for variable in FOLDERS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    if in_file is not None:
        entry = f"<property><name>fs.defaultFS</name><value>{in_file}</value></property>"
        (tmp_path / "core-site.xml").write_text(f"<configuration>{entry}</configuration>")
    assert is_local_by_default(settings) is is_local


@pytest.mark.usefixtures("no_session")
def test_an_unnamed_run_that_is_resumed_is_listed_once(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "linear-1"
    begin("linear", folder)
    # nothing was begun in it
    assert not folder.exists()

    def begun(name: Path) -> None:
        (name / "checkpoint" / "offsets").mkdir(parents=True, exist_ok=True)
        (name / "checkpoint" / "offsets" / "0").touch()

    begun(folder)
    begin("linear", folder)
    begin("linear", folder)
    assert [run.folder for run in penstock.list_runs()] == [folder]
    # an entry of an earlier version
    (tmp_path / "runs" / "linear-1-abc.elsewhere").write_text(str(folder))
    assert [run.folder for run in penstock.list_runs()] == [folder]
