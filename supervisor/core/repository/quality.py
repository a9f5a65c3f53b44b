"""The order of quality among quantisations of the same model.

It is the order of bits per weight as llama.cpp's `llama-quantize` lists them, and where two take about the same, that
of the perplexities published with them: K-quants before the older ones, `UD-` before the plain kind of the same name.
F32 comes after the 16-bit kinds: nearly every model is published in 16 bits, so that the rest of it is padding.
docs/hub.md shows this list.
"""

from __future__ import annotations

from typing import Final

ORDER: Final = (
    *("BF16", "F16", "F32", "F64"),
    *("Q8_K_XL", "Q8_K", "Q8_0", "Q8_1"),
    *("Q6_K_XL", "Q6_K_L", "Q6_K_M", "Q6_K", "Q6_K_S"),
    *("Q5_K_XL", "Q5_K_L", "Q5_K_M", "Q5_K", "Q5_K_S", "Q5_1", "Q5_0"),
    *("Q4_K_XL", "Q4_K_L", "Q4_K_M", "Q4_K", "MXFP4", "MXFP4_MOE", "NVFP4", "Q4_K_S", "Q4_1", "IQ4_NL", "IQ4_XS"),
    *("Q4_0", "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8"),
    *("Q3_K_XL", "Q3_K_L", "Q3_K_M", "IQ3_M", "Q3_K", "IQ3_S", "Q3_K_S", "IQ3_XS", "IQ3_XXS"),
    *("Q2_K_XL", "Q2_K_L", "Q2_K", "IQ2_M", "Q2_K_S", "IQ2_S", "IQ2_XS", "IQ2_XXS", "TQ2_0", "I2_S"),
    *("IQ1_M", "TQ1_0", "IQ1_S"),
)
"""From the best to the least."""

_RANKS = {quant: number for number, quant in enumerate(ORDER)}
_UNSLOTH = "UD-"


def rank(quant: str) -> tuple[int, int]:
    """Return the sort key of a quantisation: the best comes first, an unknown one last."""
    plain = quant.removeprefix(_UNSLOTH)
    return _RANKS.get(plain, len(ORDER)), 0 if plain != quant else 1
