"""Find what llama-server would refuse before it is started, as a typed reason instead of a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from supervisor.core.gguf import CACHE_TYPES, tensor_type
from supervisor.core.memory.cache import CacheRule
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.patterns import BadPattern, is_too_much, matcher
from supervisor.core.memory.placement import HOST
from supervisor.core.memory.result import Refusal
from supervisor.core.spec import DraftRule, Layout, ModelSpec

MAX_SLOTS = 256
"""`LLAMA_MAX_SEQ`."""


def refuse_model(spec: ModelSpec) -> Refusal | None:
    """Return the reason why this file cannot be served at all, if there is one."""
    if spec.architecture.projector:
        return Refusal("projector", "The file is a projector: it is loaded with a model, not by itself.")
    if spec.vocab_only:
        return Refusal("vocabulary_only", "The file holds a vocabulary and no weights.")
    if not spec.n_ctx_train:
        return Refusal("no_context", "The file names no native context.")
    if _drafts_only(spec):
        return Refusal("draft_only", f"A model of architecture {spec.architecture.name} only drafts for another model.")
    return None


def _drafts_only(spec: ModelSpec) -> bool:
    rule = spec.architecture.drafts_only
    if rule is not DraftRule.WITHOUT_OUTPUT:
        return rule is DraftRule.ALWAYS
    return not {"token_embd.weight", "output.weight"} <= {tensor.name for tensor in spec.tensors}


def refuse_options(facts: Facts, options: EstimateOptions, context: Context) -> Refusal | None:
    """Return the first reason why the engine would not start with these options."""
    return next(_reasons(facts, options, context), None)


def _reasons(facts: Facts, options: EstimateOptions, context: Context) -> Iterator[Refusal]:
    spec = facts.spec
    if context.n_seq > MAX_SLOTS:
        yield Refusal("too_many_slots", f"{context.n_seq} slots are too many; llama-server allows {MAX_SLOTS}.")
    yield from _bad_overrides(spec, options)
    if options.drafts and not _can_draft(spec):
        yield Refusal("no_nextn_blocks", "draft-mtp needs NextN blocks in the model; this one has none that can draft.")
    yield from _bad_types(facts, options.cache_type_k, options.cache_type_v, context, facts.caches)
    if options.drafts:
        yield from _bad_types(facts, options.cache_type_k_draft, options.cache_type_v_draft, context, facts.draft)


def _can_draft(spec: ModelSpec) -> bool:
    return spec.n_nextn > 0 and spec.architecture.mtp and spec.architecture.nextn_graph


def _bad_overrides(spec: ModelSpec, options: EstimateOptions) -> Iterator[Refusal]:
    for _, place in options.override_tensors:
        if place != HOST and place not in options.devices:
            names = ", ".join((HOST, *options.devices))
            yield Refusal("unknown_buffer_type", f"There is no device '{place}' for tensors; known: {names}.")
    patterns = tuple(pattern for pattern, _ in options.override_tensors)
    if is_too_much(patterns, len(spec.tensors)):
        yield Refusal(
            "too_many_overrides",
            f"{len(patterns)} patterns of {sum(map(len, patterns)):,} characters are too much for the "
            f"{len(spec.tensors):,} tensors of this model; give fewer or shorter ones.",
        )
    try:
        matcher(patterns)
    except BadPattern as error:
        yield Refusal("bad_pattern", f"{error}.")


def _bad_types(
    facts: Facts, type_k: str, type_v: str, context: Context, rules: Iterable[CacheRule]
) -> Iterator[Refusal]:
    unknown = [name for name in (type_k, type_v) if name not in CACHE_TYPES]
    if unknown:
        yield Refusal(
            "unknown_cache_type", f"'{unknown[0]}' is not a cache type; choose one of {', '.join(CACHE_TYPES)}."
        )
        return
    spec = facts.spec
    if type_k != type_v and (spec.mla or spec.architecture.layout is Layout.DEEPSEEK4):
        yield Refusal("cache_types_differ", "In this model the K and V caches must be of one type.")
    if tensor_type(type_v).quantized and not context.flash_attn:
        why = "it is off" if spec.architecture.flash_attention else f"{spec.architecture.name} runs without it"
        yield Refusal("quantized_v_needs_flash_attention", f"A {type_v} V cache needs flash attention; {why}.")
    for name, heads in ((type_k, _heads(spec, keys=True)), (type_v, _heads(spec, keys=False))):
        yield from _uneven(name, heads if context.flash_attn else ())
    yield from _uneven(type_k, [row.k_width for rule in rules for row in rule.layers])
    yield from _uneven(type_v, [row.v_width for rule in rules for row in rule.layers])


def _heads(spec: ModelSpec, keys: bool) -> set[int]:
    """Return the head sizes of the layers that run."""
    windowed = set(spec.swa_layers[: spec.n_layer])
    sizes = {True: spec.head_k_swa, False: spec.head_k} if keys else {True: spec.head_v_swa, False: spec.head_v}
    return {sizes[kind] for kind in windowed}


def _uneven(name: str, widths: Iterable[int]) -> Iterator[Refusal]:
    block = tensor_type(name).block
    for width in widths:
        if width % block:
            yield Refusal("cache_type_block", f"{name} packs blocks of {block}, which do not divide rows of {width}.")
            return
