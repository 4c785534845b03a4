"""What a request to the controller can be refused with, beside input that is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.errors import BadInputError, PenstockError


class NotFoundError(PenstockError):
    """No pipeline, trigger or node of that name."""


class ConflictError(PenstockError):
    """Exists already, or is not possible in this state."""


class FieldError(BadInputError):
    """Input that is wrong in one field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


REPAIR = "`penstock controller repair` keeps what can be read"


class StoreError(PenstockError):
    """The store is full, locked or gone. Nothing was written, unless it is an `UnknownOutcomeError`."""


class UnknownOutcomeError(StoreError):
    """The database failed while it committed: the step may have been written, or not. See `Store.was_written`."""

    def __init__(self, message: str, step: str = "") -> None:
        super().__init__(f"{message} (it is not known whether the step was written)" if step else message)
        self.step = step
        """Id of the step."""


class DamagedStoreError(StoreError):
    """A table or row of the store cannot be read."""


class UnstorableError(BadInputError):
    """A value that could not be read again if it were stored. Nothing was written."""


@dataclass(frozen=True, slots=True)
class StoreFault:
    """One thing of a store that cannot be read."""

    table: str
    row: str
    """Its key; empty if the whole table is meant."""
    reason: str

    def __str__(self) -> str:
        row = f", row {self.row}" if self.row else ""
        return f"table '{self.table}'{row}: {self.reason}"

    def document(self) -> dict[str, str]:
        return {"table": self.table, "row": self.row, "reason": self.reason}
