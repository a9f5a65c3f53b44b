"""What a backend tells of itself: its state and memory, and the figures of its requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core.localai.messages import MemoryUsage, MetricsResponse, Reply, StatusResponse

UNINITIALIZED, BUSY, READY, ERROR = 0, 1, 2, -1
"""The states of a backend."""

_MILLI = 1000.0


def told(statuses: Iterable[Mapping[str, Any]]) -> StatusResponse:
    """Return state and memory of models, by the statuses that the daemon gives."""
    models = tuple(statuses)
    memory: dict[str, int] = {}
    for model in models:
        for device, size in (model.get("footprint") or {}).items():
            memory[device] = memory.get(device, 0) + int(size)
    return StatusResponse(_state(models), MemoryUsage(sum(memory.values()), memory))


def _state(models: Iterable[Mapping[str, Any]]) -> int:
    """Return the state of models: at work, else failed, else ready if one is."""
    seen = {model.get("state") for model in models}
    if seen & {"loading", "reserved", "draining"} or any(one.get("leases") or one.get("waiting") for one in models):
        return BUSY
    return ERROR if seen & {"failed", "backoff"} else READY if "ready" in seen else UNINITIALIZED


@dataclass(frozen=True, slots=True)
class Figures:
    """The sums of all answers, and the rate of the last one in tokens per second."""

    prompt_tokens: int = 0
    tokens: int = 0
    rate: float = 0.0

    def and_then(self, reply: Reply) -> Figures:
        """Return the figures with one more answer, by its last reply."""
        seconds = reply.timing_token_generation / _MILLI
        rate = reply.tokens / seconds if seconds else self.rate
        return Figures(self.prompt_tokens + reply.prompt_tokens, self.tokens + reply.tokens, rate)

    def as_message(self) -> MetricsResponse:
        """Return the message that tells them; its counts stay below what 32 bits hold."""
        most = 2**31 - 1
        return MetricsResponse(self.rate, min(self.tokens, most), min(self.prompt_tokens, most))
