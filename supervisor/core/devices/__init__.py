"""Devices: what there is, by which names, and how much of it is ours to use."""

from supervisor.core.devices.budget import Budget, Budgets
from supervisor.core.devices.model import CUDA_LIKE, HOST, Device, Host, Machine, Problem

__all__ = ["CUDA_LIKE", "HOST", "Budget", "Budgets", "Device", "Host", "Machine", "Problem"]
