"""Which tensors of a model's files mlx-lm leaves out: what `sanitize` of its models takes away."""

from __future__ import annotations

import itertools
from typing import Final

_PARTS: Final = frozenset({
    *("vision_tower", "vision_model", "visual", "vision_encoder", "multi_modal_projector", "mm_projector"),
    *("audio_tower", "embed_audio", "embed_vision", "vision_embedder", "patch_merge_mlp", "mtp", "inv_freq"),
})


def is_dropped(name: str, layers: int, tied: bool) -> bool:
    """Return whether a tensor is not loaded.

    Args:
        layers: of the model; what the files have beyond them is for drafting.
        tied: the output matrix is that of the embeddings.
    """
    parts = name.split(".")
    if not _PARTS.isdisjoint(parts) or (tied and "lm_head" in parts):
        return True
    following = itertools.pairwise(parts)
    return any(part == "layers" and place.isdecimal() and int(place) >= layers for part, place in following)
