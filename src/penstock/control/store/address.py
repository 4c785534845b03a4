"""The address of a store: which database, and how it is shown to people without its password."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from penstock.errors import BadInputError
from penstock.files import read_text

SECRET_PARAMETERS = ("password", "passwd", "pwd", "secret", "token", "sslkey")
"""Query parameters whose name contains one of these are not shown."""

HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    url: URL

    @classmethod
    def of(cls, text: str) -> StoreAddress:
        try:
            url = make_url(text)
            backend = url.get_backend_name()
        except (SQLAlchemyError, ValueError) as error:
            # the text itself is not repeated: it may hold a password
            raise BadInputError(
                "store '...': not the URL of a database; expected sqlite:///FILE or postgresql+psycopg://..."
            ) from error
        address = cls(url)
        if backend not in {"sqlite", "postgresql"}:
            raise BadInputError(f"store '{address}': expected sqlite:///FILE or postgresql+psycopg://...")
        if backend == "sqlite" and (not url.database or url.database.startswith((":", "file:")) or url.query):
            raise BadInputError(f"store '{address}': expected a plain path, as in sqlite:///FILE")
        return address

    def __str__(self) -> str:
        """The URL without passwords."""
        query = {name: HIDDEN if _is_secret(name) else value for name, value in self.url.query.items()}
        return self.url.set(query=query).render_as_string(hide_password=True).replace("%2A%2A%2A", HIDDEN)

    def __repr__(self) -> str:
        return f"StoreAddress({self})"

    @property
    def path(self) -> Path | None:
        """File of a SQLite store."""
        return Path(self.url.database or "") if self.url.get_backend_name() == "sqlite" else None

    @property
    def secrets(self) -> tuple[str, ...]:
        values = [self.url.password, *(value for name, value in self.url.query.items() if _is_secret(name))]
        flat = [part for value in values for part in ((value,) if isinstance(value, str) else value or ())]
        return tuple(part for part in flat if part)

    def without_secrets(self, text: str) -> str:
        """Remove every password of this address from an error message."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return text


def _is_secret(parameter: str) -> bool:
    return any(word in parameter.lower() for word in SECRET_PARAMETERS)


def url_from_options(store: str | None, store_file: Path | None, remedy: str) -> str | None:
    """Return the URL given by `--store` or `--store-file`.

    A password on the command line is rejected: every local user can read it in the list of processes.
    """
    if store is not None and store_file is not None:
        raise BadInputError("--store and --store-file: give either")
    if store_file is not None:
        return _url_in_file(store_file)
    if store is not None and StoreAddress.of(store).secrets:
        raise BadInputError(
            "--store: a password on the command line can be read by every local user; write the URL into a file that "
            f"only you can read and give --store-file FILE, or {remedy}"
        )
    return store


def _url_in_file(path: Path) -> str:
    text = read_text(path).strip()
    if StoreAddress.of(text).secrets and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise BadInputError(f"--store-file: {path} holds a password and others can read it; run chmod 600 {path}")
    return text
