"""Scans of Mamba's layers that a back end does not compute."""

from __future__ import annotations

from supervisor.core.memory.backends import Backend
from supervisor.core.spec import ModelSpec, RecurrentFamily

DECAY = ".ssm_a"
"""The end of a weight's name that has to be where scans are computed."""


def scans_on_host(spec: ModelSpec, traits: Backend) -> bool:
    """Return whether the host computes the scans: of the older kind, or with states of another size."""
    match spec.architecture.recurrent:
        case RecurrentFamily.MAMBA:
            return not traits.older_scans
        case RecurrentFamily.MAMBA2:
            return traits.scans is not None and spec.ssm.state not in traits.scans
        case _:
            return False
