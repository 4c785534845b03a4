"""The page and its files."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from penstock.control.errors import NotFoundError
from penstock.errors import nearest
from penstock.service.pages.files import ASSET_HEADERS, PAGE_HEADERS, assets, page

PLACES = ("/", "/pipeline", "/cluster", "/decisions", "/what-if")
"""All are the same page; its script looks at the address."""


def page_routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    async def show() -> Response:
        return Response(page(), headers=PAGE_HEADERS, media_type="text/html; charset=utf-8")

    for place in PLACES:
        router.add_api_route(place, show, methods=["GET", "HEAD"])

    @router.get("/assets/{name}")
    async def asset(name: str, request: Request) -> Response:
        known = assets()
        if name not in known:
            raise NotFoundError(f"no file '{name}'; {nearest(name, known)}")
        file = known[name]
        headers = {**ASSET_HEADERS, "ETag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, headers=headers, media_type=file.media_type)

    return router
