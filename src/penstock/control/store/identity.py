"""The id of a store: what belongs to its pipelines elsewhere, as the folders of their drivers, carries it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from sqlalchemy import insert, select

from penstock.control.store.schema import meta

if TYPE_CHECKING:
    from sqlalchemy import Connection

_KEY = "store"


def store_id(connection: Connection) -> str:
    """Random, made when it is first asked for; a store that was moved keeps it."""
    known = connection.execute(select(meta.c.value).where(meta.c.key == _KEY)).scalar_one_or_none()
    if known is None:
        known = secrets.token_hex(16)
        connection.execute(insert(meta).values(key=_KEY, value=known))
    return str(known)
