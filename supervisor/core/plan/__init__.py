"""Decide what goes where: models, devices and residents in, a placement or a refusal with numbers out."""

from supervisor.core.plan.forecast import Forecast, forecast
from supervisor.core.plan.planner import plan
from supervisor.core.plan.said import Place, Seat, seat
from supervisor.core.plan.types import (
    Budget,
    Budgets,
    DevicePlan,
    DoesNotFit,
    Explicit,
    Learned,
    Overcommit,
    Placement,
    PlanRequest,
    Policy,
    Resident,
    Shortage,
)

__all__ = [
    "Budget",
    "Budgets",
    "DevicePlan",
    "DoesNotFit",
    "Explicit",
    "Forecast",
    "Learned",
    "Overcommit",
    "Place",
    "Placement",
    "PlanRequest",
    "Policy",
    "Resident",
    "Seat",
    "Shortage",
    "forecast",
    "plan",
    "seat",
]
