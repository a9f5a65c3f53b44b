"""Foretell how fast a model will be: the work that a token is, over what a machine was measured to do.

All is linear. A token is amounts of work by kind (bytes of weights by type, multiplications of attention, layers), and
a device has seconds for a unit of each kind. So a few timed runs give a device's seconds by least squares.
"""

from supervisor.core.speed.foretell import Speed, foretell
from supervisor.core.speed.machine import MachineSpeed, Rates, Source
from supervisor.core.speed.work import Work, decode_work, prefill_work

__all__ = ["MachineSpeed", "Rates", "Source", "Speed", "Work", "decode_work", "foretell", "prefill_work"]
