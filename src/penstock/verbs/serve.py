"""`penstock serve`: the controller in this process, until it is ended; for containers and service managers."""

from __future__ import annotations

import secrets
from pathlib import Path

from penstock.errors import BadInputError
from penstock.files import read_text, write_text
from penstock.sharing.registry import DEFAULT_SHARER, SHARERS
from penstock.verbs.up import check_sizes


def serve(
    *,
    nodes: int = 2,
    slots: int = 1,
    unit_slots: int | None = None,
    policy: str = DEFAULT_SHARER,
    store: str | None = None,
    take_over: bool = False,
    host: str = "127.0.0.1",
    port: int = 8080,
    speed: float = 1.0,
    price: float | None = None,
    answer_to: tuple[str, ...] = (),
    token_folder: str | Path | None = None,
    folder: str | Path | None = None,
) -> None:
    """Answers until SIGTERM or Ctrl-C. Pipelines are simulated. `answer_to` are names by which others reach it, beside
    `host`. `token_folder` has files `token`, `read-token` and `attach-token`; without, tokens are made as by `up`."""
    SHARERS.create(policy)
    unit = slots if unit_slots is None else unit_slots
    check_sizes(nodes, slots, unit, speed, port, simulated=True)
    from penstock.service.server import serve as serve_folder  # noqa: PLC0415 - needs the extra `control`
    from penstock.service.settings import (  # noqa: PLC0415
        SETTINGS,
        TOKENS,
        ServiceSettings,
        controller_folder,
        write_spec,
    )
    from penstock.spark.standalone.state import state_folder  # noqa: PLC0415

    own = controller_folder(state_folder(folder))
    for name in TOKENS:
        write_text(own / name, _token(token_folder, name) + "\n")
    settings = ServiceSettings(
        host=host,
        port=port,
        store=store or "",
        take_over=take_over,
        policy=policy,
        simulated=True,
        nodes=nodes,
        slots=slots,
        unit_slots=unit,
        speed=float(speed),
        price=None if price is None else float(price),
        answer_to=answer_to,
    )
    write_spec(own / SETTINGS, settings)
    serve_folder(own)


def _token(folder: str | Path | None, name: str) -> str:
    if folder is None:
        return secrets.token_urlsafe(32)
    file = Path(folder) / name
    if not file.exists():
        raise BadInputError(
            f"{file}: no such token; make one with at least 16 letters, as `openssl rand -hex 32` prints"
        )
    token = read_text(file).strip()
    if len(token) < 16:
        raise BadInputError(f"{file}: a token has at least 16 letters")
    return token
