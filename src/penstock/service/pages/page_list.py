"""The pages of the dashboard: one declaration each, from which routes, the menu, keys, screenshots and tests derive.

A page is a script that draws and a view that answers with a document. A package adds one through an entry point of the
group `penstock.pages` that names a `Page`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError
from penstock.base.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import Request

    from penstock.service.routes.views import ViewContext

    View = Callable[[ViewContext, Request], Awaitable[dict[str, Any]]]


ASSETS = Path(__file__).parent / "assets"
_VIEWS = "penstock.service.routes.views"


@dataclass(frozen=True, kw_only=True)
class Page:
    path: str
    title: str
    """Its name in the menu; empty if the menu does not list it."""
    script: str
    """A module of JavaScript whose `view(start, frame)` returns {title, root, refresh}."""
    view: str
    """`module:function` of an async function (ViewContext, Request) that returns a document; it only reads."""
    folder: Path = ASSETS
    """Where the script is."""
    key: str = ""
    """The key after g that opens it."""
    menu: str = ""
    """The page that the menu marks instead of this one."""
    example: str = ""
    """A query under which it shows something; `{pipeline}` stands for the name of a pipeline."""
    ready: str = "main h1"
    """A CSS selector of something that is there when it is drawn."""

    @property
    def data(self) -> str:
        """The name of its view, below /v1/views."""
        return self.path.strip("/") or "fleet"


BUILT_IN = (
    Page(path="/", title="Fleet", script="fleet.js", view=f"{_VIEWS}:show_fleet", key="f", ready="table.fleet"),
    Page(
        path="/pipeline", title="", script="pipeline.js", view=f"{_VIEWS}:show_pipeline", menu="/",
        example="?name={pipeline}", ready=".uplot",
    ),
    Page(path="/cluster", title="Cluster", script="cluster.js", view=f"{_VIEWS}:show_cluster", key="c", ready=".slot"),
    Page(
        path="/decisions", title="Decisions", script="decisions.js", view=f"{_VIEWS}:show_decisions", key="d",
        ready=".decision",
    ),
    Page(
        path="/what-if", title="What-if", script="what-if.js", view=f"{_VIEWS}:show_what_if", key="w",
        example="?pipeline={pipeline}&rate=160&priority=1", ready=".charts .uplot",
    ),
)  # fmt: skip

PAGES: Registry[Page] = Registry(kind="page", group="penstock.pages", built_in={})


@cache
def pages() -> tuple[Page, ...]:
    """Return all pages, those of other packages last. No two have a path, script or key in common."""
    declared = (*BUILT_IN, *(PAGES.load(name) for name in PAGES.names()))
    for what in ("path", "script", "key"):
        taken: set[str] = set()
        for page in declared:
            value = getattr(page, what)
            if value and value in taken:
                raise BadInputError(f"page '{page.path}': {what} '{value}' belongs to another page")
            taken.add(value)
    return declared


def menu() -> str:
    """Return the links of the menu as HTML."""
    links = [f'<a href="{page.path}">{page.title}</a>' for page in pages() if page.title]
    return "\n    ".join(links)


def preloads() -> str:
    """Return the elements that make a browser fetch the scripts of all pages early."""
    return "\n".join(f'<link rel="modulepreload" href="/assets/{page.script}">' for page in pages())
