"""Word counts: that of 003, which parses JSON first, and TOP_N of 004, which ranks words per window."""

from __future__ import annotations

from typing import Any

from penstock.dataflow.logic import Logic, Per
from penstock.workloads.applications.messages import sentence
from penstock.workloads.applications.windows import count_per_window, rank_all, rank_some
from penstock.workloads.incoming import message_of


def _parse(row: dict[str, Any]) -> dict[str, Any]:
    message = message_of(row, sentence)
    return {"ts": float(message["ts"]), "text": str(message["text"])}


def _split(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"ts": row["ts"], "word": word} for word in row["text"].split()]


parse = Logic(_parse, schema="ts double, text string")
split = Logic(_split, schema="ts double, word string")
count = Logic(count_per_window("word"), Per.DATAFRAME)
rank = Logic(rank_some("word"), Per.DATAFRAME)
rank_total = Logic(rank_all("word"), Per.DATAFRAME)
