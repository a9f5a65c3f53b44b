"""The texts for comparing streamed and single answers of a real llama-server; a word of the last message picks one."""

from __future__ import annotations

from supervisor.demo.script import Reply, Script

FOLD_SCRIPT = Script(
    name="fold",
    default="Hello there, I am a toy. STOP here and go on a bit more.",
    replies=(
        Reply("hello", "Hello there, I am a toy. STOP here and go on a bit more."),
        Reply("think", "<think>\nLet me ponder.\n</think>\n\nForty-two it is."),
        Reply(
            "tool",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "unit": "c"}}\n</tool_call>',
        ),
        Reply(
            "pair",
            'Sure, both.\n<tool_call>\n{"name": "alpha", "arguments": {"x": 1}}\n</tool_call>\n'
            '<tool_call>\n{"name": "beta", "arguments": {}}\n</tool_call>',
        ),
        Reply("signs", "ü€😀 züge — naïve 日本語です"),
        Reply("empty", "<think>\n\n</think>\n\n"),
        Reply("literal", 'say "prompt_progress": {} and end'),
    ),
)
