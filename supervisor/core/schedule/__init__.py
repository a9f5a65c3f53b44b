"""Decide who gets an engine, and which engines live. Events in, commands out; clock and planner are arguments."""

from supervisor.core.schedule.groups import barred_by, refusal
from supervisor.core.schedule.limits import ModelPolicy, SchedulerLimits
from supervisor.core.schedule.pins import Pins
from supervisor.core.schedule.scheduler import Scheduler
from supervisor.core.schedule.state import Planner
from supervisor.core.schedule.view import EngineView, ModelView

__all__ = [
    "EngineView",
    "ModelPolicy",
    "ModelView",
    "Pins",
    "Planner",
    "Scheduler",
    "SchedulerLimits",
    "barred_by",
    "refusal",
]
