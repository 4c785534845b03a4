"""Sample data for the queries beside this file: `python make_data.py` writes it into data/ of the current folder."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

USERS = ("ada", "ben", "cy", "dee", "eve")
START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def orders(count: int = 600) -> list[dict[str, Any]]:
    """One order a second; every tenth comes twice, and most of them from one user."""
    dice = np.random.default_rng(7)
    users = dice.choice(USERS, size=count, p=[0.6, 0.1, 0.1, 0.1, 0.1])
    amounts = dice.integers(1, 1000, size=count)
    made: list[dict[str, Any]] = [
        {
            "order": number,
            "user": str(users[number]),
            "amount": float(amounts[number]),
            "ts": (START + timedelta(seconds=number)).isoformat(),
        }
        for number in range(count)
    ]
    return [order for order in made for _ in range(2 if order["order"] % 10 == 0 else 1)]


def payments(count: int = 600) -> list[dict[str, Any]]:
    """For every third order, five seconds later."""
    return [
        {"order": number, "paid": (START + timedelta(seconds=number + 5)).isoformat()} for number in range(0, count, 3)
    ]


def lines() -> list[str]:
    """JSON as it comes from elsewhere: some of it is none."""
    good = [json.dumps({"user": order["user"], "amount": order["amount"]}) for order in orders(300)]
    return ["{broken" if number % 100 == 99 else line for number, line in enumerate(good)]


def write(folder: Path) -> None:
    for name, rows in (("orders", orders()), ("payments", payments())):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for part in range(3):
            text = "".join(json.dumps(row) + "\n" for row in rows[part::3])
            (folder / name / f"part-{part}.json").write_text(text)
    (folder / "lines").mkdir(exist_ok=True)
    (folder / "lines" / "lines.txt").write_text("".join(line + "\n" for line in lines()))
    (folder / "table").mkdir(exist_ok=True)
    with (folder / "table" / "orders.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["order", "user", "amount", "ts"])
        writer.writeheader()
        writer.writerows(orders())
    (folder / "users").mkdir(exist_ok=True)
    known = [{"user": user, "country": "NL" if number % 2 else "DE"} for number, user in enumerate(USERS[:-1])]
    (folder / "users" / "users.json").write_text("".join(json.dumps(user) + "\n" for user in known))


if __name__ == "__main__":
    write(Path("data"))
