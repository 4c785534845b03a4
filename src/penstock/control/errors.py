"""What a request to the controller can be refused with, beside input that is wrong."""

from __future__ import annotations

from penstock.errors import BadInputError, PenstockError


class NotFoundError(PenstockError):
    """No pipeline, trigger or node of that name."""


class ConflictError(PenstockError):
    """Exists already, or is not possible in this state."""


class FieldError(BadInputError):
    """Input that is wrong in one field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
