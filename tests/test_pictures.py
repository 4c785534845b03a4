"""Pictures: files of the right kind appear, show what they should, and nothing appears when drawing is refused."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.cluster.file import parse_cluster
from penstock.modelling.library import reference_library
from penstock.modelling.model import Model, Point
from penstock.pictures.canvas import check_ending
from penstock.pictures.drawings import draw_models, draw_plan
from penstock.pictures.plan_page import Box, arrange

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.planning.plan import Plan

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def linear() -> Plan:
    return penstock.plan("linear", 100)


@pytest.fixture(scope="module")
def one_slot() -> Plan:
    return penstock.plan("linear", 5)


@pytest.fixture(scope="module")
def two_racks() -> Plan:
    nodes = [
        {"count": 2, "slots": 8, "rack": "east", "size": "D4"},
        {"count": 1, "slots": 2, "rack": "east", "size": "D2"},
        {"count": 3, "slots": 4, "rack": "west", "size": "D3"},
        {"count": 2, "slots": 1, "rack": "west"},
        {"name": "big-machine", "slots": 16, "rack": "west"},
    ]
    return penstock.plan("diamond", 250, cluster=parse_cluster({"nodes": nodes}, "x"))


def many_nodes(count: int) -> Plan:
    nodes = [{"count": count // 3, "slots": 8, "rack": rack} for rack in ("a", "b", "c")]
    return penstock.plan("linear", 100 * count, cluster=parse_cluster({"nodes": nodes}, "x"))


def png_size(path: Path) -> tuple[int, int]:
    """Pixels, from the header every PNG begins with."""
    head = path.read_bytes()[:24]
    assert head.startswith(PNG_SIGNATURE)
    width, height = struct.unpack(">II", head[16:24])
    return width, height


class TestPlans:
    def test_png(self, linear: Plan, tmp_path: Path) -> None:
        draw_plan(linear, tmp_path / "plan.png")
        width, height = png_size(tmp_path / "plan.png")
        assert width > 800
        assert height > 600
        assert (tmp_path / "plan.png").stat().st_size > 20_000

    def test_svg_says_what_is_planned(self, linear: Plan, tmp_path: Path) -> None:
        draw_plan(linear, tmp_path / "plan.svg")
        text = (tmp_path / "plan.svg").read_text(encoding="utf-8")
        for operator in linear.allocation.operators:
            assert f"{operator.name} \N{MULTIPLICATION SIGN}{operator.threads}<" in text
        for words in ("linear at 100 tuples/s", "7 of 8 slots used", "0.784 USD per hour", "80/s with shuffle", "p99"):
            assert words in text
        assert "B\N{MULTIPLICATION SIGN}50" in text
        assert "empty" in text

    def test_pdf_and_capital_ending(self, one_slot: Plan, tmp_path: Path) -> None:
        draw_plan(one_slot, tmp_path / "plan.PDF")
        assert (tmp_path / "plan.PDF").read_bytes().startswith(b"%PDF-")

    @pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
    def test_same_plan_same_file(self, one_slot: Plan, tmp_path: Path, ending: str) -> None:
        first, second = tmp_path / f"first.{ending}", tmp_path / f"second.{ending}"
        draw_plan(one_slot, first)
        draw_plan(one_slot, second)
        assert first.read_bytes() == second.read_bytes()

    def test_racks_and_nodes_of_many_sizes(self, two_racks: Plan, tmp_path: Path) -> None:
        draw_plan(two_racks, tmp_path / "plan.svg")
        text = (tmp_path / "plan.svg").read_text(encoding="utf-8")
        for words in ("rack east", "rack west", "big-machine", "n1 · D4", "price unknown"):
            assert words in text

    def test_more_operators_than_colours(self, tmp_path: Path) -> None:
        from penstock.pictures.plan_page import looks_of

        looks = looks_of([f"operator-{number}" for number in range(40)])
        assert len(set(looks.values())) == 40
        draw_plan(penstock.plan("app-grid", 100), tmp_path / "plan.svg")
        assert "sink" in (tmp_path / "plan.svg").read_text(encoding="utf-8")

    def test_parts_of_a_slot_add_up_to_its_predicted_load(self, linear: Plan) -> None:
        from penstock.pictures.plan_page import parts_by_slot

        for slot, parts in parts_by_slot(linear):
            load = linear.prediction.slots[slot]
            assert sum(part.cpu for part in parts) == pytest.approx(load.cpu)
            assert sum(part.memory for part in parts) == pytest.approx(load.memory)
            assert {part.operator: part.threads for part in parts} == linear.placement.by_slot()[slot]

    def test_short_of_the_target_is_red(self, linear: Plan, tmp_path: Path) -> None:
        from penstock.pictures.canvas import ALARM

        poor = penstock.plan("star", 100, allocator="lsa", placer="rsm")
        assert poor.prediction.slot_aware.rate < 100
        for name, plan in (("good", linear), ("poor", poor)):
            draw_plan(plan, tmp_path / f"{name}.svg")
        assert ALARM not in (tmp_path / "good.svg").read_text(encoding="utf-8")
        assert ALARM in (tmp_path / "poor.svg").read_text(encoding="utf-8")

    def test_three_hundred_nodes(self, tmp_path: Path) -> None:
        plan = many_nodes(300)
        draw_plan(plan, tmp_path / "plan.png")
        width, height = png_size(tmp_path / "plan.png")
        assert 1000 < width < 4000
        assert 1000 < height < 4000

    def test_a_dollar_in_a_name_is_a_dollar(self, tmp_path: Path) -> None:
        cluster = parse_cluster({"nodes": [{"name": "$a_b$", "slots": 8, "rack": "$r^2$"}]}, "x")
        draw_plan(penstock.plan("linear", 100, cluster=cluster), tmp_path / "plan.svg")
        text = (tmp_path / "plan.svg").read_text(encoding="utf-8")
        assert "$a_b$" in text
        assert "rack $r^2$" in text

    def test_what_turns_or_breaks_a_line_is_escaped(self, tmp_path: Path) -> None:
        name = "x\u202ey\x9b2J\N{CJK UNIFIED IDEOGRAPH-6C34}"
        cluster = parse_cluster({"nodes": [{"name": name, "slots": 8, "rack": f"r{name}"}]}, "x")
        draw_plan(penstock.plan("linear", 100, cluster=cluster), tmp_path / "plan.svg")
        text = (tmp_path / "plan.svg").read_text(encoding="utf-8")
        assert text.replace("\n", "").isprintable()
        assert "x\\u202ey\\x9b2J" in text

    def test_leaves_the_users_settings_alone(self, one_slot: Plan, tmp_path: Path) -> None:
        import matplotlib as mpl

        before = dict(mpl.rcParams)
        draw_plan(one_slot, tmp_path / "plan.png")
        assert dict(mpl.rcParams) == before


class TestLayout:
    def test_nothing_overlaps(self, two_racks: Plan) -> None:
        found = arrange(two_racks.cluster)
        assert not overlapping(found.nodes)
        assert not overlapping([cell for cells in found.cells for cell in cells])
        assert not overlapping(list(found.racks.values()))

    def test_everything_is_inside_what_holds_it(self, two_racks: Plan) -> None:
        found = arrange(two_racks.cluster)
        page = Box(0, 0, found.width, found.height)
        for node, box, cells in zip(two_racks.cluster.nodes, found.nodes, found.cells, strict=True):
            assert len(cells) == node.slots
            assert all(inside(cell, box) for cell in cells)
            assert inside(box, found.racks[node.rack])
        assert all(inside(rack, page) for rack in found.racks.values())

    @pytest.mark.parametrize("count", [1, 3, 40, 300, 1000])
    def test_pages_stay_of_a_size(self, count: int) -> None:
        found = arrange(parse_cluster({"nodes": [{"count": count, "slots": 8}]}, "x"))
        assert found.width * found.height < 230
        assert 0.5 < found.width / found.height < 4


def inside(inner: Box, outer: Box) -> bool:
    return (
        inner.x >= outer.x - 1e-6
        and inner.y >= outer.y - 1e-6
        and inner.x + inner.width <= outer.x + outer.width + 1e-6
        and inner.y + inner.height <= outer.y + outer.height + 1e-6
    )


def overlapping(boxes: Sequence[Box]) -> list[tuple[Box, Box]]:
    return [
        (a, b)
        for place, a in enumerate(boxes)
        for b in boxes[:place]
        if min(a.x + a.width, b.x + b.width) - max(a.x, b.x) > 1e-6
        and min(a.y + a.height, b.y + b.height) - max(a.y, b.y) > 1e-6
    ]


class TestModels:
    def test_reference_models(self, tmp_path: Path) -> None:
        models = list(reference_library().models.values())
        draw_models(models[:2], tmp_path / "models.png")
        assert png_size(tmp_path / "models.png")[0] > 800
        draw_models(models, tmp_path / "models.svg")
        text = (tmp_path / "models.svg").read_text(encoding="utf-8")
        for model in models:
            assert model.name in text
        assert "highest: 310/s with 1 thread<" in text
        assert "highest: 30/s with 50 threads<" in text

    def test_one_point_with_spreads(self, tmp_path: Path) -> None:
        point = Point(threads=4, rate=12345, rate_spread=900, cpu=1.2, cpu_spread=0.1, memory=0.3)
        draw_models([Model("one", (point,))], tmp_path / "models.svg")
        assert "highest: 12,345/s with 4 threads" in (tmp_path / "models.svg").read_text(encoding="utf-8")

    def test_no_models(self, tmp_path: Path) -> None:
        with pytest.raises(BadInputError, match="no models"):
            draw_models([], tmp_path / "models.png")


class TestRefusals:
    @pytest.mark.parametrize("name", ["plan.gif", "plan", "plan.svg.txt"])
    def test_unknown_ending(self, linear: Plan, tmp_path: Path, name: str) -> None:
        message = rf"{name}: cannot draw .* known: \.png, \.svg, \.pdf"
        with pytest.raises(BadInputError, match=message):
            draw_plan(linear, tmp_path / name)
        with pytest.raises(BadInputError, match=message):
            draw_models([], tmp_path / name)
        assert not list(tmp_path.iterdir())

    def test_without_matplotlib(self, linear: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(BadInputError) as caught:
            draw_plan(linear, tmp_path / "plan.png")
        assert str(caught.value) == "drawing needs matplotlib; install it with: pip install 'penstock[plot]'"
        with pytest.raises(BadInputError, match="drawing needs matplotlib"):
            check_ending(tmp_path / "plan.png")
        assert not list(tmp_path.iterdir())

    def test_a_folder_that_is_not_there(self, one_slot: Plan, tmp_path: Path) -> None:
        with pytest.raises(BadInputError, match="cannot be written"):
            draw_plan(one_slot, tmp_path / "missing" / "plan.png")

    def test_a_failed_drawing_leaves_the_old_file(
        self, linear: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from matplotlib.figure import Figure

        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        (tmp_path / "plan.png").write_bytes(b"old")
        monkeypatch.setattr(Figure, "savefig", fail)
        with pytest.raises(BadInputError, match="No space left"):
            draw_plan(linear, tmp_path / "plan.png")
        assert [path.name for path in tmp_path.iterdir()] == ["plan.png"]
        assert (tmp_path / "plan.png").read_bytes() == b"old"
