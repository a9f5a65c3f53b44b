"""Why figures differ: by part, and architecture or family. What is not here is reported as unknown."""

from __future__ import annotations

_TIED = (
    "without a device, the fit pass counts tied embeddings twice: these models ask for the output first, so that it "
    "is not found as a copy. The file is mapped once; the estimate counts it once."
)

REASONS: dict[tuple[str, str], str] = {("weights", "gemma3n"): _TIED, ("weights", "gemma4"): _TIED}
