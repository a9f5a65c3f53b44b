"""Writes docs/placement.md: where the planner puts well-known models on the machines of the shipped profiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

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


def _head() -> Iterator[str]:
    yield "# Where models go"
    yield ""
    yield "Made by `python -m tests.evidence placement`; a test fails where it is out of date. Plans of well-known models for"
    yield "the machines of the profiles that come with the program, empty, with the default configuration: a context of 32,768"
    yield "tokens is wanted, the cache is f16. [planning.md](planning.md) has the rules. `supervisor plan FILE --devices NAME`"
    yield "shows such a plan in full."
    yield ""
    yield "Dimensions are the published ones. Matrices are Q4_K, with Q6_K for embeddings and output, which is a little below the"
    yield "size of a `Q4_K_M` file; gpt-oss has its own MXFP4 experts and Q8_0 for the rest. *Left* is what is left of the budget on"
    yield "the devices together, and on the host."
    yield ""
    yield "| model | weights, GiB | layers | native context |"
    yield "|---|---|---|---|"
    for model in MODELS:
        yield f"| {model} | {_gib(_size(model))} | {spec(model).n_layer} | {spec(model).n_ctx_train:,} |"


def _machine(profile: str) -> Iterator[str]:
    machine = load_profile(profile)
    yield ""
    yield f"## {profile}"
    yield ""
    yield f"{_described(machine)}"
    yield ""
    yield "| model | where | context | left, GiB | why |"
    yield "|---|---|---|---|---|"
    for model in MODELS:
        found = answer(model, profile)
        cells = _placed(found) if isinstance(found, Placement) else _refused(found)
        yield f"| {model} | {' | '.join(cells)} |"


def _described(machine: Machine) -> str:
    devices = [
        f"{device.name}: {device.description}, {_gib(device.free_bytes)} of {_gib(device.total_bytes)} GiB free"
        for device in machine.devices
    ]
    host = machine.host
    shown = [*devices[:2], f"… {devices[-1].partition(':')[0]}"] if len(devices) > 2 else devices
    return "; ".join([*shown, f"host: {_gib(host.available_bytes)} of {_gib(host.total_bytes)} GiB available"]) + "."


def _placed(found: Placement) -> tuple[str, ...]:
    *devices, host = found.parts
    where = ", ".join(f"{part.name} {part.layers}" for part in found.parts if part.layers)
    moved = f", experts of {found.n_cpu_moe} on CPU" if found.n_cpu_moe else ""
    left = f"{_gib(sum(part.left_bytes for part in devices))}, " if devices else ""
    why = " ".join(reason for reason in found.why if "slots share" not in reason)
    return f"{where}{moved}", f"{found.estimate.n_ctx_seq:,}", f"{left}{_gib(host.left_bytes)}", why


def _refused(found: DoesNotFit) -> tuple[str, ...]:
    missing = ", ".join(f"{one.device} {_gib(one.missing_bytes)}" for one in found.shortages)
    return "–", "–", f"missing: {missing}", found.hints[0] if found.hints else "Nothing that was tried would help."


def _size(model: str) -> int:
    return sum(tensor.n_bytes or 0 for tensor in spec(model).tensors)


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f}"
