"""Options of a run: one declaration from which keywords, JSON and checks are derived."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.base import former_names
from penstock.base.errors import BadInputError
from penstock.base.former_names import FormerNameWarning, former_keywords
from penstock.cli.vocabulary import former_run_flags, with_present_flags
from penstock.control.executors.driver_files import DriverJob
from penstock.dataflow.load import Load
from penstock.report.report import MAX_DEAD_LETTER_RATIO
from penstock.runs.config import ENGINES, FUSED, PLACED, Appears, RunConfig, default_warm_up, options
from penstock.runs.description import RunDescription, parse_description


@pytest.fixture(autouse=True)
def _no_name_was_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_names, "_reported", set())


def test_every_option_has_one_name_a_help_text_and_an_engine() -> None:
    names = [name for one in options() for name in (one.key, *one.former)]
    assert len(names) == len(set(names))
    for one in options():
        assert one.help.endswith("."), one.key
        assert set(one.engines) <= set(ENGINES), one.key
        assert one.engines, one.key


VALUES: tuple[tuple[str, Any, Any], ...] = (
    ("slots", 3, 3),
    ("seconds", 20, 20.0),
    ("folder", Path("a/b"), "a/b"),
    ("packages", ["x:y:1"], ("x:y:1",)),
    ("settings", {"spark.a": 1, "spark.b": True}, {"spark.a": "1", "spark.b": "true"}),
    ("settings", ["spark.a=1", "spark.b=c=d"], {"spark.a": "1", "spark.b": "c=d"}),
    ("max_dead_letter_ratio", 1, 1.0),
    ("batch_interval_ms", None, 100),
)


@pytest.mark.parametrize(("key", "given", "kept"), VALUES)
def test_a_value_is_kept_in_one_form(key: str, given: Any, kept: Any) -> None:
    assert getattr(RunConfig(**{key: given}), key) == kept


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"slots": 0}, "slots=: expected at least 1, found 0"),
    ({"slots": True}, "slots=: expected a whole number, found True"),
    ({"slots": 1.5}, "slots=: expected a whole number, found 1.5"),
    ({"seconds": "20"}, "seconds=: expected a number, found '20'"),
    ({"seconds": float("nan")}, "seconds=: expected at least 0 s, found nan"),
    ({"seconds": 3, "warm_up": 3}, "seconds=: expected more than the warm-up of 3, found 3"),
    ({"max_dead_letter_ratio": 2}, "max_dead_letter_ratio=: expected 0 to 1, found 2"),
    ({"engine": "fuse"}, "engine=: unknown engine 'fuse'; did you mean 'fused'? known: auto, fused, placed, simulated"),
    ({"packages": "x:y:1"}, "packages=: expected a list of texts, found 'x:y:1'"),
    ({"settings": ["spark.a"]}, "settings=: expected KEY=VALUE, found 'spark.a'"),
    ({"master": "local", "session": object()}, "master= and session=: keep one; a session has its master"),
    ({"executor_memory_mb": 2048}, "executor_memory_mb=: only on a cluster; embedded Spark, and a session, have"),
    ({"master": "yarn", "executor_memory_mb": 100}, "executor_memory_mb=: expected at least 512 MB, found 100"),
    ({"low": 1.0}, "low= and high= mean something only with find_max="),
    ({"find_max": True, "rate": 5}, "find_max= searches for the rate itself; leave out rate="),
    ({"find_max": True, "low": -1}, "low=: expected a rate above 0, found -1"),
    ({"find_max": True, "low": 9, "high": 9}, "low=: expected less than high=, found 9 and 9"),
)


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_a_wrong_value_is_one_line_that_names_the_option(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError) as raised:
        RunConfig.of_keywords(given)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_an_unknown_keyword_is_a_type_error_as_everywhere_in_python() -> None:
    with pytest.raises(TypeError, match=r"unknown option 'slot='; did you mean 'slots'"):
        RunConfig.of_keywords({"slot": 3})


@pytest.mark.parametrize(
    ("former", "key", "value"), [("interval_ms", "batch_interval_ms", 50), ("most_dead", "max_dead_letter_ratio", 0.5)]
)
def test_a_former_name_works_and_warns_once(
    former: str, key: str, value: float, recwarn: pytest.WarningsRecorder
) -> None:
    for _ in range(2):
        assert getattr(RunConfig.of_keywords({former: value}), key) == value
    assert [str(one.message) for one in recwarn] == [f"{former}= is now {key}="]
    assert RunConfig.of_json({former: value}, "run.json") == RunConfig.of_keywords({key: value})


@pytest.mark.parametrize("order", [1, -1])
def test_a_former_and_the_present_name_together_are_refused(order: int) -> None:
    both = [("interval_ms", 50), ("batch_interval_ms", 50)][::order]
    first, second = (key for key, _ in both)
    message = f"{first}= and {second}=: two names of one option; keep batch_interval_ms="
    with pytest.raises(BadInputError, match=message):
        RunConfig.of_keywords(dict(both))


def test_former_keywords_of_a_function() -> None:
    @former_keywords(load="utilisation")
    def plan(rate: float, utilisation: float = 1.0) -> float:
        return rate / utilisation

    with pytest.warns(FormerNameWarning, match="load= is now utilisation="):
        assert plan(80, load=0.8) == 100  # type: ignore[call-arg]
    with pytest.raises(BadInputError, match=r"^utilisation= and load=: two names of one option; keep utilisation="):
        plan(80, utilisation=1.0, load=0.8)  # type: ignore[call-arg]


ENGINE_ERRORS = (
    (PLACED, {"until_end": True}, "until_end=: not an option of engine 'placed'; leave it out, or use engine='fused'"),
    (PLACED, {"slots": 2}, "slots=: not an option of engine 'placed'; leave it out, or use engine='fused'"),
    (FUSED, {"routing": "shuffle"}, "routing=: not an option of engine 'fused'; leave it out, or use engine='placed'"),
)


@pytest.mark.parametrize(("engine", "given", "message"), ENGINE_ERRORS)
def test_an_option_of_another_engine(engine: str, given: dict[str, Any], message: str) -> None:
    config = RunConfig(**given)
    with pytest.raises(BadInputError) as raised:
        config.for_engine(engine)
    assert str(raised.value).startswith(message)
    assert RunConfig().for_engine(engine).engine == engine


FULL: dict[str, dict[str, Any]] = {
    FUSED: {
        "rate": Load.on_off(10, 2, 3),
        "slots": 4,
        "until_end": True,
        "batch_interval_ms": 7,
        "audit": False,
        "dead_letters": "s3://dead",
        "packages": ("a:b:1",),
        "settings": {"spark.a": "1"},
        "checkpoint": "/c",
        "master": "yarn",
    },
    PLACED: {"rate": "steps:1x2", "routing": "slot-aware", "segmenter": "ccr:delta=1", "at_least_once": True},
}


@pytest.mark.parametrize("engine", FULL)
def test_what_is_kept_is_read_back_as_it_was(engine: str) -> None:
    config = RunConfig(engine=engine, **FULL[engine])
    document = json.loads(json.dumps(config.to_json()))
    assert RunConfig.of_json(document, "run.json") == config
    has = {one.key for one in options(Appears.FILE) if engine in one.engines}
    assert set(document) <= has
    assert set(FULL[engine]) <= set(document)


def test_secrets_and_moments_of_one_start_are_not_kept() -> None:
    given = {"secret_file": "s", "settings": {"spark.x.password": "hunter2", "spark.y": "1"}}
    config = RunConfig.of_keywords({"seconds": 30, "folder": "f", **given})
    document = config.to_json()
    assert document["settings"] == {"spark.y": "1"}
    assert not {"seconds", "folder", "secret_file"} & set(document)


WRONG_JSON: tuple[tuple[Any, str], ...] = (
    ([], "run.json: expected a mapping of run options, found list"),
    ({"slotz": 1}, "run.json: unknown run option 'slotz'; did you mean 'slots'?"),
    ({"seconds": 1}, "run.json: unknown run option 'seconds'"),
    ({"slots": "1"}, "run.json: slots: expected a whole number, found '1'"),
)


@pytest.mark.parametrize(("document", "message"), WRONG_JSON)
def test_a_wrong_document(document: Any, message: str) -> None:
    with pytest.raises(BadInputError) as raised:
        RunConfig.of_json(document, "run.json")
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(("seconds", "warm_up"), [(None, 5), (60, 5), (20, 5), (10, 2.5), (1, 0.25)])
def test_one_rule_for_the_warm_up(seconds: float | None, warm_up: float) -> None:
    """The arithmetic: min(5, seconds / 4)."""
    assert default_warm_up(seconds) == warm_up
    assert RunConfig(seconds=seconds).warm_up_seconds == warm_up


def test_trials_of_a_search_last_twenty_seconds_unless_given() -> None:
    assert RunConfig(find_max=True).run_seconds == 20
    assert RunConfig(find_max=True, seconds=8).run_seconds == 8


OF_0_1 = Path(__file__).parent / "formats_0_1"
"""As the description of a run and the job of a driver were written before options had one declaration."""


def test_a_fused_run_folder_of_0_1_is_read(recwarn: pytest.WarningsRecorder) -> None:
    known = parse_description(json.loads((OF_0_1 / "run-fused.json").read_text()), "run.json")
    assert known.config == RunConfig(
        engine=FUSED,
        rate=Load.constant(50),
        slots=2,
        batch_interval_ms=250,
        checkpoint="/data/run/checkpoint",
        master="cluster",
        executor_memory_mb=1024,
        packages=("a:b:1",),
        settings={"spark.x": "1"},
        audit=True,
        dead_letters="/data/dead",
        max_dead_letter_ratio=0.2,
    )
    assert (known.slots, known.threads["pi"], known.most_rows, known.given) == (2, 1, 200, "linear")
    # the user wrote none of the former names
    assert not recwarn.list


def test_a_placed_run_folder_of_0_1_is_read() -> None:
    known = parse_description(json.loads((OF_0_1 / "run-placed.json").read_text()), "run.json")
    assert known.config == RunConfig(
        engine=PLACED,
        rate=Load.on_off(50, 5, 2),
        master="spark://127.0.0.1:7077",
        routing="slot-aware",
        segmenter="ccr",
        dead_letters="/data/dead",
        at_least_once=True,
        tls="/data/run.pem",
        settings={"spark.jars.packages": "a:b:1"},
    )
    assert known.began == 1764590400.0


def test_a_drivers_job_of_0_1_is_read_and_written_with_its_options_together() -> None:
    job = DriverJob.model_validate_json((OF_0_1 / "job.json").read_text())
    config = RunConfig(engine=PLACED, rate="10", batch_interval_ms=250, settings={"spark.x": "1"})
    assert (job.config, job.rate, job.incarnation, job.fence) == (config, 20.0, 3, 7)
    written = json.loads(job.model_dump_json())
    assert "load" not in written
    assert DriverJob.model_validate(written).config.rate == "10"


def test_a_description_is_read_as_it_was_written() -> None:
    config = RunConfig(engine=PLACED, rate=Load.constant(5), segmenter="ccr")
    described = RunDescription(run="r", pipeline="p", config=config, began=7.0)
    assert parse_description(json.loads(described.model_dump_json()), "run.json") == described


NOT_READABLE: tuple[tuple[Any, str], ...] = (
    (
        {"format": 9, "run": "r", "config": {"engine": "fused"}},
        "run.json: a run of a newer Penstock (format 9, this one knows up to 3); update Penstock, or start the run in "
        "another folder",
    ),
    ({"version": 5, "run": "r"}, "run.json: a run of a newer Penstock (format 5, this one knows up to 3); update"),
    ({"run": "r", "pipeline": "p"}, "run.json: a run of another version of Penstock (0.1); this one cannot resume it"),
    ([], "run.json: expected the description of a run, found list"),
    (
        {"format": 3, "run": "r", "pipeline": "p", "config": {"slotz": 1}},
        "run.json: config: unknown run option 'slotz'; did you mean 'slots'?",
    ),
)


@pytest.mark.parametrize(("document", "message"), NOT_READABLE)
def test_a_description_that_cannot_be_read(document: Any, message: str) -> None:
    with pytest.raises(BadInputError) as raised:
        parse_description(document, "run.json")
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_generated_files_are_up_to_date() -> None:
    command = [sys.executable, str(Path(__file__).parent.parent / "tools" / "write_options.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_same_default_for_dead_letters_in_reports() -> None:
    assert RunConfig().max_dead_letter_ratio == MAX_DEAD_LETTER_RATIO


FORMER_FLAGS = (
    (["run", "p", "--placed"], ["run", "p", "--engine=placed"]),
    (["run", "--interval-ms", "50", "p"], ["run", "--batch-interval-ms", "50", "p"]),
    (["run", "--most-dead=0.5", "p"], ["run", "--max-dead-letter-ratio=0.5", "p"]),
    (["run", "p", "--", "--placed"], ["run", "p", "--", "--placed"]),
)


@pytest.mark.parametrize(("typed", "meant"), FORMER_FLAGS)
@pytest.mark.filterwarnings("ignore::penstock.base.former_names.FormerNameWarning")
def test_former_flags_stand_for_present_ones(typed: list[str], meant: list[str]) -> None:
    assert list(with_present_flags(typed, former_run_flags())) == meant


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--interval-ms", "5", "--batch-interval-ms", "5"], "--interval-ms and --batch-interval-ms: two names of one"),
        (["--placed", "--engine", "fused"], "--placed and --engine: two names of one option; keep --engine"),
    ],
)
def test_a_former_flag_and_the_present_one_together_are_refused(typed: list[str], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        list(with_present_flags(typed, former_run_flags()))


def test_the_declarations_load_neither_pydantic_nor_numpy() -> None:
    code = (
        "import sys; from penstock.runs.config import options; options(); "
        "print(sorted({'pydantic', 'numpy', 'pyspark', 'pyarrow'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
