"""The modes of recovery that a configuration or a request may choose."""

from __future__ import annotations

from typing import Literal, get_args

ToolMode = Literal["auto", "native", "recover", "raw", "off"]
"""recover: calls that the engine has parsed, and those in the text. raw: the engine's parser is left out, its text is
read by us. auto: `recover`, and `raw` once the engine's parser has failed on a model's answers. native: only what the
engine has parsed, seen to that it is well-formed. off: everything as it comes."""

TOOL_MODES: tuple[ToolMode, ...] = get_args(ToolMode)
