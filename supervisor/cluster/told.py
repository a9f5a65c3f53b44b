"""What this node tells the others of itself: what it can load, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import supervisor
from supervisor.cluster.kept import Membership
from supervisor.core.cluster.messages import MOST_MODELS, Device, Load, Node, Running
from supervisor.core.cluster.running import running_of
from supervisor.core.devices import Budget, Budgets
from supervisor.core.models.registry import Registry
from supervisor.pool.pool import Pool


@dataclass
class Told:
    """This node, as it is seen by others.

    Attributes:
        budgets: the memory for models, as it was seen last; None: it has not been looked at yet.
        started_at: seconds since 1970.
        draining: it takes nothing new.
        config: version of the cluster's configuration in force, and why a newer one is not.
        clock: the pool's.
    """

    kept: Membership
    registry: Registry
    pool: Pool
    budgets: Callable[[], Budgets | None]
    started_at: float
    draining: Callable[[], bool]
    clock: Callable[[], float]
    config: Callable[[], tuple[int, str]]
    _number: int = field(default=0, init=False)

    def node(self) -> Node:
        """Return what is kept of this node in the cluster."""
        models = {entry.id: entry.aliases for entry in self.registry}
        budgets = self.budgets()
        version, problem = self.config()
        return Node(
            name=self.kept.name,
            host=self.kept.host,
            port=self.kept.port,
            program=supervisor.__version__,
            serial=self.kept.serial,
            models=dict(list(models.items())[:MOST_MODELS]),
            devices=() if budgets is None else tuple(Device(one.name, one.total_bytes) for one in _devices(budgets)),
            config_version=version,
            config_problem=problem,
        )

    def load(self) -> Load:
        """Return what this node does now, with the next number."""
        self._number += 1
        models = {entry.id: self.running(entry.id) for entry in self.registry}
        return Load(
            node=self.kept.name,
            number=self._number,
            started_at=self.started_at,
            free_bytes=self._free(),
            draining=self.draining(),
            models={model: running for model, running in models.items() if running is not None},
        )

    def running(self, model: str) -> Running | None:
        """Return what runs of a model here; None where it has no engine that is ready or comes up."""
        return running_of(self.pool.status(model).view, self.clock())

    def _free(self) -> int:
        budgets = self.budgets()
        if budgets is None:
            return 0
        held = sum(sum(one.planned_bytes.values()) for one in self.pool.holdings())
        return max(0, sum(one.usable_bytes for one in _devices(budgets)) - held)


def _devices(budgets: Budgets) -> Sequence[Budget]:
    """Return what models go to: the processor where there is nothing else."""
    return budgets.devices or (budgets.host,)
