"""Writes docs/placement.md: where the planner puts well-known models on the machines of the shipped profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from string import ascii_letters

from supervisor.core.devices import Budgets, Machine, budgets
from supervisor.core.plan import DoesNotFit, Placement, PlanRequest, Policy, plan
from supervisor.core.spec import ModelSpec, read_spec
from supervisor.probe.profiles import load_profile
from tests.core.memory.support import header_of
from tests.evidence.known_models import BY_NAME, Q4
from tests.evidence.subjects import metadata_of, recorded_tensors, unpack_tensors

PROFILES = ("laptop-16gb", "1x8gb", "1x24gb", "2x24gb", "mac-64gb", "apu-128gb", "1x80gb", "8x141gb")
MODELS = (
    *("lfm2-1.2b", "smollm3-3b", "gemma-3-4b", "llama-3.1-8b", "qwen3-8b", "phi-4", "gpt-oss-20b"),
    *("mistral-small-24b", "gemma-3-27b", "qwen3.5-27b", "qwen3-30b-a3b", "qwen3-32b", "mixtral-8x7b"),
    *("llama-3.3-70b", "qwen3-next-80b-a3b", "glm-4.5-air", "gpt-oss-120b", "command-a-111b", "qwen3-235b-a22b"),
    *("glm-4.6", "qwen3.5-397b-a17b", "deepseek-v3", "kimi-k2"),
)
PAGE = Path(__file__).parents[2] / "docs" / "placement.md"
_GIB = 1 << 30


def text() -> str:
    """The whole page."""
    return "\n".join([*_head(), *(line for name in PROFILES for line in _machine(name)), ""])


def answer(model: str, profile: str, policy: Policy | None = None) -> Placement | DoesNotFit:
    """The plan for a model as the page has it."""
    return plan(PlanRequest(model, spec(model)), room(profile), (), policy or Policy())


@cache
def spec(model: str) -> ModelSpec:
    """Facts of the model with the page's quantisation: 4 bits, where the record has 8."""
    known = BY_NAME[model]
    chosen = known if known.experts_type else replace(known, type=Q4)
    tensors = sorted(unpack_tensors(recorded_tensors("known")[model]), key=lambda tensor: tensor.name)
    return read_spec(header_of(metadata_of(model), list(chosen.tensors(tensors))))


def room(profile: str) -> Budgets:
    """What engines may use on an empty machine, with the default reserves."""
    return budgets(load_profile(profile))


_INTRODUCTION = """# Where models go

Made by `python -m tests.evidence placement`; a test fails where it is out of date. Plans of well-known models for the
machines of the profiles that come with the program, with no other engine there and the default configuration.
[planning.md](planning.md) has the rules; `supervisor plan FILE --devices NAME` shows such a plan in full.

Dimensions are the published ones. Matrices are Q4_K, with Q6_K for embeddings and output, which is a little below the
size of a `Q4_K_M` file; gpt-oss has its own MXFP4 experts and Q8_0 for the rest.

- **Where**: layers on each device; the output layer and NextN blocks count, as in llama-server's log.
- **Context**: tokens of one request, in an f16 cache. *Native*: all that the model was trained for. *Wanted*: 32,768
  tokens; on the CPU it gets no more. *Grown*: more than that, with a quarter of the memory that was still free left to
  others, half where programs share it. *Less*: what still fits where the wanted context does not.
- **Left**: GiB on the devices together / on the CPU, beside what is kept back for others and for the engine itself.

| model | weights, GiB | layers | native context |
|---|---|---|---|"""


def _head() -> Iterator[str]:
    yield _INTRODUCTION
    for model in MODELS:
        yield f"| {model} | {_gib(_size(model))} | {spec(model).n_layer} | {spec(model).n_ctx_train:,} |"


def _machine(profile: str) -> Iterator[str]:
    machine = load_profile(profile)
    found = {model: answer(model, profile) for model in MODELS}
    hopeless = {model: one for model, one in found.items() if isinstance(one, DoesNotFit) and not one.hints}
    yield ""
    yield f"## {profile}"
    yield ""
    yield _described(machine)
    yield ""
    yield "| model | where | context | left | why |"
    yield "|---|---|---|---|---|"
    for model, one in found.items():
        if model not in hopeless:
            cells = _placed(one) if isinstance(one, Placement) else _refused(one)
            yield f"| {model} | {' | '.join(cells)} |"
    if hopeless:
        yield ""
        missing = ", ".join(f"{model} ({_missing(one)})" for model, one in hopeless.items())
        yield f"Too large in any quantisation, with what is missing for this one: {missing}."


def _described(machine: Machine) -> str:
    kinds = Counter((device.description, device.free_bytes, device.total_bytes) for device in machine.devices)
    devices = [
        f"{f'{count} × ' if count > 1 else ''}{name}, {_gib(free)} of {_gib(total)} GiB free{' each' * (count > 1)}"
        for (name, free, total), count in kinds.items()
    ]
    shared = ", the same memory" if any(device.shares_host for device in machine.devices) else ""
    host = f"CPU, {_gib(machine.host.available_bytes)} of {_gib(machine.host.total_bytes)} GiB available{shared}"
    return f"{'; '.join([*devices, host])}."


def _placed(found: Placement) -> tuple[str, ...]:
    *devices, host = found.parts
    moved = f", experts of {found.n_cpu_moe} on CPU" if found.n_cpu_moe else ""
    left = f"{_gib(sum(part.left_bytes for part in devices))} / " if devices else ""
    context = f"{found.estimate.n_ctx_seq:,}, {_kind(found)}"
    return f"{_where(found)}{moved}", context, f"{left}{_gib(host.left_bytes)}", _reason(found)


def _where(found: Placement) -> str:
    """`CUDA0: 33`, `CUDA0: 25, CPU: 16`, `CUDA0–3: 16, 16, 15, 15`."""
    *devices, host = found.parts
    held = [part for part in devices if part.layers]
    if len(held) > 2:
        counts = ", ".join(str(part.layers) for part in held)
        shown = [f"{held[0].name}–{held[-1].name.lstrip(ascii_letters)}: {counts}"]
    else:
        shown = [f"{part.name}: {part.layers}" for part in held]
    return ", ".join([*shown, *([f"{host.name}: {host.layers}"] if host.layers else [])])


def _kind(found: Placement) -> str:
    context = found.estimate.n_ctx_seq
    if context >= found.native_ctx:
        return "native"
    return "less" if context < found.wanted_ctx else "wanted" if context == found.wanted_ctx else "grown"


def _reason(found: Placement) -> str:
    """One line; what the other columns say is not said again."""
    used = [part for part in found.parts[:-1] if part.layers]
    if found.n_cpu_moe:
        return "Too large for the devices: experts of as few layers as will do are on the CPU."
    if not used:
        return "The machine has no device." if len(found.parts) == 1 else "Nothing of it fits on a device."
    if found.parts[-1].layers:
        return "Too large for the devices: as many layers as fit."
    fewer = next((reason for reason in found.why if reason.startswith("With ")), None)
    return fewer or "One device holds all of it."


def _refused(found: DoesNotFit) -> tuple[str, ...]:
    return "–", "–", f"missing: {_missing(found)}", found.hints[0]


def _missing(found: DoesNotFit) -> str:
    return ", ".join(f"{one.device} {_gib(one.missing_bytes)}" for one in found.shortages)


def _size(model: str) -> int:
    return sum(tensor.n_bytes or 0 for tensor in spec(model).tensors)


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f}"
