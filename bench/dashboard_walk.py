"""The page on real Spark: `./run bench dashboard_walk [FOLDER]`. On a cluster of two nodes with two slots each, watched
in a browser: two pipelines are submitted from the command line and appear, the priority of one is raised on the page
and its share grows, an application of plain PySpark attaches itself, a node is killed. A picture of each is taken.

Every step is waited for in the page itself, not asked of the controller.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.spark.clusters.local.guard import guarded
from penstock.spark.clusters.local.lifecycle import kill_worker

sys.path.insert(0, str(Path(__file__).parent))
from attach import EXAMPLES, ROWS, feed, window_count
from screenshots import WIDE, browser_path, logged_in, take

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS = 240
"""Two cores start a dozen Java processes."""


class Walk:
    def __init__(self, state: Path, pictures: Path) -> None:
        self.state, self.pictures = state, pictures
        self.seen: dict[str, float] = {}

    def command(self, *words: str) -> str:
        """As typed."""
        command = [sys.executable, "-P", "-m", "penstock", *words]
        environment = {**os.environ, "PENSTOCK_STATE": str(self.state)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        print("$ penstock", *words, "\n" + done.stdout, end="", flush=True)
        return done.stdout

    def await_text(self, page: Page, what: str, place: str, text: str) -> None:
        """Until the page says so, by itself."""
        began = time.monotonic()
        page.locator(place, has_text=text).first.wait_for(timeout=1000 * SECONDS)
        self.seen[what] = round(time.monotonic() - began, 1)
        print(f"{self.seen[what]:6.1f} s  {what}", flush=True)

    def live(self, page: Page, url: str) -> None:
        for name in ("orders", "audit"):
            self.command("submit", name, "word-count", "--desired", "3", "--minimum", "1", "--load", "20")
        self.await_text(page, "a row appears", "table.fleet tbody tr", "audit")
        self.await_text(page, "it is active", "table.fleet tbody tr:has-text('audit')", "active")
        page.goto(f"{url}/pipeline?name=audit")
        self.await_text(page, "its share", ".tile:has-text('Held')", "2 / ")
        page.wait_for_selector(".charts .uplot", timeout=1000 * SECONDS)
        page.click("[data-act=priority]")
        page.fill("#ask-priority", "1")
        page.click("dialog button[type=submit]")
        self.await_text(page, "its share grows", ".tile:has-text('Held')", "3 / ")
        self.await_text(page, "the decision is explained", ".decision-grow .why", "priority of 'audit' set to 1")
        self.await_text(page, "the chart is marked", ".changes .mark", "grow 2 → 3")
        # a window of the charts lasts ten seconds
        page.wait_for_timeout(21_000)
        take(page, self.pictures, "spark-priority")
        self.command("kill", "orders")
        with _application(self.state) as made:
            page.goto(f"{url}/")
            self.await_text(page, "the attached application appears", "table.fleet tbody tr", "shop")
            page.goto(f"{url}/pipeline?name=shop")
            self.await_text(page, "its advice", "section:has(h2:text-is('Advice')) .why", "Limited by")
            page.wait_for_timeout(15_000)
            take(page, self.pictures, "spark-attached")
            self.seen["files fed to it"] = made[0]
            page.goto(f"{url}/cluster")
            page.wait_for_selector(".slot")
            take(page, self.pictures, "spark-cluster", whole=False)
            kill_worker("n2", self.state)
            self.await_text(page, "the node is lost", ".node", "lost")
            take(page, self.pictures, "spark-node-killed", whole=False)
        page.goto(f"{url}/")
        began = time.monotonic()
        page.locator("table.fleet tbody tr", has_text="shop").wait_for(state="detached", timeout=60_000)
        self.seen["the application that left is gone"] = round(time.monotonic() - began, 1)
        self.command("decisions", "--pipeline", "audit")
        self.command("decisions", "--pipeline", "shop")


class _application:  # noqa: N801 - used as a function
    """examples/attached/window_count.py on the controller's own cluster, in a process of its own, with input."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._stop = threading.Event()

    def __enter__(self) -> list[int]:
        folder = self._state / "shop"
        (folder / "in").mkdir(parents=True)
        made = [0]
        self._feeder = threading.Thread(target=feed, args=(folder / "in", 0.3, self._stop, made))
        self._feeder.start()
        command = [sys.executable, str(Path(__file__)), "--application", str(self._state)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        return made

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._feeder.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)


def application(state: Path) -> None:
    """Until its standard input ends."""
    from penstock.spark.clusters.local.lifecycle import find_cluster  # noqa: PLC0415 - Spark loads when used
    from penstock.spark.session.cluster import start_fused_session  # noqa: PLC0415 - Spark loads when used
    from penstock.spark.session.embedded import end_session  # noqa: PLC0415 - Spark loads when used

    folder, cluster = state / "shop", find_cluster(state)
    settings = {**penstock.attachable_settings(by_controller=True), "spark.sql.shuffle.partitions": "2"}
    settings["spark.executor.memory"] = "512m"
    session = start_fused_session(
        cluster.master_url, folder / "java.log", "shop", settings, secret=cluster.secret(), scratch=folder / "scratch"
    )
    session.sparkContext.addPyFile(str(EXAMPLES / "window_count.py"))
    with penstock.connect(folder=state) as local:
        url, token = local.url, local.token
    attachment = penstock.attach(
        session, name="shop", target={"latency_ms": 10_000}, maximum=2, controller=url, token=token
    )
    query = window_count.start(session, str(folder / "in"), str(folder / "out"), str(folder / "checkpoint"))
    sys.stdin.read()
    query.stop()
    for sized in attachment.decisions:
        print(f"shop: {sized.before} -> {sized.to}: {sized.why}", flush=True)
    attachment.detach()
    end_session(session)


DOWN = "import penstock; penstock.down('{}')"
"""For when this process is killed."""


def walk(pictures: Path) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - in the development group only

    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, guarded([sys.executable, "-P", "-c", DOWN.format(folder)]):
        state = Path(folder)
        up = penstock.up(nodes=2, slots=2, unit_slots=1, folder=state)
        walked = Walk(state, pictures)
        try:
            with sync_playwright() as driver, driver.chromium.launch(executable_path=browser_path()) as browser:
                link = penstock.dashboard(folder=state)
                page = logged_in(browser, link, WIDE, "light", empty=True)
                walked.live(page, up.url)
        finally:
            penstock.down(folder=state)
    return {**walked.seen, "rows of a file": ROWS}


def main() -> int:
    if "--application" in sys.argv:
        application(Path(sys.argv[-1]))
        return 0
    if browser_path() is None:
        print("no Chromium found; install it (Debian: apt-get install chromium)", file=sys.stderr)
        return 2
    print(json.dumps(walk(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures/dashboard")), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
