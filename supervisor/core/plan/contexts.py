"""Convert between the context of one request and that of all slots together."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.plan.types import PlanRequest, Policy

_AUTO_SLOTS = 4


@dataclass(frozen=True, slots=True)
class Contexts:
    """Tokens of all slots together, as `--ctx-size`; `request_ctx` turns them into those of one request.

    Attributes:
        streams: how many slots have a context of their own; 1: they share one.
        slots: how many there are.
        native: the native context for every request.
        wanted, floor: what is aimed at, and what is the least.
        fixed: the user said so: `wanted` is all there is.
    """

    streams: int
    slots: int
    native: int
    wanted: int
    floor: int
    fixed: bool

    def request_ctx(self, total: int) -> int:
        """Return the context that one request may use."""
        return total // self.streams


def contexts_of(request: PlanRequest, policy: Policy) -> Contexts:
    """Return the context that the user asked for, else the policy's."""
    options = request.options
    slots = _AUTO_SLOTS if options.parallel is None else max(options.parallel, 1)
    streams = 1 if options.parallel is None or options.kv_unified else slots
    native = request.spec.n_ctx_train
    asked = request.explicit.ctx_size
    if asked is not None:
        total = asked or native
        return Contexts(streams, slots, native * streams, total, total, fixed=True)
    wanted = max(1, min(policy.context_target, native))
    floor = max(1, min(policy.context_min, wanted))
    return Contexts(streams, slots, native * streams, wanted * streams, floor * streams, fixed=False)
