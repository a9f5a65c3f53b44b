"""What stands behind calls and means nothing by itself: closing tags of every format, texts of end tokens."""

from __future__ import annotations

from typing import Final

from supervisor.core.toolcalls.source import Literals

_TAGS: Final = (
    *("</tool_call>", "</seed:tool_call>", "</longcat_tool_call>", "</minimax:tool_call>", "</tool_calls>", "</tools>"),
    *("</function>", "</invoke>", "</function_calls>", "</function_call>", "</function-call>", "</TOOLCALL>"),
    *("</atem:function_calls>", "</atem:invoke>", "</function_calls>", "</invoke>", "</steptml:invoke>"),
    *(
        "</｜DSML｜invoke>",
        "</｜DSML｜function_calls>",
        "</｜DSML｜tool_calls>",
        "</｜DSML｜ calls>",
        "</｜DSML｜calls>",
    ),
    *("]<]minimax[>[</invoke>", "]<]minimax[>[</tool_call>", "[/TOOL_CALLS]", "</parameter>", "</arg_value>"),
)
_TOKENS: Final = (
    *("<tool_call|>", "<|/tool_call|>", "<|/tool_calls|>", "<end_function_call>", "<|tool_call_end|>"),
    *("<|tool_calls_section_end|>", "<|python_end|>", "<|tools_suffix|>", "<|END_ACTION|>", "<|action_end|>"),
    *("<|tool_call:end|>", "<|close|>call<|sep|>", "<|close|>tools<|sep|>", "✿RESULT✿"),
    *("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜tool_call_end｜>", "<｜tool_calls_end｜>"),
    *("<｜tool call end｜>", "<｜tool calls end｜>", "<｜tool\\_call\\_end｜>", "<｜tool\\_calls\\_end｜>"),
)
ENDS: Final = (
    *("<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|call|>", "<|calls|>", "<|end|>", "<|end_message|>", "</s>"),
    *("<turn|>", "<｜end▁of▁sentence｜>", "<|role_end|>", "<end_of_sentence>", "<|eom|>", "<|eot|>", "<end_of_turn>"),
    *("<|end_of_text|>", "<|endoftext|>", "<|end_of_msg|>", "<|return|>"),
)

CLOSERS: Final = frozenset({*_TAGS, *_TOKENS, *ENDS})
CLOSER_LITERALS: Final = Literals(CLOSERS)
END_LITERALS: Final = Literals(ENDS)

THINK: Final[dict[str, str]] = {
    "<think>": "</think>",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
    "[THINK]": "[/THINK]",
    "<|channel>thought": "<channel|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
}
"""How a think block begins → how it ends."""

THINK_CLOSERS: Final = frozenset(THINK.values()) - {"<|end|>"}
