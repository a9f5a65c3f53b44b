"""Which tensors of a model's files mlx-lm leaves out: what `sanitize` of its models takes away."""

from __future__ import annotations

import itertools
from typing import Final

_DIGITS: Final = 9  # of a layer's number; no model has one with more
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
    return any(part == "layers" and place.isdecimal() and _is_beyond(place, layers) for part, place in following)


def _is_beyond(number: str, layers: int) -> bool:
    """Return whether a layer's number is none of the model's; Python reads no number of thousands of digits."""
    return len(number) > _DIGITS or int(number) >= layers
