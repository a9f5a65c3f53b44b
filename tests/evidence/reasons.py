"""Why figures differ: by part, and architecture or family. What is not here is reported as unknown."""

from __future__ import annotations

_TIED = (
    "without a device, the fit pass counts tied embeddings twice: these models ask for the output first, so that it "
    "is not found as a copy. The file is mapped once; the estimate counts it once."
)

REASONS: dict[tuple[str, str], str] = {("weights", "gemma3n"): _TIED, ("weights", "gemma4"): _TIED}

_TINY = "fixtures of upstream's size, whose buffers are a few MiB: terms that overlap in time are added, as a bound"
_SPARSE = "sparse attention: what overlaps in time is added, as a bound, which shows most where a choice is small"
_NARROW = "narrow fixtures, whose states or indexer's queries are wider than the residual stream: all of it is added"
_SPREAD = "caches or experts kept on the host (-nkvo, -cmoe), where every device is given the largest of its terms"

ABOVE: dict[str, str] = {
    "glm4moe": f"{_TINY}; {_SPREAD}",
    "gpt-oss": _SPREAD,
    "granitehybrid": f"{_TINY}; two devices, of which one holds only recurrent layers",
    "mamba2": _SPREAD,
    "qwen3next": _SPREAD,
    "qwen35": _NARROW,
    "other deepseek4": _NARROW,
    "other dsa": _SPARSE,
    "other hybrid": _TINY,
    "other iswa": f"{_TINY}; {_SPREAD}",
    "other none": _TINY,
    "other plain": f"{_TINY}; cogvlm, which has wide parts that its graph for text lacks",
}
"""Why the bound of a family's compute buffer is, in its worst case, more than half above the log."""
