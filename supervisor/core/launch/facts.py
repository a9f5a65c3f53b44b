"""The facts of a model that a launch needs, and what follows from them and the options."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.gguf import GgufHeader
from supervisor.core.options import LaunchOptions
from supervisor.core.spec import lookup


@dataclass(frozen=True)
class ModelFacts:
    """The facts that a launch needs: the header's pooling, whether it is an encoder, the projector beside it.

    thinks: whether it reasons where nobody says; None: as its template has it.
    """

    pooling: bool = False
    encoder: bool = False
    projector: str | None = None
    thinks: bool | None = None


def facts_of(header: GgufHeader, projector: str | None = None) -> ModelFacts:
    """Return the facts of a header; pooling type 0 is "none" (llama.cpp's `llama_pooling_type`)."""
    encoder = lookup(header.architecture or "").only_embeds
    return ModelFacts(bool(header.pooling_type), encoder, projector, _thinks(header))


def _thinks(header: GgufHeader) -> bool | None:
    width = header.integer(f"{header.architecture}.embedding_length")
    return False if width and width < lookup(header.architecture or "").thinks_from else None


def serves_embeddings(options: LaunchOptions, facts: ModelFacts) -> bool:
    """Return whether the engine will serve embeddings."""
    if options.reranking or options.embeddings == "on":
        return True
    made_for_it = facts.pooling or facts.encoder or options.pooling is not None
    return options.embeddings == "auto" and made_for_it


def projector_of(options: LaunchOptions, facts: ModelFacts) -> str | None:
    """Return the file of the projector that will be loaded."""
    if options.mmproj_auto is False:
        return None
    return options.mmproj or (facts.projector if options.mmproj_auto else None)
