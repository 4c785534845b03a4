"""The page in a real browser: a fleet of 200, an action from the page, names that look like markup, who may not act."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.control.executors.simulated import SimulatedNodes
from penstock.control.pipeline_document import described
from penstock.service.bodies import SubmissionBody, submission_of
from penstock.service.pages.page_list import pages

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from controller import submit_at_once
from screenshots import browser_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from penstock.service.local import UpController

MARKUP = '<img src=x onerror="window.broken=1"> & <b>bold'
FLEET = 200

pytestmark = pytest.mark.skipif(
    browser_path() is None, reason="no Chromium here; install it (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def up(folder: Path) -> Iterator[UpController]:
    """200 pipelines on 300 slots: fewer than they want. All submitted in one step, as an earlier controller left them:
    one by one they would take a minute."""
    names = [MARKUP, *(f"p{number:03}" for number in range(FLEET - 1))]
    bodies = [SubmissionBody(name=name, pipeline="linear", target={"rate": 20}, load=20) for name in names]
    submissions = [submission_of(body, described) for body in bodies]
    submit_at_once(folder, submissions, SimulatedNodes(75, 4, price=0.4))
    found = penstock.up(simulated=True, nodes=75, slots=4, unit_slots=1, speed=2, price=0.4, folder=folder)
    with penstock.connect(folder=folder) as controller:
        deadline = time.monotonic() + 60
        while sum(row["state"] == "active" for row in controller.list()) < 100:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    yield found
    penstock.down(folder=folder)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver, driver.chromium.launch(executable_path=browser_path()) as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Whatever the browser complains of is a fault of the page."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    found = context.new_page()
    complaints: list[str] = []
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    yield found
    context.close()
    # the first answer is the login page, which browsers tell of as an error
    assert [text for text in complaints if "401" not in text] == []


def log_in(page: Page, folder: Path, *, read_only: bool = False) -> None:
    page.goto(penstock.dashboard(read_only=read_only, folder=folder))
    page.wait_for_selector("table.fleet tbody tr")
    assert "code" not in page.url


def test_200_pipelines_are_there_at_once(up: UpController, folder: Path, page: Page) -> None:
    log_in(page, folder)
    page.goto(up.url)
    page.wait_for_selector("table.fleet tbody tr")
    paints = json.loads(page.evaluate("JSON.stringify(performance.getEntriesByType('paint'))"))
    first = next(entry["startTime"] for entry in paints if entry["name"] == "first-contentful-paint")
    assert first < 1000
    assert page.locator("table.fleet tbody tr").count() == FLEET
    page.keyboard.press("/")
    page.keyboard.type("p01")
    page.wait_for_function("document.querySelectorAll('table.fleet tbody tr').length === 10")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".graph .operator")
    assert page.url.endswith("/pipeline?name=p010")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_selector(".slot")


def test_a_priority_from_the_page(up: UpController, folder: Path, page: Page) -> None:
    with penstock.connect(folder=folder) as controller:
        controller.target("p042", rate=120)
        deadline = time.monotonic() + 15
        while not any("target of 'p042' changed" in decision["why"] for decision in controller.decisions("p042")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        before = controller.show("p042")
    log_in(page, folder)
    page.goto(f"{up.url}/pipeline?name=p042")
    page.click("[data-act=priority]")
    page.fill("#ask-priority", "1")
    assert "p042 gets priority 1 instead of 2" in page.inner_text("dialog .confirm")
    page.click("dialog button[type=submit]")
    page.wait_for_selector("#toast.shown")
    # nobody points at the charts: their legends have the newest figures, not dashes
    page.wait_for_function(
        "[...document.querySelectorAll('.u-legend .u-value')].some(v => /^[0-9.]+ units$/.test(v.textContent))"
    )
    page.wait_for_selector(""".decision-grow .why:has-text("priority of 'p042' set to 1")""", timeout=15_000)
    with penstock.connect(folder=folder) as controller:
        after = controller.show("p042")
        asked = [event["why"] for event in controller.events("p042") if event["kind"] == "request"]
    assert (before["priority"], after["priority"]) == (2, 1)
    assert after["assigned"] > before["assigned"]
    assert "amend: priority 1; by" in asked[-1]


def test_a_name_is_never_markup(up: UpController, folder: Path, page: Page) -> None:
    log_in(page, folder)
    page.click(f"table.fleet a:text-is({json.dumps(MARKUP)})")
    page.wait_for_selector(".graph .operator")
    assert page.inner_text("h1") == MARKUP
    for known in pages():
        page.goto(up.url + known.path)
        page.wait_for_timeout(300)
    assert page.evaluate("window.broken") is None


def test_who_may_only_look_has_no_buttons(up: UpController, folder: Path, page: Page) -> None:
    log_in(page, folder, read_only=True)
    assert "may only look" in page.inner_text("#who")
    page.goto(f"{up.url}/pipeline?name=p001")
    page.wait_for_selector(".graph .operator")
    assert page.locator("[data-act]:not([disabled])").count() == 0
    page.goto(f"{up.url}/what-if?pipeline=p001&rate=60&seconds=60")
    page.wait_for_selector(".charts .uplot", timeout=30_000)
    assert "Everybody's share" in page.inner_text("main")


def test_a_phone_needs_no_sideways_scrolling(up: UpController, folder: Path, browser: Browser) -> None:
    with penstock.connect(folder=folder) as controller:
        controller.trigger("p001", "arrival-rate", above=120)
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = context.new_page()
    log_in(page, folder)
    for known in pages():
        page.goto(up.url + known.path + known.example.format(pipeline="p001"))
        page.wait_for_timeout(400)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, known.path
    context.close()
