"""An attached application and its controller over real HTTP: registered, admitted, let go, away and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.api.applications import _link
from penstock.base.clock import Stopwatch, pause
from penstock.control.attached.advice import SizingGoal
from penstock.service.attached_link import ControllerLink
from penstock.service.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.control.attached.attachment import Admitted

REPORT = {"held": 0, "wanted": 3, "why": "900 rows/s arrive: 3 executors are needed", "serial": -1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("state")
    penstock.up(simulated=True, nodes=2, slots=2, unit_slots=1, folder=folder)
    yield folder
    penstock.down(folder=folder)


def linked(folder: Path, name: str, **more: Any) -> ControllerLink:
    with penstock.connect(folder=folder) as local:
        return ControllerLink(Client(local.url, local.token, 5.0), name, SizingGoal(**more), cores=1)


def admitted(link: ControllerLink, executors: int) -> Admitted:
    """Until that many are: the controller decides when it next looks."""
    waited = Stopwatch()
    while True:
        answer = link.report(REPORT)
        if answer is not None and answer.executors == executors:
            return answer
        assert waited.seconds() < 20, (answer, link.trouble)
        pause(0.1)


def test_registered_admitted_and_gone(folder: Path) -> None:
    link = linked(folder, "shop", maximum=2)
    answer = admitted(link, 2)
    assert len(answer.slots) == 2
    with penstock.connect(folder=folder) as controller:
        assert controller.show("shop")["engine"] == "attached"
        decision = controller.decisions("shop")[1]
        assert decision["why"] == REPORT["why"]
        assert decision["rejected"] == [{"alternative": "3, as it asks", "why": "its maximum is 2"}]
        link.close()
        assert controller.show("shop")["state"] in {"ending", "killed"}


def test_let_go_by_somebody_it_goes_on_alone(folder: Path) -> None:
    link = linked(folder, "other")
    admitted(link, 3)
    with penstock.connect(folder=folder) as controller:
        controller.kill("other")
    assert link.report(REPORT) is None
    assert link.let_go
    assert "was let go by the controller" in str(link.trouble)
    assert link.report(REPORT) is None, "and does not register again"
    link.close()


def test_a_controller_that_is_not_there_or_says_no(folder: Path) -> None:
    with penstock.connect(folder=folder) as local:
        wrong = ControllerLink(Client(local.url, "wrong", 5.0), "shop", SizingGoal(), cores=1)
        large = ControllerLink(Client(local.url, local.token, 5.0), "large", SizingGoal(minimum=50), cores=1)
    away = ControllerLink(Client("http://127.0.0.1:9", "x", 1.0), "shop", SizingGoal(), cores=1)
    for link, complaint in ((wrong, "Bearer"), (large, "50 is above the 4"), (away, "does not answer")):
        assert link.report(REPORT) is None
        assert complaint in str(link.trouble)
        link.close()


def test_the_controller_of_this_machine_needs_no_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(folder))
    link = _link("local", None, "near", SizingGoal(maximum=1), 1, 1)
    admitted(link, 1)
    with penstock.connect() as controller:
        assert controller.show("near")["priority"] == 1
    link.close()


def test_a_controller_needs_its_token() -> None:
    with pytest.raises(penstock.BadInputError, match="answers only to its token"):
        _link("http://127.0.0.1:9", None, "shop", SizingGoal(), 1, None)
