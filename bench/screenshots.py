"""Pictures of every page of the dashboard, on a simulated fleet, in a real browser: `./run screenshots [FOLDER]`.

A browser is looked for where Debian's `chromium` is; PENSTOCK_BROWSER names another.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.service.pages.page_list import pages
from penstock.spark.clusters.local.guard import guarded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

WIDE: ViewportSize = {"width": 1400, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
PIPELINES = ("linear", "diamond", "star", "app-traffic", "app-finance", "app-grid")
TEAMS = ("orders", "clicks", "billing", "fraud", "search", "sensors", "audit", "mail")


def browser_path() -> str | None:
    named = os.environ.get("PENSTOCK_BROWSER")
    return named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def submit_fleet(controller: penstock.types.Client, count: int) -> None:
    """Pipelines of several kinds, loads and priorities; a few want more than they will get."""
    for number in range(count):
        name = f"{TEAMS[number % len(TEAMS)]}-{number // len(TEAMS) + 1}"
        rate = 20.0 + 15 * (number % 5)
        load = f"steps:240x{rate:g},120x{1.3 * rate:g},240x{0.6 * rate:g}" if number % 3 == 1 else rate
        controller.submit(
            name, PIPELINES[number % len(PIPELINES)], rate=rate, latency_ms=2000, priority=1 + number % 3, load=load
        )


def logged_in(browser: Browser, link: str, size: ViewportSize, theme: str, *, empty: bool = False) -> Page:
    """With the fleet before it, which may be empty yet."""
    context = browser.new_context(viewport=size, color_scheme=theme)  # type: ignore[arg-type] # light or dark
    page = context.new_page()
    page.goto(link)
    page.wait_for_selector("#who:not(:empty)" if empty else "table.fleet tbody tr")
    return page


def take(page: Page, folder: Path, name: str, *, whole: bool = True) -> None:
    page.wait_for_timeout(600)
    page.screenshot(path=folder / f"{name}.png", full_page=whole)
    print(folder / f"{name}.png", flush=True)


def shoot(browser: Browser, folder: Path, url: str, link: Any) -> None:
    for theme, size, suffix in (("light", WIDE, ""), ("dark", WIDE, "-dark"), ("light", PHONE, "-phone")):
        page = logged_in(browser, link(), size, theme)
        take(page, folder, f"fleet{suffix}", whole=False)
        page.goto(f"{url}/pipeline?name=orders-1")
        page.wait_for_selector(".uplot")
        take(page, folder, f"pipeline{suffix}", whole=suffix != "-phone")
        if not suffix:
            shoot_others(page, folder, url)
        page.context.close()
    page = browser.new_context(viewport=WIDE).new_page()
    page.goto(url)
    take(page, folder, "login", whole=False)


def shoot_others(page: Page, folder: Path, url: str) -> None:
    page.click("[data-act=priority]")
    page.fill("#ask-priority", "3")
    take(page, folder, "action", whole=False)
    for known in pages():
        if known.path not in {"/", "/pipeline"}:
            page.goto(url + known.path + known.example.format(pipeline="orders-1"))
            page.wait_for_selector(known.ready, timeout=60_000)
            take(page, folder, known.data, whole=False)


def main() -> int:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - in the development group only

    path = browser_path()
    if path is None:
        print(
            "no Chromium found; install it (Debian: apt-get install chromium) or set PENSTOCK_BROWSER", file=sys.stderr
        )
        return 2
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures/dashboard")
    folder.mkdir(parents=True, exist_ok=True)
    afterwards = "import penstock; penstock.down({!r})"
    with tempfile.TemporaryDirectory() as state, guarded([sys.executable, "-P", "-c", afterwards.format(state)]):
        up = penstock.up(simulated=True, nodes=24, slots=4, unit_slots=1, speed=20, price=0.392, folder=state)
        try:
            with penstock.connect(folder=state) as controller:
                submit_fleet(controller, 24)
                time.sleep(20)
                controller.priority("orders-1", 1)
                controller.target("orders-1", rate=90, latency_ms=2000)
                controller.load("orders-1", 90)
                controller.trigger("orders-1", "arrival-rate", above=120)
                time.sleep(12)
            with sync_playwright() as driver, driver.chromium.launch(executable_path=path) as browser:
                shoot(browser, folder, up.url, lambda: penstock.dashboard(folder=state))
        finally:
            penstock.down(folder=state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
