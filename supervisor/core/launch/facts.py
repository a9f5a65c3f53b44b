"""What a launch must know of the model, and what follows from it and the options."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.gguf import GgufHeader
from supervisor.core.options import LaunchOptions


@dataclass(frozen=True)
class ModelFacts:
    """What a launch must know of the model: its header's pooling, whether it is an encoder, the projector beside it."""

    pooling: bool = False
    encoder: bool = False
    projector: str | None = None


# Architectures that only embed: llama.cpp gives them no cache
_ENCODERS = frozenset(
    {"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert", "eurobert", "modern-bert"}
    | {"gemma-embedding"}
)


def facts_of(header: GgufHeader, projector: str | None = None) -> ModelFacts:
    """What the header says; pooling type 0 is "none" (llama.cpp's `llama_pooling_type`)."""
    return ModelFacts(bool(header.pooling_type), header.architecture in _ENCODERS, projector)


def serves_embeddings(options: LaunchOptions, facts: ModelFacts) -> bool:
    """Whether the engine will make embeddings."""
    if options.reranking or options.embeddings == "on":
        return True
    made_for_it = facts.pooling or facts.encoder or options.pooling is not None
    return options.embeddings == "auto" and made_for_it


def projector_of(options: LaunchOptions, facts: ModelFacts) -> str | None:
    """The projector's file that will be loaded."""
    if options.mmproj_auto is False:
        return None
    return options.mmproj or (facts.projector if options.mmproj_auto else None)
