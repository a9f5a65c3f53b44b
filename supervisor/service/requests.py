"""The requests in flight, as they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from supervisor.pool.inflight import Inflight, InflightRequest


@dataclass(frozen=True)
class RequestStatus:
    """One request.

    Attributes:
        id: its number. engine: the number of the one that answers; None: it waits. since: seconds since 1970.
        request_id: the one in the head of its response, which its client may have chosen.
        prompt_tokens, completion_tokens, tokens_per_second: what has come of its answer (`SoFar`); they change all the
            time, and make no other status of it.
    """

    id: int
    model: str
    engine: int | None
    path: str
    since: float
    state: str
    stream: bool
    request_id: str
    prompt_tokens: int = field(compare=False)
    completion_tokens: int = field(compare=False)
    tokens_per_second: float = field(compare=False)

    def to_json(self) -> dict[str, Any]:
        """For programs (docs/rest.md)."""
        return asdict(self)


class Requests:
    """All of them. `to_epoch`: pool clock → seconds since 1970. `sees`: whether a model's are among them."""

    def __init__(
        self,
        inflight: Inflight,
        to_epoch: Callable[[float], float],
        sees: Callable[[str], bool] = lambda model: True,
    ) -> None:
        self._inflight = inflight
        self._to_epoch = to_epoch
        self._sees = sees

    def limited(self, sees: Callable[[str], bool]) -> Requests:
        """Return those for models that are seen."""
        return Requests(self._inflight, self._to_epoch, sees)

    def all(self) -> list[RequestStatus]:
        """The oldest first."""
        return [self._of(one) for one in self._inflight if self._sees(one.model)]

    def cancel(self, name: str) -> RequestStatus:
        """End one, by number or id; return it as it was. Raises RequestNotFound."""
        return self._of(self._inflight.cancel(name))

    def cancel_answer(self, answer: str) -> RequestStatus:
        """End the one whose answer has this id; it as it was. Raises RequestNotFound, for one not seen, too."""
        return self._of(self._inflight.cancel_answer(answer, self._sees))

    def _of(self, one: InflightRequest) -> RequestStatus:
        state = "fetching" if one.fetching else "waiting" if one.engine is None else "running"
        so_far = one.so_far()
        return RequestStatus(
            *(one.id, one.model, one.engine, one.path, self._to_epoch(one.since), state, one.stream, one.request_id),
            *(so_far.prompt_tokens, so_far.completion_tokens, round(so_far.tokens_per_second, 2)),
        )
