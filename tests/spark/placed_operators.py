"""Code of the pipelines that tests run on a cluster: workers import it from here."""

from __future__ import annotations

from typing import Any


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def not_a_thousand(row: dict[str, Any]) -> dict[str, Any]:
    if row["value"] % 1000 == 999:
        raise ValueError(f"{row['value']} is not liked")
    return row


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, {**row, "copy": True}]
