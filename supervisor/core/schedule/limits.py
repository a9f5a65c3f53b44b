"""The limits and policies that the scheduler keeps to. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """The limits of the whole scheduler.

    Attributes:
        max_waiting_model, max_waiting: requests that may wait for one model, and in all; more are refused.
        max_swap_wait: how long later requests for loaded models may keep a waiting one from its room.
        max_linger: how long at most an idle engine is kept from others while requests gather for the swap.
        backoff_base, backoff_max: the delays between restarts grow from one to the other; the first has none.
        crash_failures, crash_window: so many failures in a row within the window end the restarts.
        drain: how long requests may go on when the daemon is to stop.
        room_rounds: how often in a row room is made for one engine in vain before that counts as failed.
        look_age: how old a look at the machine may be when something is started or ended on its account.
    """

    max_waiting_model: int = 512
    max_waiting: int = 1024
    max_swap_wait: float = 30.0
    max_linger: float = 2.0
    backoff_base: float = 1.0
    backoff_max: float = 60.0
    crash_failures: int = 5
    crash_window: float = 300.0
    drain: float = 10.0
    room_rounds: int = 8
    look_age: float = 10.0


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """The settings of one model.

    Attributes:
        ttl: an engine that was idle for so long is ended; None: never.
        pinned: never ended for idleness or for another's room; restarted after a crash.
        preload: loaded at the start of the daemon (by whoever starts it); restarted after a crash.
        priority: the larger gets its room first.
        replicas_min, replicas_max: engines that are started on demand, and how many the demand may make of them.
        concurrency: requests that one engine takes at a time; None: its slots.
        groups: of two models that have one in common only one may be loaded.
        alone: no other model may be loaded beside it.
    """

    ttl: float | None = None
    pinned: bool = False
    preload: bool = False
    priority: int = 0
    replicas_min: int = 1
    replicas_max: int = 1
    concurrency: int | None = None
    groups: frozenset[str] = frozenset()
    alone: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.replicas_min <= self.replicas_max:
            raise ValueError(f"replicas: {self.replicas_min}..{self.replicas_max} is no range from 1 on")
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError("concurrency: at least 1")

    def excludes(self, other: ModelPolicy) -> bool:
        """Return whether two different models with these policies may never be loaded together."""
        return self.alone or other.alone or not self.groups.isdisjoint(other.groups)

    @property
    def keep(self) -> bool:
        """True if the model is brought back after a crash though nobody waits."""
        return self.pinned or self.preload
