"""Convert launch options into what the planner and the estimate need to know."""

from __future__ import annotations

from supervisor.core.devices import HOST
from supervisor.core.launch.facts import ModelFacts, serves_embeddings
from supervisor.core.memory import EstimateOptions
from supervisor.core.options import LaunchOptions
from supervisor.core.plan import Explicit
from supervisor.errors import InvalidRequest

_DENSE = r"\.ffn_(up|down|gate)\."  # the tensors that --n-cpu-ffn keeps on the host
_NONE = ("none",)


def explicit_of(options: LaunchOptions) -> Explicit:
    """Return the user's own decisions on what a plan decides.

    Raises InvalidRequest for `split_mode` row or tensor, for which nothing can be computed, and for a draft model on
    several devices.
    """
    if options.split_mode in {"row", "tensor"}:
        raise InvalidRequest(
            f"split_mode {options.split_mode} cannot be planned; use layer or none", param="split_mode"
        )
    return Explicit(
        ctx_size=options.ctx_size,
        devices=() if options.device == _NONE else options.device,
        tensor_split=options.tensor_split or None,
        split_mode="none" if options.split_mode == "none" else ("layer" if options.split_mode else None),
        main_gpu=options.main_gpu,
        n_gpu_layers=options.n_gpu_layers,
        n_cpu_moe=options.n_cpu_moe,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
        overcommit=options.overcommit,
        mapped=options.load_mode in {None, "auto", "mmap"} and not options.repack,
        fit=options.fit == "on",
        projector_device=_projector_device(options),
        draft_device=_draft_device(options),
    )


def _projector_device(options: LaunchOptions) -> str | None:
    if options.mmproj_offload is False or options.mmproj_device == "none":
        return HOST
    return options.mmproj_device


def _draft_device(options: LaunchOptions) -> str | None:
    """Return the draft model's device, `CPU` for none. Raise InvalidRequest for several."""
    wanted = options.spec_draft_device
    if wanted is not None and len(wanted) > 1:
        raise InvalidRequest(
            "a draft model on several devices cannot be planned; name one device, or none", param="spec_draft_device"
        )
    return None if wanted is None else HOST if wanted in {(), _NONE} else wanted[0]


def estimate_options(
    options: LaunchOptions, facts: ModelFacts, *, backend: str = "", mmproj: int | None = None
) -> EstimateOptions:
    """Return the options of the estimate; what is not asked for is llama-server's default.

    Args:
        options: what was asked for.
        facts: what the header says.
        backend: of the devices, as `EstimateOptions` has it.
        mmproj: bytes of the projector that will be loaded; None: there is none.
    """
    default = EstimateOptions()
    mtp = "draft-mtp" in options.spec_type
    devices = options.device if options.device is not None else default.devices
    return EstimateOptions(
        ctx_size=options.ctx_size,
        parallel=options.parallel,
        kv_unified=options.kv_unified,
        batch_size=options.batch_size or default.batch_size,
        ubatch_size=options.ubatch_size or default.ubatch_size,
        cache_type_k=options.cache_type_k or default.cache_type_k,
        cache_type_v=options.cache_type_v or default.cache_type_v,
        flash_attn=options.flash_attn or default.flash_attn,
        swa_full=options.swa_full,
        n_gpu_layers=options.n_gpu_layers,
        tensor_split=options.tensor_split,
        devices=() if devices == _NONE else devices,
        n_cpu_moe=options.n_cpu_moe or 0,
        cpu_moe=options.cpu_moe,
        override_tensors=_overrides(options),
        offload_kv=options.kv_offload is not False,
        embeddings=serves_embeddings(options, facts),
        speculative="draft-mtp" if mtp else default.speculative,
        draft_n_max=default.draft_n_max if options.spec_draft_n_max is None else options.spec_draft_n_max,
        cache_type_k_draft=options.spec_draft_type_k or default.cache_type_k_draft,
        cache_type_v_draft=options.spec_draft_type_v or default.cache_type_v_draft,
        backend=backend,
        repack=options.repack is not False,
        op_offload=options.op_offload is not False,
        mmproj=mmproj,
        cache_ram=default.cache_ram if options.cache_ram is None else options.cache_ram,
        ctx_checkpoints=default.ctx_checkpoints if options.ctx_checkpoints is None else options.ctx_checkpoints,
    )


def _overrides(options: LaunchOptions) -> tuple[tuple[str, str], ...]:
    """Return the tensors with a place of their own, as llama-server's regular expressions."""
    named = [value.partition("=") for value in options.override_tensor]
    dense = [(rf"blk\.(?:{_below(options.n_cpu_ffn)}){_DENSE}", "CPU")] if options.n_cpu_ffn else []
    return (*((pattern, place) for pattern, _, place in named), *dense)


def _below(count: int) -> str:
    """Return the numbers from 0 to `count - 1` as a pattern, whose length grows with their digits alone."""
    last = str(count - 1)
    found = ["[0-9]"] if len(last) > 1 else []
    found += ["[1-9]" + "[0-9]" * more for more in range(1, len(last) - 1)]
    for place, digit in enumerate(last):
        least = 1 if place == 0 and len(last) > 1 else 0
        if int(digit) > least:
            found.append(f"{last[:place]}[{least}-{int(digit) - 1}]" + "[0-9]" * (len(last) - place - 1))
    return "|".join([*found, last])
