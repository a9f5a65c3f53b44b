"""Write the chat template of a script: Jinja that renders the conversation and picks what is said next.

The `chatml` template uses the markers by which the engine recognises Hermes tool calls and `<think>` blocks. The last
token of the prompt is a control token, the start of one text (`script.Line`).

A call of the first offered tool cannot be a fixed text: its name is known only from the request. The template itself
begins the call, after an empty think block; the engine's parser reads everything from that block on as the
assistant's, and the model says the rest (`CALL_END`).
"""

from __future__ import annotations

import json

from supervisor.demo.script import Script, start_token

_BETWEEN_WORDS = "\t\r\n.,;:!?\"'`()[]{}<>*/…“”„‘’«»"

_TOOLS_BEFORE = (
    r"# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    r"You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_AFTER = (
    r"\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    r"within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    r"{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
)

_CHATML = """\
{%- if tools %}
    {{- "<|im_start|>system\\n" }}
    {%- if messages[0].role == "system" %}
        {{- messages[0].content + "\\n\\n" }}
    {%- endif %}
    {{- "TOOLS_BEFORE" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "TOOLS_AFTER<|im_end|>\\n" }}
{%- elif messages[0].role == "system" %}
    {{- "<|im_start|>system\\n" + messages[0].content + "<|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" %}
        {{- "<|im_start|>assistant\\n" }}
        {%- if message.reasoning_content %}
            {{- "<think>\\n" + message.reasoning_content + "\\n</think>\\n\\n" }}
        {%- endif %}
        {%- if message.content %}
            {{- message.content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and message.content) or not loop.first %}
                    {{- "\\n" }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- "<tool_call>\\n{\\"name\\": \\"" + tool_call.name + "\\", \\"arguments\\": " }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- "}\\n</tool_call>" }}
            {%- endfor %}
        {%- endif %}
        {{- "<|im_end|>\\n" }}
    {%- elif message.role == "tool" %}
        {{- "<|im_start|>user\\n<tool_response>\\n" + message.content + "\\n</tool_response><|im_end|>\\n" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|im_start|>assistant\\n" }}
CHOICE{%- endif %}
""".replace("TOOLS_BEFORE", _TOOLS_BEFORE).replace("TOOLS_AFTER", _TOOLS_AFTER)

_PLAIN = """\
{%- for message in messages %}
    {{- message.role + ": " + (message.content or "") + "\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "assistant: " }}
CHOICE{%- endif %}
"""

# The smallest value that a schema's types and enums allow; `$ref`, patterns and limits are beyond it. Free text is the
# last word of the message, but for its first, that has a capital letter: of "What is the weather in Paris?" Paris.
_SAMPLE = """\
{%- set said = namespace(name="demo") %}
{%- macro sample(schema) %}
    {%- set options = schema.anyOf or schema.oneOf %}
    {%- set type = schema.type if schema.type is string else (schema.type or ["string"])[0] %}
    {%- if schema.const is defined %}
        {{- schema.const | tojson }}
    {%- elif schema.enum %}
        {{- schema.enum[0] | tojson }}
    {%- elif options %}
        {{- sample(options[0]) }}
    {%- elif type == "integer" or type == "number" %}
        {{- schema.minimum or 1 }}
    {%- elif type == "boolean" %}
        {{- "true" }}
    {%- elif type == "null" %}
        {{- "null" }}
    {%- elif type == "array" %}
        {{- "[" + (sample(schema["items"]) if schema.minItems else "") + "]" }}
    {%- elif type == "object" %}
        {{- "{" }}
        {%- set ns = namespace(comma="") %}
        {%- for name, value in (schema.properties or {}).items() %}
            {%- if name in (schema.required or []) %}
                {{- ns.comma + (name | tojson) + ": " + sample(value) }}
                {%- set ns.comma = ", " %}
            {%- endif %}
        {%- endfor %}
        {{- "}" }}
    {%- else %}
        {{- said.name | tojson }}
    {%- endif %}
{%- endmacro %}
"""

_CALL = """\
        {%- set function = tools[0].function %}
        {{- "<think>\\n\\n</think>\\n\\n<tool_call>\\n{\\"name\\": \\"" + function.name + "\\", \\"arguments\\": " }}
        {%- set wanted = function.parameters or {} %}
        {%- for word in words.said.split(" ") %}
            {%- if not loop.first and word | length > 1 and word | lower != word %}
                {%- set said.name = word %}
            {%- endif %}
        {%- endfor %}
        {{- sample({"type": "object", "properties": wanted.properties, "required": wanted.required}) }}
"""


def chat_template(script: Script) -> str:
    """Return the Jinja source that goes into the model's header."""
    macros = _SAMPLE if script.call_first_tool else ""
    return macros + (_CHATML if script.template == "chatml" else _PLAIN).replace("CHOICE", _choice(script))


def _choice(script: Script) -> str:
    """Return the if/elif chain over the last message; the order is documented at `Script`."""
    branches: list[tuple[str, str]] = []
    if script.after_tool is not None:
        branches.append(('last.role == "tool"', _say("after-tool")))
    for reply in script.replies:
        branches.append((f'" {reply.word} " in words.text', _say(f"word:{reply.word}")))
    if script.tools is not None:
        branches.append(("tools", _say("tools")))
    if script.call_first_tool:
        branches.append(("tools", _CALL))
    if not branches:
        return _say("default")
    chain = "".join(
        f"    {{%- {'elif' if position else 'if'} {condition} %}}\n{body}"
        for position, (condition, body) in enumerate(branches)
    )
    return f"{_words()}{chain}    {{%- else %}}\n{_say('default')}    {{%- endif %}}\n"


def _words() -> str:
    """Return the Jinja that sets `last`; `words.said`, the last message without marks.

    `words.text`, its lower-case words.
    """
    return (
        "    {%- set last = messages[-1] %}\n"
        '    {%- set words = namespace(text=(last.content or ""), said="") %}\n'
        f"    {{%- for mark in {json.dumps(list(_BETWEEN_WORDS), ensure_ascii=False)} %}}\n"
        '        {%- set words.text = words.text.replace(mark, " ") %}\n'
        "    {%- endfor %}\n"
        "    {%- set words.said = words.text %}\n"
        '    {%- set words.text = " " + words.text | lower + " " %}\n'
    )


def _say(name: str) -> str:
    return f'        {{{{- "{start_token(name)}" }}}}\n'
