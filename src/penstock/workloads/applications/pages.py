"""PageLoad and Processing of 001 (Fig 11): events of an advertising platform on their way to reports."""

from __future__ import annotations

from typing import Any

from penstock.dataflow.logic import Logic
from penstock.workloads.applications.messages import CAMPAIGNS, PAGES, page_event
from penstock.workloads.incoming import message_of

CAMPAIGN_OF_PAGE = {f"page{number}": f"campaign{number * 7 % CAMPAIGNS}" for number in range(PAGES)}
PAID_CAMPAIGNS = frozenset(f"campaign{number}" for number in range(0, CAMPAIGNS, 2))
KIND_OF_PRICE = {"view": 0.1, "click": 1.0, "load": 0.05, "purchase": 5.0}
SLOW_MILLIS = 1000


def _transform(row: dict[str, Any]) -> dict[str, Any]:
    event = message_of(row, page_event)
    return {
        "id": int(event["id"]),
        "page": str(event["page"]),
        "kind": str(event["kind"]),
        "agent": str(event["agent"]),
        "millis": int(event["millis"]),
        "cents": int(event["cents"]),
    }


def _people_only(row: dict[str, Any]) -> dict[str, Any] | None:
    return None if row["agent"] == "crawler" else row


def _join_campaign(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "campaign": CAMPAIGN_OF_PAGE[row["page"]]}


def _paid_only(row: dict[str, Any]) -> dict[str, Any] | None:
    return row if row["campaign"] in PAID_CAMPAIGNS else None


def _join_price(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "kind": row["kind"], "price": row["cents"] * KIND_OF_PRICE[row["kind"]] / 100}


def _join_speed(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "page": row["page"], "slow": row["millis"] > SLOW_MILLIS, "millis": row["millis"]}


def _normalise(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "page": row["page"].removeprefix("page"),
        "seconds": row["millis"] / 1000,
        "slow": row["slow"],
    }


_EVENT = "id bigint, page string, kind string, agent string, millis int, cents int"
transform = Logic(_transform, schema=_EVENT)
people_only = Logic(_people_only, schema=_EVENT)
join_campaign = Logic(_join_campaign, schema=f"{_EVENT}, campaign string")
paid_only = Logic(_paid_only, schema=f"{_EVENT}, campaign string")
join_price = Logic(_join_price, schema="id bigint, kind string, price double")
join_speed = Logic(_join_speed, schema="id bigint, page string, slow boolean, millis int")
normalise = Logic(_normalise, schema="id bigint, page string, seconds double, slow boolean")
