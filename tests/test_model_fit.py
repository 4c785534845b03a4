"""Models that were measured on something else: who says so, and when nobody does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.api import models as measuring
from penstock.base.errors import BadInputError
from penstock.cli.main import run
from penstock.dataflow.logic import Logic, Per
from penstock.engines.fused.preparation import prepare
from penstock.inputs.finders import find_pipeline
from penstock.modelling.fingerprint import fingerprint
from penstock.modelling.library import (
    ModelLibrary,
    described,
    disturbed,
    fits,
    misfits,
    models_document,
    other_selectivity,
    reference_library,
)
from penstock.modelling.machine import this_machine
from penstock.modelling.model import MeasuredOn, Model, Point, Rehearsal, RehearsedBatches
from penstock.profiling.profiler import Profile, own_point, profile_settings, progress_of
from penstock.report.listener import Listener
from penstock.runs.config import RunConfig

LAPTOP = MeasuredOn(cpu="Laptop CPU", cores=8, spark="4.3.0")
SERVER = MeasuredOn(cpu="Server CPU", cores=64, spark="4.3.0")
EXAMPLES = Path(__file__).parents[1] / "examples"


def measured(name: str, on: MeasuredOn, *rates: float) -> Model:
    points = [Point(threads=2**n, rate=rate, cpu=0.5, memory=0.01) for n, rate in enumerate(rates or (100.0,))]
    return Model(name, tuple(points), on)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (LAPTOP, LAPTOP, True),
        (LAPTOP, SERVER, False),
        (LAPTOP, LAPTOP.model_copy(update={"cores": 4}), False),
        (LAPTOP, LAPTOP.model_copy(update={"spark": "4.4.0"}), False),
        # dates, and what is not known, do not tell
        (LAPTOP, LAPTOP.model_copy(update={"date": "2001-01-01", "what": "x"}), True),
        (LAPTOP, MeasuredOn(cpu="Laptop CPU"), True),
        (LAPTOP, MeasuredOn(), True),
    ],
)
def test_fits(one: MeasuredOn, other: MeasuredOn, expected: bool) -> None:
    assert fits(one, other) is expected
    assert fits(other, one) is expected


def test_models_of_one_machine_need_no_warning() -> None:
    assert misfits([]) == []
    assert misfits(reference_library()) == []
    assert misfits([measured("a", LAPTOP), measured("b", LAPTOP), measured("c", MeasuredOn(what="a table"))]) == []


def test_a_mixture_is_named_once() -> None:
    (warning,) = misfits([measured("a", LAPTOP), measured("b", SERVER), measured("c", LAPTOP)])
    assert "a, c on Laptop CPU, 8 cores, Spark 4.3.0; b on Server CPU, 64 cores" in warning


def test_models_of_another_machine_than_this() -> None:
    assert misfits([measured("a", LAPTOP)], here=LAPTOP) == []
    assert misfits([measured("a", MeasuredOn())], here=LAPTOP) == []
    (warning,) = misfits([measured("a", SERVER), measured("b", LAPTOP), measured("c", SERVER)], here=LAPTOP)
    assert warning.startswith("models a, c were measured on Server CPU, 64 cores, Spark 4.3.0, this is Laptop CPU")
    assert len(misfits(reference_library(), here=LAPTOP)) == 1


def test_models_measured_on_a_busy_machine() -> None:
    quiet, busy = LAPTOP.model_copy(update={"others_cpu": 0.05}), LAPTOP.model_copy(update={"others_cpu": 0.6})
    assert disturbed([measured("a", LAPTOP), measured("b", quiet)]) == []
    (warning,) = disturbed([measured("a", quiet), measured("b", busy), measured("c", LAPTOP)])
    assert warning.startswith("others used up to 60 % of the machine while b was measured")


def test_what_is_not_known_is_left_out_of_a_description() -> None:
    assert described(MeasuredOn(cpu="X", spark="4")) == "X, Spark 4"
    assert described(MeasuredOn()) == "an unknown machine"


def mixed_library() -> ModelLibrary:
    """One of the models `linear` uses is our own."""
    return reference_library().updated_with(ModelLibrary.of([measured("pi", LAPTOP)]))


def test_a_plan_warns_of_a_mixture_and_of_nothing_else() -> None:
    assert penstock.plan("linear", 100).warnings == ()
    warnings = [text for text in penstock.plan("linear", 50, models=mixed_library()).warnings if "mixed" in text]
    assert len(warnings) == 1
    assert "pi on Laptop CPU" in warnings[0]
    # only models the pipeline uses are looked at
    unused = reference_library().updated_with(ModelLibrary.of([measured("of another pipeline", LAPTOP)]))
    assert penstock.plan("linear", 100, models=unused).warnings == ()


@pytest.fixture
def doubted(tmp_path: Path) -> tuple[Path, Path]:
    """A pipeline, and the model of its operator: of other code, still rising, and others were at work."""
    (tmp_path / "doubted_code.py").write_text("def work(row): return row\n", encoding="utf-8")
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text(
        "name: p\n"
        "operators: {s: {kind: source}, o: {run: 'doubted_code:work'}, end: {kind: sink}}\n"
        "streams: [{from: s, to: o}, {from: o, to: end}]\n",
        encoding="utf-8",
    )
    on = SERVER.model_copy(update={"code": "0123456789abcdef", "still_rising": True, "others_cpu": 0.4})
    return pipeline, written(tmp_path, measured("p/o", on))


DOUBTS = ("its rate still rose at 1 threads", "others used up to 40 % of the machine", "operator 'o': its code changed")


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--rate", 10),
        ("plan", "--rate", 10, "--compare", "--allocator", "mba", "--placer", "sam"),
        ("capacity", "--cluster", EXAMPLES / "cluster.yaml", "--allocator", "mba", "--placer", "sam"),
    ],
)
def test_every_verb_that_plans_says_what_to_doubt(
    words: tuple[object, ...], doubted: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline, models = doubted
    verb, *options = map(str, words)
    assert run([verb, str(pipeline), *options, "--models", str(models), "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert [sum(doubt in warning for warning in warnings) for doubt in DOUBTS] == [1, 1, 1]
    assert run([verb, str(pipeline), *options, "--models", str(models)]) == 0
    assert capsys.readouterr().out.count("warning  ") == 3


def test_a_fused_run_says_what_to_doubt(doubted: tuple[Path, Path]) -> None:
    pipeline, models = doubted
    notes = prepare(pipeline, RunConfig(rate=10, slots=1, models=str(models))).notes
    assert [sum(doubt in note for note in notes) for doubt in DOUBTS] == [1, 1, 1]
    elsewhere = "model p/o was measured on Server CPU"
    assert [note for note in notes if elsewhere in note]
    # slots of a cluster are not on this machine
    away = prepare(pipeline, RunConfig(rate=10, slots=1, models=str(models), master="yarn")).notes
    assert not [note for note in away if elsewhere in note]


def test_code_given_in_python_is_known_again_in_a_plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "coded_pipeline.py").write_text(
        "import penstock\n"
        "p = penstock.pipeline('p').source('s')\n"
        "@p.operator(reads='s', per='pandas', schema='n long')\n"
        "def o(frame): return frame\n"
        "p.sink('end', reads='o')\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    built = find_pipeline("coded_pipeline:p")

    def notes(code: str | None) -> list[str]:
        library = ModelLibrary.of([measured("p/o", MeasuredOn(code=code))])
        penstock.write_plan(penstock.plan(built, 10, models=library), tmp_path / "plan.json")
        return [note for note in prepare(tmp_path / "plan.json", RunConfig(slots=1)).notes if "code" in note]

    # a file names the code, which is fingerprinted otherwise
    assert notes(fingerprint(built.operators["o"])) == []
    assert len(notes("0123456789abcdef")) == 1


def written(folder: Path, *models: Model) -> Path:
    path = folder / "models.json"
    path.write_text(json.dumps(models_document(models)), encoding="utf-8")
    return path


PIPELINE = """
name: p
operators: {s: {kind: source}, first: {model: pi}, o: {kind: sink}}
streams: [{from: s, to: first}, {from: first, to: o}]
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE, encoding="utf-8")
    return path


