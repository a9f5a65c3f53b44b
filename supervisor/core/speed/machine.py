"""The seconds that a machine's devices take for a unit of work of each kind, and where these figures come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from supervisor.core.gguf import TENSOR_TYPES
from supervisor.core.speed.work import Work

Source: TypeAlias = Literal["measured", "learned", "published"]
"""Where a figure comes from.

`measured`: runs of generated models on this device. `learned`: requests that this model answered. `published`: its
maker's figures, or a careful guess.
"""

_BITS = {kind.name: 8 * kind.type_size / kind.block for kind in TENSOR_TYPES.values()}
_UNKNOWN_BITS = 16.0
_TRIPS = 1.7


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds per unit by kind of work, of one device."""

    seconds: Mapping[str, float]
    source: Source = "published"

    def of(self, kind: str) -> float:
        """Return the seconds per unit.

        A type of weights that was not timed counts as the one nearest in size, of the same family if there is one
        (`q4_K`, `q6_K`).
        """
        found = self.seconds.get(kind)
        if found is not None:
            return found
        name, _, type_ = kind.partition(":")
        near = [known for known in self.seconds if known.startswith(f"{name}:")] if type_ else []
        best = min(near, key=lambda known: _distance(known.partition(":")[2], type_), default=None)
        return self.seconds[best] if best else 0.0


def over_network(rates: Rates, round_trip_s: float | None) -> Rates:
    """Return the rates of a device behind a network. round_trip_s: seconds; None: there is none, or it is not known.

    A pass takes 1.7 round trips: with one worker, 5 ms more of them took a token from 9.7 ms to 18.2 ms (b11434).
    """
    if round_trip_s is None:
        return rates
    trip = _TRIPS * round_trip_s
    return Rates({**rates.seconds, "trip": trip, "trip_many": trip}, rates.source)


def _distance(known: str, wanted: str) -> tuple[bool, float, str]:
    """Return how far a type of weights is from another: what is least is nearest."""
    is_other = known.endswith("_K") != wanted.endswith("_K")
    return is_other, abs(_BITS.get(known, _UNKNOWN_BITS) - _BITS.get(wanted, _UNKNOWN_BITS)), known


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """The rates of every device, the host (`CPU`) included.

    threads: with which the host computes; its rates are those of so many.
    """

    devices: Mapping[str, Rates] = field(default_factory=dict)
    threads: int = 1

    def seconds(self, work: Work) -> float:
        """Return the time of the work: devices wait for one another, so theirs add up."""
        return sum(
            amount * self._rates(device).of(kind) for device, kinds in work.items() for kind, amount in kinds.items()
        )

    def source(self, work: Work) -> Source:
        """Return the least sure source among the devices that have any layer to run."""
        sources = {self._rates(device).source for device, kinds in work.items() if "layer" in kinds}
        return "measured" if sources == {"measured"} else "published"

    def _rates(self, device: str) -> Rates:
        return self.devices.get(device, Rates({}))
