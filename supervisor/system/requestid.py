"""Know which request is being answered, wherever its work is done: in its task, in tasks that it begins, in threads.

Tasks inherit what they know from the one that begins them. Some live longer than the request, an engine's above all;
so a request's id is forgotten everywhere at once when the request is over.
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar


class Answering:
    """A request that is being answered. `id`: None once it is over."""

    __slots__ = ("id",)

    def __init__(self, request_id: str) -> None:
        self.id: str | None = request_id

    def over(self) -> None:
        """Forget the id, also where it was inherited."""
        self.id = None


_ANSWERING: ContextVar[Answering | None] = ContextVar("answering", default=None)


def answering(request_id: str) -> Answering:
    """Note that the present task answers this request from now on."""
    found = Answering(request_id)
    _ANSWERING.set(found)
    return found


def current_id() -> str | None:
    """Return the id of the request that is being answered here; None where none is."""
    found = _ANSWERING.get()
    return None if found is None else found.id


def new_id() -> str:
    """Return the id of a request whose client gave none."""
    return f"req_{secrets.token_hex(12)}"