@pytest.mark.parametrize("on", [SERVER, MeasuredOn(what="imported from a table")])
def test_a_profile_is_not_continued_elsewhere(tmp_path: Path, pipeline: Path, on: MeasuredOn) -> None:
    path = written(tmp_path, measured("pi", on))
    before = path.read_text("utf-8")
    with pytest.raises(BadInputError, match=r"'pi' was measured on .*, this is .*; write to another file.*fresh="):
        measuring.profile(pipeline, path)
    assert path.read_text("utf-8") == before


# 1, 2 and 4 threads with the same rate: doubling has stopped and no gap is worth a look
@pytest.mark.parametrize("operator", [None, "first", "pi"])
def test_nothing_is_started_where_nothing_is_left_to_measure(
    tmp_path: Path, pipeline: Path, operator: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "")
    small, large = (RehearsedBatches(tuples=n, seconds=n / 100, cpu_seconds=n / 100) for n in (10, 60))
    whole = Rehearsal(pipeline="p", slots=1, threads={"first": 1}, small=small, large=large)
    here = this_machine().model_copy(update={"batch_seconds": 1.0, "rehearsals": (whole,)})
    model = measured("pi", here, 100, 100)
    path = written(tmp_path, model)
    assert measuring.profile(pipeline, path, operators=[operator] if operator else None) == [model]
    # a quick profile has nothing to add to a thorough one; but a thorough one does not take a quick one's word
    assert measuring.profile(pipeline, path, quick=True) == [model]
    written(tmp_path, replace(model, measured_on=here.model_copy(update={"batch_seconds": 0.5})))
    with pytest.raises(BadInputError, match="Java"):
        measuring.profile(pipeline, path)
    with pytest.raises(BadInputError, match="Java"):
        measuring.profile(pipeline, path, fresh=True)
    # one that never ran as a whole does
    written(tmp_path, replace(model, measured_on=here.model_copy(update={"rehearsals": ()})))
    with pytest.raises(BadInputError, match="Java"):
        measuring.profile(pipeline, path)
    # nor one for granted that others disturbed
    restless = tuple(point.model_copy(update={"others_cpu": 0.3}) for point in model.points)
    written(tmp_path, replace(model, points=restless))
    with pytest.raises(BadInputError, match="Java"):
        measuring.profile(pipeline, path)


