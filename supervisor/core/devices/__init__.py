"""The devices of a machine: which there are, all their names, and how much of each is ours to use."""

from supervisor.core.devices.accounting import Holding, budgets, distinct
from supervisor.core.devices.budget import Budget, Budgets
from supervisor.core.devices.child import names_in_child, rpc_endpoints, visible_env
from supervisor.core.devices.model import (
    CUDA_LIKE,
    HOST,
    Device,
    Host,
    Machine,
    Problem,
    is_lent,
    is_lent_processor,
    lent_name,
)
from supervisor.core.devices.profile import parse_profile
from supervisor.core.devices.reserves import Reserves

__all__ = [
    "CUDA_LIKE",
    "HOST",
    "Budget",
    "Budgets",
    "Device",
    "Holding",
    "Host",
    "Machine",
    "Problem",
    "Reserves",
    "budgets",
    "distinct",
    "is_lent",
    "is_lent_processor",
    "lent_name",
    "names_in_child",
    "parse_profile",
    "rpc_endpoints",
    "visible_env",
]
