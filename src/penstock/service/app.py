"""The controller over HTTP. Reading answers from the last state that was written and waits for nobody; what changes
something waits its turn. Bodies are read strictly: a wrong field is a 400 that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from penstock import __version__
from penstock.base.errors import PenstockError
from penstock.service.http import Doors, Guard, failed, hung_up, make_threads, not_here, refused
from penstock.service.pages.site import login_page, login_routes, page_routes
from penstock.service.routes.cluster import cluster_routes, health_routes
from penstock.service.routes.history import Watching, history_routes
from penstock.service.routes.pipelines import attached_routes, pipeline_routes, trigger_routes
from penstock.service.routes.views import view_routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.controller import Controller
    from penstock.control.executors.attached_applications import WithAttached


def make_app(
    controller: Controller,
    doors: Doors,
    described: Callable[[Any], dict[str, Any]],
    log_of: Callable[[str], str] = lambda _: "",
    *,
    attached: WithAttached,
    loads_change: bool = True,
) -> Guard:
    """`described` turns what names a pipeline into its document; `log_of` gives the output of a pipeline's driver;
    `loads_change`: whether a pipeline may be given another load while it lives; `attached`: whom applications that
    register themselves talk to."""
    # the pages that FastAPI makes of its schema load scripts from another host
    app = FastAPI(
        title="Penstock", version=__version__, description="Many pipelines, one cluster.", docs_url=None, redoc_url=None
    )
    app.state.threads = make_threads()
    watching = Watching(controller, doors.sessions)
    app.add_exception_handler(PenstockError, refused)
    app.add_exception_handler(ClientDisconnect, hung_up)
    app.add_exception_handler(Exception, failed)
    app.add_exception_handler(HTTPException, not_here)
    app.include_router(pipeline_routes(controller, described, log_of, loads_change=loads_change))
    app.include_router(trigger_routes(controller))
    app.include_router(cluster_routes(controller))
    app.include_router(history_routes(controller, watching))
    app.include_router(view_routes(controller, attached))
    app.include_router(attached_routes(controller, attached))
    app.include_router(login_routes(doors, watching))
    app.include_router(health_routes(controller))
    app.include_router(page_routes())
    return Guard(app, doors, login_page())
