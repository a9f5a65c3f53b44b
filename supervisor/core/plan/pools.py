"""The lists of devices that a plan may choose from, which are tried one after the other.

Devices of one kind come before a mixture, local ones before RPC workers (every token crosses the network), dedicated
memory before the host's. Of devices that share the host's memory an engine gets one at most: a second one brings no
memory. What the user says about devices leaves a single list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from supervisor.core.devices import CUDA_LIKE, HOST, is_lent_processor
from supervisor.core.memory import Refusal
from supervisor.core.plan.types import Budget, Budgets, PlanRequest


@dataclass(frozen=True, slots=True)
class Pool:
    """Devices by their place in the budgets, in the order of `--device`.

    Attributes:
        listed: by the user: all of them are in the engine's list whatever they hold, and the first leads (projector and
            draft). Else only those that get layers are, and the first of these leads.
        single: only one of them may hold layers.
        shares: of the layers, as the user wants them; empty: the planner's choice.
        backends: of each device.
    """

    devices: tuple[int, ...]
    listed: bool = False
    single: bool = False
    shares: tuple[float, ...] = ()
    backends: tuple[str, ...] = ()

    @property
    def backend(self) -> str:
        """Return the back ends of the devices, as `EstimateOptions` has them."""
        return ",".join(sorted(set(self.backends)))


def pools_of(request: PlanRequest, budgets: Budgets) -> tuple[Pool, ...] | Refusal:
    """Return the pools in the order in which they are tried.

    There are none on a machine without devices, or where the user wants none.
    """
    found = _pools(request, budgets)
    return found if isinstance(found, Refusal) else _homeless(request, budgets, found) or found


def _pools(request: PlanRequest, budgets: Budgets) -> tuple[Pool, ...] | Refusal:
    explicit = request.explicit
    if explicit.devices is None and explicit.tensor_split is None and not _names_one(request):
        named = [place for _, place in request.options.override_tensors if place != HOST]
        if not named:
            single = explicit.split_mode == "none"
            leads = bool(request.projector_bytes or request.draft)  # a part goes to the first device
            return tuple(
                Pool(found, single=single, backends=_backends(budgets, found))
                for found in _lists(budgets.devices, local_last=not leads)
            )
    return _listed(request, budgets)


def _homeless(request: PlanRequest, budgets: Budgets, pools: Sequence[Pool]) -> Refusal | None:
    """Return the refusal of a device for the projector or the draft model that the engine's list does not have."""
    explicit = request.explicit
    devices = pools[0].devices if pools and pools[0].listed and explicit.n_gpu_layers != 0 else ()
    places = {HOST, *(budgets.devices[device].name for device in devices)}
    wanted = {
        "mmproj_device": explicit.projector_device if request.projector_bytes else None,
        "spec_draft_device": explicit.draft_device if request.draft else None,
    }
    for option, place in wanted.items():
        if place is not None and place not in places:
            return Refusal(
                "device_not_listed",
                f"{option} is {place}, which the model does not use; put it into the list `device` "
                "(with a share of 0 in `tensor_split` it holds no layers).",
            )
    return None


def _names_one(request: PlanRequest) -> bool:
    return request.explicit.split_mode == "none" and request.explicit.main_gpu is not None


def _listed(request: PlanRequest, budgets: Budgets) -> tuple[Pool, ...] | Refusal:
    explicit = request.explicit
    names = [budget.name for budget in budgets.devices]
    wanted = names if explicit.devices is None else list(explicit.devices)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        known = ", ".join(names) or "none"
        return Refusal("unknown_device", f"There is no device '{unknown[0]}'; this machine has: {known}.")
    if len(set(wanted)) < len(wanted):
        return Refusal("device_twice", f"A device is named twice in {', '.join(wanted)}.")
    if not wanted and explicit.devices is not None:
        return ()
    if explicit.split_mode == "none":
        return _one_of([names.index(name) for name in wanted], explicit.main_gpu or 0, budgets)
    shares = explicit.tensor_split or ()
    if len(shares) > len(wanted):
        return Refusal("too_many_shares", f"{len(shares)} shares for {len(wanted)} devices; give one for each at most.")
    if explicit.devices is None and shares:
        wanted = wanted[: len(shares)]
    devices = tuple(names.index(name) for name in wanted)
    return (Pool(devices, listed=True, shares=shares, backends=_backends(budgets, devices)),) if devices else ()


def _one_of(devices: Sequence[int], number: int, budgets: Budgets) -> tuple[Pool, ...] | Refusal:
    if not 0 <= number < len(devices):
        return Refusal("unknown_device", f"main_gpu is {number}, but there are {len(devices)} devices to count from 0.")
    chosen = (devices[number],)
    return (Pool(chosen, listed=True, single=True, backends=_backends(budgets, chosen)),)


def _backends(budgets: Budgets, devices: Sequence[int]) -> tuple[str, ...]:
    return tuple(budgets.devices[device].backend for device in devices)


def _lists(budgets: Sequence[Budget], *, local_last: bool) -> tuple[tuple[int, ...], ...]:
    """Return the lists of devices.

    local_last: RPC workers stand first. llama.cpp puts the output layer on the last device, and its result, 4 bytes for
    each word of the vocabulary, would cross the network for every token; what passes between layers is far less.
    """

    def place(number: int) -> tuple[bool, int]:
        return local_last and budgets[number].backend != "rpc", number

    found = (tuple(sorted(devices, key=place)) for devices in _choices(budgets))
    return tuple(dict.fromkeys(devices for devices in found if devices))


def _choices(budgets: Sequence[Budget]) -> Iterator[list[int]]:
    """Yield the devices of each list.

    Single kinds stay in the list beside their mixture, which may take more than one alone. A worker's processor is in
    none: it is slower than our own, so it is for those who name it.
    """
    usual = [number for number, budget in enumerate(budgets) if not is_lent_processor(budget.name)]
    shared = [number for number in usual if budgets[number].shares_host]
    remote = [number for number in usual if budgets[number].backend == "rpc" and number not in shared]
    own = [number for number in usual if number not in shared and number not in remote]
    cuda = [number for number in own if budgets[number].backend in CUDA_LIKE]
    other = [number for number in own if number not in cuda]
    for far in ([], remote):
        for one in ([], *([number] for number in shared)):
            yield from (near + far + one for near in (cuda, other, own))
