"""Notes that a reader of an estimate needs beside its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.options import EstimateOptions


def notes_on(facts: Facts, options: EstimateOptions, context: Context) -> tuple[str, ...]:
    return tuple(_notes(facts, options, context))


def _notes(facts: Facts, options: EstimateOptions, context: Context) -> Iterator[str]:
    spec = facts.spec
    asked = options.ctx_size or spec.n_ctx_train
    if not spec.architecture.known:
        yield f"The architecture {spec.architecture.name} is not known: estimated as a plain transformer."
    if context.n_ctx != asked:
        yield f"The context is padded from {asked} to {context.n_ctx} tokens."
    if context.cells > spec.n_ctx_train:
        yield f"A slot's context is longer than the model was trained for ({spec.n_ctx_train})."
    if facts.has_unknown_types:
        yield "Tensors of unknown types are left out of the weights."
    if spec.n_nextn and not options.drafts:
        yield "The NextN blocks are left out; they are loaded for speculative decoding."
    if len(options.devices) > 1 and not options.tensor_split:
        yield "Layers are split evenly; llama-server splits by free memory where no split is given."
    yield from _notes_on_backend(options, context)
    if options.mmproj:
        yield "Of the projector the file's size is counted, not what it computes with."


def _notes_on_backend(options: EstimateOptions, context: Context) -> Iterator[str]:
    traits = options.traits
    if traits.pads_weights:
        yield "CUDA's own memory (context, libraries: 300 to 600 MiB per device) is not counted."
    kept = traits.copies
    if kept is not None and context.flash_attn and not {options.cache_type_k, options.cache_type_v} <= kept:
        yield "F16 copies for flash attention are counted as the source says, not as measured."
