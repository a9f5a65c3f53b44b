"""Put a plan's decision in place of the options that it decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from supervisor.core.engine_output.capabilities import Flags
from supervisor.core.options import LaunchOptions
from supervisor.core.plan import Placement
from supervisor.errors import InvalidRequest


@dataclass(frozen=True)
class Placed:
    """A placement, and what an engine must be told of it.

    Attributes:
        names: the plan's name of a device → the engine's, where the engine counts otherwise because it sees fewer.
        visible_env: the variables that hide the other devices from it.
        rpc: `host:port` of the workers, in the order in which they become `RPC0`, `RPC1`, …
    """

    placement: Placement
    names: Mapping[str, str] = field(default_factory=dict)
    visible_env: Mapping[str, str] = field(default_factory=dict)
    rpc: tuple[str, ...] = ()


def planned(options: LaunchOptions, placed: Placed, flags: Flags | None) -> LaunchOptions:
    """Return the options with the plan's choices, so that no choice about memory is left to the engine.

    What the plan has honoured of the user's own wishes is in the placement already. With `fit: on` the engine chooses
    layers, split and context; the devices are the plan's all the same. Weights that are paged stay in the file's pages.
    """
    placement, chosen = placed.placement, placed.placement.options
    several, alone = len(placement.devices) > 1, not placement.devices
    known = flags is None or "--device" in flags
    moved = replace(
        options,
        rpc=placed.rpc,
        device=None if alone and not known else tuple(placed.names.get(name, name) for name in placement.devices),
        n_gpu_layers=0 if alone else placement.n_gpu_layers,
        tensor_split=tuple(map(float, placement.tensor_split)) if several else (),
        split_mode=None if alone else placement.split_mode,
        main_gpu=None if alone or placement.split_mode != "none" else placement.main_gpu,
        n_cpu_moe=placement.n_cpu_moe or None,
        ctx_size=chosen.ctx_size if chosen.ctx_size is not None else options.ctx_size,
        parallel=chosen.parallel if chosen.parallel is not None else options.parallel,
        kv_unified=chosen.kv_unified if chosen.kv_unified is not None else options.kv_unified,
        cache_type_k=chosen.cache_type_k,
        cache_type_v=chosen.cache_type_v,
        spec_draft_device=tuple(placement.draft_device.split(","))
        if placement.draft_device
        else options.spec_draft_device,
        mmproj_device=_projector_device(options, placement, flags),
        fit="off" if flags is not None and "--fit" in flags else None,
    )
    if options.repack is None and not chosen.repack:
        moved = replace(moved, repack=False, load_mode="mmap")
    if options.fit == "on":
        moved = replace(
            moved,
            fit="on",
            n_gpu_layers=options.n_gpu_layers,
            tensor_split=options.tensor_split,
            n_cpu_moe=options.n_cpu_moe,
            ctx_size=options.ctx_size,
        )
    return _renamed(moved, placed.names)


def _projector_device(options: LaunchOptions, placement: Placement, flags: Flags | None) -> str | None:
    """Return the projector's device: with `split_mode: none` the one that is used, for the engine takes the first."""
    decided = options.mmproj_device is not None or options.mmproj_offload is False
    counted = placement.split_mode == "none" and placement.main_gpu and placement.parts[0].projector_bytes
    if decided or not counted or (flags is not None and "--mmproj-device" not in flags):
        return options.mmproj_device
    return placement.devices[placement.main_gpu]


def merged_env(options: LaunchOptions, placed: Placed) -> Mapping[str, str]:
    """Return the user's variables and the plan's. Raise InvalidRequest where the user's would undo the plan."""
    for name, value in placed.visible_env.items():
        if options.env.get(name, value) != value:
            raise InvalidRequest(
                f"{name} cannot be set: it hides devices, which the plan chooses; use the option device", param="env"
            )
    return {**options.env, **placed.visible_env}


def _renamed(options: LaunchOptions, names: Mapping[str, str]) -> LaunchOptions:
    """Return the options with the devices that the user named, under their names in the engine."""
    draft, projector = options.spec_draft_device, options.mmproj_device
    return replace(
        options,
        override_tensor=tuple(_overrides(options.override_tensor, names)),
        spec_draft_override_tensor=tuple(_overrides(options.spec_draft_override_tensor, names)),
        spec_draft_device=None if draft is None else tuple(names.get(name, name) for name in draft),
        mmproj_device=None if projector is None else names.get(projector, projector),
    )


def _overrides(values: Iterable[str], names: Mapping[str, str]) -> Iterable[str]:
    for value in values:
        pattern, equals, place = value.partition("=")
        yield f"{pattern}{equals}{names.get(place, place)}"
