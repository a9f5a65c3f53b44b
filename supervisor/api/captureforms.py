"""What `/api/v1/captures` answers, for the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CaptureRow:
    """A captured request; `at`: seconds since 1970.

    Attributes:
        path: the row of the table of paths. size_bytes: about what it takes in the ring.
        request_left_out, answer_left_out: `files`, `media`, `texts` (their ends), `end`.
        replayable: nothing is left out of the request.
    """

    id: int
    at: float
    request_id: str
    path: str
    model: str | None
    key: str | None
    client: str
    stream: bool
    status: int
    code: str | None
    seconds: float
    prompt_tokens: int | None
    completion_tokens: int | None
    finish: str | None
    size_bytes: int
    request_left_out: Sequence[str]
    answer_left_out: Sequence[str]
    replayable: bool


@dataclass(frozen=True)
class CaptureShown(CaptureRow):
    """The same with its texts: JSON, or a text where an end is left out; null where there was no answer."""

    headers: Mapping[str, str]
    request: Any
    answer: Any


@dataclass(frozen=True)
class CapturePage:
    """Some captured requests; `on`: more are captured now. `next`: for `before`, null on the last page."""

    on: bool
    captures: Sequence[CaptureRow]
    next: int | None


@dataclass(frozen=True)
class CapturesDeleted:
    """How many captured requests are deleted."""

    deleted: int
