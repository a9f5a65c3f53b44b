"""The dialects: which there are, and who reads what stands behind which marker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.dialects import (
    dsml,
    gemma,
    harmony,
    keyvalue,
    kimi3,
    lines,
    marked,
    minimax3,
    mistral,
    tagged,
    tokens,
    xml,
)  # fmt: skip
from supervisor.core.toolcalls.dialects.closers import CLOSERS, THINK_CLOSERS
from supervisor.core.toolcalls.dialects.tagged import PREFIXED
from supervisor.core.toolcalls.source import Literals, Wait

__all__ = [
    "ANYWHERE",
    "ANYWHERE_LITERALS",
    "DIALECTS",
    "LINE",
    "LINE_LITERALS",
    "OPENER_LITERALS",
    "PREFIXED",
    "Reader",
]


class Reader(Protocol):
    """Reads calls; the source stands behind `opener`.

    Yields signals (see `source`) and returns whether what it has read is calls. If it is not, the source may stand
    anywhere.
    """

    def __call__(self, block: Block, opener: str) -> Wait[bool]: ...


DIALECTS: Final[Mapping[str, str]] = {
    "hermes": "Hermes 2/3, Qwen2.5, Qwen3, QwQ, Granite 4, MiMo, Ernie 4.5, Bielik, Reka Edge",
    "qwen3-coder": "Qwen3-Coder, Qwen3.5 and later, Nemotron 3 Nano, Step 3.5 Flash",
    "seed-oss": "Seed-OSS",
    "glm-4.5": "GLM 4.5, 4.6",
    "glm-4.7": "GLM 4.7 and later, Spark 2.5, Laguna, Ling 3.0",
    "longcat": "LongCat",
    "hunyuan-hy3": "Hunyuan Hy3, Hy4",
    "deepseek-v3": "DeepSeek V3, R1",
    "deepseek-v3.1": "DeepSeek V3.1",
    "deepseek-v3.2": "DeepSeek V3.2, V4 (DSML)",
    "kimi-k2": "Kimi K2, K2.5",
    "kimi-k3": "Kimi K3",
    "minimax-m1": "MiniMax M1, Jamba",
    "minimax-m2": "MiniMax M2",
    "minimax-m3": "MiniMax M3",
    "anthropic": "models distilled from Claude, Muse Glimmer",
    "minicpm5": "MiniCPM5",
    "llama-3-json": "Llama 3.x, JSON",
    "llama-3-builtin": "Llama 3.1, built-in tools",
    "functionary-v3.1": "Functionary v3.1, Llama 3 with custom tools",
    "functionary-v3.2": "Functionary v3.2",
    "llama-4": "Llama 4, xLAM, Granite 3.3: a Python list",
    "lfm2": "LFM2, LFM2.5",
    "olmo-3": "OLMo 3",
    "mistral-v7": "Mistral up to v7: 7B v0.3, Nemo, Large 2407",
    "mistral-v11": "Mistral v11: Small 3.2",
    "mistral-v13": "Mistral v13: Devstral, Magistral, Ministral 3",
    "gemma-3": "Gemma 3",
    "gemma-4": "Gemma 4",
    "functiongemma": "FunctionGemma",
    "harmony": "gpt-oss",
    "granite-3": "Granite 3.x",
    "phi-4-mini": "Phi-4 mini, FireFunction",
    "nemotron-nano-v2": "Nemotron Nano v2",
    "hunyuan-a13b": "Hunyuan A13B, Apriel",
    "command-r7b": "Command R7B, Command A, North",
    "command-r-plus": "Command R+",
    "xlam-2": "xLAM 2, Sarashina: a JSON array",
    "step3": "Step3",
    "apertus": "Apertus",
    "internlm2": "InternLM2, Intern-S1",
    "gigachat-3": "GigaChat 3",
    "solar-open": "Solar Open",
    "inkling": "Inkling",
    "qwen-agent": "Qwen-Agent's prompt",
    "qwen2.5-coder": "Qwen2.5-Coder in practice: JSON in the open or in makeshift tags",
    "openai": "OpenAI's own objects, llama.cpp's generic format",
    "pythonic": "Python in `<tool_call>`",
}
"""Dialect → who speaks it."""

ANYWHERE: Final[Mapping[str, Reader]] = {
    **xml.READERS,
    **tagged.READERS,
    **keyvalue.READERS,
    **marked.READERS,
    **tokens.READERS,
    **dsml.READERS,
    **kimi3.READERS,
    **mistral.READERS,
    **gemma.READERS,
    **harmony.READERS,
    **minimax3.READERS,
    **lines.READERS,
}
"""Markers that count wherever they stand outside of code."""

LINE: Final[Mapping[str, Reader]] = {**marked.LINE_READERS, **gemma.LINE_READERS, **lines.LINE_READERS}
"""Markers that count only at the start of a line."""

OPENER_LITERALS: Final = Literals(ANYWHERE)
ANYWHERE_LITERALS: Final = Literals([*ANYWHERE, *CLOSERS, *THINK_CLOSERS])
LINE_LITERALS: Final = Literals(LINE)