def test_what_is_sparks_own_is_measured_again_where_others_disturbed_it(tmp_path: Path) -> None:
    own = Logic(lambda frame: frame, Per.DATAFRAME)

    def pending(others: float) -> bool:
        model = Model("p/own", (own_point(1000.0, 0.9, others, 900.0),))
        session = Profile(tmp_path / "m.json", profile_settings(), MeasuredOn(), {"p/own": model}, [], Listener())
        return bool(session.pending({"p/own": own}))

    assert pending(0.3)
    assert not pending(0.02)


@pytest.mark.parametrize(
    ("declared", "seen", "samples", "differs"),
    [
        (1.0, 0.5, 256, True),
        (0.5, 0.5, 256, False),
        (1.0, 0.7, 256, False),  # not one and a half times
        (1.0, 0.5, 20, False),  # too few to say
        (0.008, 0.004, 256, False),  # one of 256 where two were to be expected
        (0.008, 0.1, 256, True),
        (0.1, 0.0, 256, True),
        (0.0, 0.0, 256, False),
        (1.0, 9.0, 256, True),
    ],
)
def test_an_operator_that_lets_through_something_else_than_it_says(
    declared: float, seen: float, samples: int, differs: bool
) -> None:
    built = penstock.pipeline("p").source("in").then("check", cpu=10, memory_mb=10, threads=1)
    built = built.then("next", reads="check", selectivity=declared, cpu=10, memory_mb=10, threads=1)
    built = built.then("other", reads="check", selectivity=declared, cpu=10, memory_mb=10, threads=1)
    pipeline = built.sink("out", reads=["next", "other"]).build()
    model = measured("check", MeasuredOn(selectivity=seen, samples=samples))
    warnings = other_selectivity(pipeline, {"in": None, "check": model, "next": measured("next", MeasuredOn())})
    assert len(warnings) == differs
    if differs:
        assert warnings[0].startswith(f"operator 'check' sent {seen:.3g} tuples for each of 256 samples")
        assert f"what it sends to 'next', 'other' is planned with {declared:g}: " in warnings[0]
        assert warnings[0].endswith(f"declare selectivity={seen:.3g} there" if seen else "what comes through")


def test_what_samples_do_not_tell_is_not_compared() -> None:
    """What leaves whatever arrives, or by who sent it."""
    built = penstock.pipeline("p").source("in").then("check").then("next", selectivity=0, constant=4).sink("out")
    models = {"check": measured("check", MeasuredOn(selectivity=0.25, samples=256))}
    assert not other_selectivity(built.build(), models)
    by_sender = penstock.pipeline("p").source("in").then("check").then("next", selectivities={"in": 0.5}).sink("out")
    assert not other_selectivity(by_sender.build(), models)


def test_an_unknown_operator(tmp_path: Path, pipeline: Path) -> None:
    with pytest.raises(BadInputError, match="unknown operator or model 'frist'; did you mean 'first'"):
        measuring.profile(pipeline, tmp_path / "m.json", operators=["frist"])


def test_settings() -> None:
    assert profile_settings().batch_seconds == 1.0
    quick = profile_settings(quick=True, trial_seconds=3)
    assert (quick.trial_seconds, quick.batch_seconds, quick.growth) == (3, 0.5, 4)
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(BadInputError, match="budget: expected a number above 0"):
            profile_settings(budget_seconds=wrong)


def test_progress_goes_by_the_time_that_may_be_spent() -> None:
    # 1 of 4 operators done, 15 of 60 s of the second: (1 + 0.25) / 4; at most 45 + 2 * 60 s left
    progress = progress_of("b", done=1, of=4, spent_seconds=15, budget_seconds=60)
    assert (progress.part, progress.seconds_left) == (0.3125, 165)
    # over its budget it stands still and does not run ahead
    assert progress_of("b", done=1, of=4, spent_seconds=90, budget_seconds=60).part == 0.5
    assert progress_of("b", done=4, of=4, spent_seconds=0, budget_seconds=60).part == 1


def test_this_machine_says_where(tmp_path: Path) -> None:
    here = this_machine()
    assert here.cpu
    assert here.cores
    assert here.date is None
