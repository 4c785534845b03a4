"""What another package adds through entry points works like what is built in: examples/extension, one toy of a kind."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from service_builders import serve

import penstock
from penstock.base.errors import BadInputError
from penstock.cli import vocabulary
from penstock.cli.main import run
from penstock.connectors.topic_address import parse_topic
from penstock.control.contracts import ProviderSetting
from penstock.control.core.priorities import described, evaluated
from penstock.control.core.records import Trigger
from penstock.control.core.trigger_kinds import find_kind
from penstock.control.node_providers import ObservedProvider
from penstock.control.registry import FORECASTS, NODE_PROVIDERS, ROUND_PLANNERS, TRIGGER_KINDS
from penstock.dataflow.formats import CONNECTORS, Format, find_format
from penstock.dataflow.pipeline import Kind, Operator
from penstock.engines.fused.sinks.writers import make_writer
from penstock.planning.registry import ALLOCATORS, PLACERS, SEGMENTERS, SHARERS
from penstock.service.bodies import TriggerBody, trigger_of
from penstock.service.pages import page_list, site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.base.registry import Registry

ROOT = Path(__file__).parents[2]
TOYS = ROOT / "examples" / "extension"
REGISTRIES: tuple[Registry[Any], ...] = (
    *(ALLOCATORS, PLACERS, SEGMENTERS, SHARERS, FORECASTS, ROUND_PLANNERS),
    *(TRIGGER_KINDS, NODE_PROVIDERS, CONNECTORS, page_list.PAGES),
)


def forget() -> None:
    """Look for entry points again."""
    for registry in REGISTRIES:
        registry.__dict__.pop("_addresses", None)
    for cached in (find_format, find_kind, page_list.pages, site.assets, site.page, vocabulary._plugins):
        cached.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toys, registered as an installed package is, here and in processes that are started."""
    registered = tmp_path / "installed" / "toys-1.dist-info"
    registered.mkdir(parents=True)
    (registered / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1\n")
    declared = tomllib.loads((TOYS / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    sections = [f"[{group}]\n" + "\n".join(f"{n} = {v}" for n, v in names.items()) for group, names in declared.items()]
    (registered / "entry_points.txt").write_text("\n".join(sections))
    paths = [str(registered.parent), str(TOYS)]
    for path in paths:
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    forget()
    yield
    forget()


@pytest.mark.usefixtures("installed")
class TestToys:
    def test_an_allocator_plans(self) -> None:
        """Half as much again is allocated for: at 100/s as many threads as linear scaling has at 150/s."""

        def threads(allocator: str, rate: float) -> dict[str, int]:
            planned = penstock.plan("linear", rate, allocator=allocator).document()["operators"]
            return {name: planned[name]["threads"] for name in "ABCDE" if name in planned}

        assert threads("spare:part=0.5", 100) == threads("lsa", 150) != threads("lsa", 100)

    def test_a_format_writes_and_knows_its_limits(self, tmp_path: Path) -> None:
        sink = Operator(name="out", kind=Kind.SINK, format="lines", options={"path": str(tmp_path / "out")})
        session: Any = None  # this writer needs none
        writer = make_writer(session, sink, "run")
        writer.prepare()

        class Frame:
            def toJSON(self) -> Frame:  # noqa: N802 - Spark's name
                return self

            def collect(self) -> list[str]:
                return ['{"n": 1}', '{"n": 2}']

        frame: Any = Frame()
        for _ in range(2):
            writer.write(frame, 7)
        assert [(file.name, file.read_text()) for file in (tmp_path / "out").iterdir()] == [
            ("000000007.jsonl", '{"n": 1}\n{"n": 2}')
        ]
        with pytest.raises(ValueError, match="source 'in': format 'lines' can only be written"):
            Operator(name="in", kind=Kind.SOURCE, format="lines")
        with pytest.raises(BadInputError, match="sink 'out': format lines needs options: path"):
            make_writer(session, Operator(name="out", kind=Kind.SINK, format="lines"), "run")

    def test_a_log_has_topics(self, tmp_path: Path) -> None:
        address, topic = parse_topic(f"shelf:{tmp_path}/orders")
        log = address.open()
        log.create(topic, 1)
        producer = log.producer()
        producer.send(topic, [b"1", b"2"])
        producer.flush()
        assert log.spans(topic)[0].messages == 2
        with pytest.raises(BadInputError, match="expected kafka:HOST:PORT or log:FOLDER or shelf:FOLDER"):
            parse_topic("shelf:/orders")

    def test_a_kind_of_trigger_switches(self) -> None:
        """On below a share of 0.2; off when more than 1 - 0.75 * 0.8 = 0.4 is used."""
        trigger = trigger_of(TriggerBody(kind="idle:share=0.2", for_seconds=0))
        assert described(trigger) == "trigger 0: less than 20 % busy"
        switched = []
        for now, busy in enumerate((0.3, 0.19, 0.4, 0.41)):
            trigger = evaluated(trigger, {"busy": busy}, {}, float(now))
            switched.append(trigger.on)
        assert switched == [False, True, True, False]
        with pytest.raises(BadInputError, match="unknown option 'part'"):
            described(Trigger(0, "idle:part=1"))

    def test_a_provider_gives_nodes(self, tmp_path: Path) -> None:
        provider = ObservedProvider(NODE_PROVIDERS.load("drawer").make("2", ProviderSetting(tmp_path)), ())
        (node,) = provider.acquire(1, None)
        provider.look()
        assert [(seen.node.name, seen.node.slots) for seen in provider.observe(0.0)] == [(node.name, 2)]  # type: ignore[union-attr]
        with pytest.raises(BadInputError, match="expected drawer:SLOTS, found 'two'"):
            penstock.up(simulated=True, provider="drawer:two", folder=tmp_path)

    def test_a_page_has_a_place_in_the_menu_a_script_and_data(self, tmp_path: Path) -> None:
        served = serve(tmp_path)
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "desired": 2}, 201)
        try:
            assert '<a href="/names">Names</a>' in served.http.get("/names").text
            assert served.http.get("/assets/names.js").text == (TOYS / "names.js").read_text("utf-8")
            assert served.call("GET", "/v1/views/names")["names"] == ["a"]
            assert {page["path"] for page in served.call("GET", "/v1/views/start")["pages"]} > {"/", "/names"}
        finally:
            served.close()

    def test_a_command_runs(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["dev", "hello", "world"]) == 0
        assert capsys.readouterr().out == "hello world\n"

    @pytest.mark.parametrize(
        ("words", "name"),
        [
            ("plan", "spare"),
            ("trigger add", "idle"),
            ("up", "drawer"),
            ("produce", "shelf:FOLDER/TOPIC"),
            ("dev", "hello"),
        ],
    )
    def test_help_lists_it(self, words: str, name: str) -> None:
        command = [sys.executable, "-m", "penstock", *words.split(), "--help"]
        shown = subprocess.run(
            command, capture_output=True, check=True, text=True, env={**os.environ, "COLUMNS": "300"}
        )
        assert name in shown.stdout


def test_names_of_others_must_be_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_list, "BUILT_IN", (*page_list.BUILT_IN, page_list.BUILT_IN[0]))
    page_list.pages.cache_clear()
    with pytest.raises(BadInputError, match="page '/': path '/' belongs to another page"):
        page_list.pages()
    monkeypatch.undo()
    page_list.pages.cache_clear()
    assert find_format("parquet") != Format(name="parquet")
