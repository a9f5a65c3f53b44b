"""What goes wrong in the wild, and what it has to come to: a call where the meaning is certain, else text."""

from __future__ import annotations

from tests.core.toolcalls.corpus import NOON, PARIS, PING, ROME, TOOLS, Case

_J = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
_R = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
_M3 = "]<]minimax[>["
_HEAD = "<tool_call>\n<function=get_weather>\n<parameter=city>\n"
_XML = f"{_HEAD}Paris\n</parameter>\n</function>\n</tool_call>"
_FILE = "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n"
_KIMI_ARGS = '<|tool_call_argument_begin|>{"city": "Paris"}'
_GLM_CITY = "<arg_key>city</arg_key><arg_value>Paris</arg_value>"

ONE = (PARIS,)
TWO = (PARIS, ROME)


def hermes(body: str, id: str, calls: tuple[object, ...] = ONE, **more: object) -> Case:
    """A case of JSON between `<tool_call>` tags."""
    return Case(id, f"<tool_call>\n{body}\n</tool_call>", calls, dialect="hermes", **more)  # type: ignore[arg-type]  # a shorthand


def kept(id: str, text: str, **more: object) -> Case:
    """A case in which everything stays text."""
    return Case(id, text, (), text, **more)  # type: ignore[arg-type]  # a shorthand


def wrote(content: str) -> tuple[tuple[str, dict[str, str]], ...]:
    return (("write_file", {"path": "a", "content": content}),)


_NESTED = f'He said: <tool_call>{_R}</tool_call> and "stop"'
_ESCAPED = _NESTED.replace("\\", "\\\\").replace('"', '\\"')

CASES = [
    Case("M1", f"<tool_call>\n{_J}", ONE, dialect="hermes"),
    Case("M1-partial-closer", f"<tool_call>\n{_J}\n</tool_c", ONE, dialect="hermes"),
    Case("M1-array", f"[TOOL_CALLS] [{_J}", ONE, dialect="mistral-v7"),
    Case("M1-fence", f"```json\n{_J}\n", ONE, dialect="qwen2.5-coder"),
    Case("M1-action", f"<|START_ACTION|>[{_J}", ONE, dialect="command-r7b"),
    Case("M1-kimi", f"<|tool_call_begin|>functions.get_weather:0{_KIMI_ARGS}", ONE, dialect="kimi-k2"),
    Case("M2", f"<tool_call>\n{_J}\n<tool_call>\n{_R}\n</tool_call>", TWO, dialect="hermes"),
    Case(
        "M2-xml",
        f"{_HEAD}Paris\n</parameter>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n"
        "</parameter>\n</function>\n</tool_call>",
        TWO,
        dialect="qwen3-coder",
    ),
    Case(
        "M2-xml-function",
        f"{_HEAD}Paris\n</parameter>\n</function>\n<tool_call>\n<function=get_weather>\n"
        "<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
        TWO,
        dialect="qwen3-coder",
    ),
    Case("M2-glm", f"<tool_call>get_weather{_GLM_CITY}<tool_call>ping</tool_call>", (PARIS, PING), dialect="glm-4.7"),
    hermes(_J[:-1], "M3"),
    hermes(_J[:-2], "M3-two"),
    hermes(
        '{"name": "search", "arguments": {"query": "x", "tags": ["a"}}',
        "M3-bracket",
        (("search", {"query": "x", "tags": ["a"]}),),
    ),
    Case(
        "M3-array", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}]', ONE, dialect="mistral-v7"
    ),
    Case("M3-end", f"<tool_call>\n{_J[:-1]}", ONE, dialect="hermes"),
    kept("M3-in-string", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par\n</tool_call>'),
    hermes(_J + "}", "M4"),
    hermes("{" + _J + "}", "M4-doubled"),
    hermes('{"name": "get_weather", "arguments": {{"city": "Paris"}}}', "M4-doubled-arguments"),
    Case("M4-bare", _J + "}", ONE, dialect="qwen2.5-coder"),
    hermes("{'name': 'get_weather', 'arguments': {'city': 'Paris'}}", "M5"),
    hermes(
        "{'name': 'search', 'arguments': {'query': \"it's\", 'exact': True, 'note': None, 'limit': 3}}",
        "M5-words",
        (("search", {"query": "it's", "exact": True, "note": None, "limit": 3}),),
    ),
    hermes(
        "{'name': 'get_weather', 'arguments': {'city': 'L\\'Aquila \"x\"'}}",
        "M5-escape",
        (("get_weather", {"city": 'L\'Aquila "x"'}),),
    ),
    hermes(
        '{"name": "search", "arguments": {"query": "x", "exact": True, "note": None}}',
        "M5-words-in-json",
        (("search", {"query": "x", "exact": True, "note": None}),),
    ),
    hermes('{"name": "get_weather", "arguments": {"city": "Paris",},}', "M6"),
    hermes(
        '{"name": "search", "arguments": {"query": "a,}", "tags": ["x", "y",],}}',
        "M6-array",
        (("search", {"query": "a,}", "tags": ["x", "y"]}),),
    ),
    hermes(
        '{"name": "write_file", "arguments": {"path": "a", "content": "one\n\ttwo\x01"}}', "M7", wrote("one\n\ttwo\x01")
    ),
    hermes('{\\n "name": "get_weather",\\n\\t"arguments": {"city": "Paris"}\\n}', "M8"),
    hermes(
        '{"name": "write_file", "arguments": {"path": "a", "content": "C:\\dir \\d+"}}',
        "M8-escapes",
        wrote("C:\\dir \\d+"),
    ),
    hermes(
        '{"name": "write_file", "arguments": {"path": "a", "content": "\\u12 \\é"}}', "M8-unicode", wrote("\\u12 \\é")
    ),
    kept("M9", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par"is"}}\n</tool_call>'),
    Case(
        "M9-then",
        f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "say "hi" there"}}}}\n</tool_call>\n'
        f"<tool_call>\n{_J}\n</tool_call>",
        ONE,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "say "hi" there"}}\n</tool_call>\n',
        dialect="hermes",
    ),
    hermes('{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}', "M10"),
    hermes('{"name": "ping", "arguments": ""}', "M10-empty", (PING,)),
    kept("M10-no-object", '<tool_call>\n{"name": "get_weather", "arguments": "Paris"}\n</tool_call>'),
    kept("M10-number", '<tool_call>\n{"name": "get_weather", "arguments": 3}\n</tool_call>'),
    kept("M10-list", '<tool_call>\n{"name": "get_weather", "arguments": ["Paris"]}\n</tool_call>'),
    hermes(
        '{"name": "search", "arguments": {"query": "[1]", "tags": "[\\"a\\"]", "filter": "{\\"k\\": 1}"}}',
        "M11",
        (("search", {"query": "[1]", "tags": ["a"], "filter": {"k": 1}}),),
    ),
    hermes(
        '{"name": "search", "arguments": {"query": {"a": [1, true]}, "limit": "3"}}',
        "M12",
        (("search", {"query": '{"a": [1, true]}', "limit": "3"}),),
    ),
    hermes('{"arguments": {"city": "Paris"}, "name": "get_weather"}', "M13"),
    hermes('{"tool_name": "get_weather", "parameters": {"city": "Paris"}}', "M13-tool-name"),
    hermes('{"function": "get_weather", "args": {"city": "Paris"}}', "M13-function"),
    hermes(
        '{"id": "call_5", "type": "function", "name": "get_weather", "arguments": {"city": "Paris"}}',
        "M13-extra",
        ids=("call_5",),
    ),
    hermes('{"name": "ping"}', "M14", (PING,)),
    hermes('{"name": "ping", "arguments": null}', "M14-null", (PING,)),
    hermes('{"name": "ping", "arguments": None}', "M14-none", (PING,)),
    hermes(f'{{"name": "write_file", "arguments": {{"path": "a", "content": "{_ESCAPED}"}}}}', "M15", wrote(_NESTED)),
    hermes(
        '{"name": "write_file", "arguments": {"path": "a", "content": "</tool_call>"}}',
        "M15-closer",
        wrote("</tool_call>"),
    ),
    Case("M16", f"{_HEAD}Paris\n</parameter>", ONE, dialect="qwen3-coder"),
    Case("M16-parameter", f"{_HEAD}Paris", ONE, dialect="qwen3-coder"),
    Case("M16-partial", f"{_HEAD}Paris\n</param", ONE, dialect="qwen3-coder"),
    Case("M16-wrapper", f"{_HEAD}Paris\n</parameter>\n</tool_call>", ONE, dialect="qwen3-coder"),
    Case("M16-function", f"{_HEAD}Paris\n</parameter>\n</function>", ONE, dialect="qwen3-coder"),
    Case("M16-glm", f"<tool_call>get_weather{_GLM_CITY}", ONE, dialect="glm-4.7"),
    Case("M16-glm-value", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris", ONE, dialect="glm-4.7"),
    Case(
        "M16-invoke", '<invoke name="get_weather">\n<parameter name="city">Paris</parameter>', ONE, dialect="anthropic"
    ),
    Case("M17", f"{_HEAD}Paris\n</function>\n</tool_call>", ONE, dialect="qwen3-coder"),
    Case("M17-end", f"{_HEAD}Paris\n</function>", ONE, dialect="qwen3-coder"),
    Case("M17-next", f"{_HEAD}Paris\n</function>\n{_XML}", (PARIS, PARIS), dialect="qwen3-coder"),
    Case(
        "M18",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n</tool_call>",
        (("get_weather", {"city": "Paris", "days": 3}),),
        dialect="qwen3-coder",
    ),
    Case(
        "M18-unknown",
        f"{_FILE}x\n<parameter=other>\ny\n</parameter>\n</function>\n</tool_call>",
        wrote("x\n<parameter=other>\ny"),
        dialect="qwen3-coder",
    ),
    Case(
        "M18-inline",
        f"{_FILE}x <parameter=path> y\n</parameter>\n</function>\n</tool_call>",
        wrote("x <parameter=path> y"),
        dialect="qwen3-coder",
    ),
    Case("M19", f"{_HEAD}Paris\n</parameter>\n</parameter>\n</function>\n</tool_call>", ONE, dialect="qwen3-coder"),
    Case(
        "M19-middle",
        "<function=get_weather>\n<parameter=city>Paris</parameter></parameter>\n<parameter=days>3</parameter>"
        "</function>",
        (("get_weather", {"city": "Paris", "days": 3}),),
        dialect="qwen3-coder",
    ),
    Case(
        "M20",
        "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        ONE,
        dialect="qwen3-coder",
    ),
    Case(
        "M20-text",
        "Let me see.\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        ONE,
        "Let me see.\n",
        dialect="qwen3-coder",
    ),
    Case(
        "M21",
        f"{_FILE}print('</function>')\nprint('</parameter>')\nprint('<tool_call>')\n</parameter>\n</function>\n"
        "</tool_call>",
        wrote("print('</function>')\nprint('</parameter>')\nprint('<tool_call>')"),
        dialect="qwen3-coder",
    ),
    Case(
        "M21-tags",
        f"{_FILE}<a></parameter> b</function> c</tool_call> d\n</parameter>\n</function>\n</tool_call>",
        wrote("<a></parameter> b</function> c</tool_call> d"),
        dialect="qwen3-coder",
    ),
    Case(
        "M21-glm",
        "<tool_call>write_file<arg_key>path</arg_key><arg_value>a</arg_value><arg_key>content</arg_key>"
        "<arg_value>x</arg_value> y</tool_call> z</arg_value></tool_call>",
        wrote("x</arg_value> y</tool_call> z"),
        dialect="glm-4.7",
    ),
    Case(
        "M22",
        "<tool_call>\n<function=get_weather>\n<parameter=\nbad>\nx\n</parameter>\n<parameter=city>\nParis\n"
        "</parameter>\n</function>\n</tool_call>",
        ONE,
        dialect="qwen3-coder",
    ),
    Case(
        "M22-value-in-tag",
        "<tool_call>\n<function=get_weather>\n<parameter=ids: [1, 2]>\n</parameter>\n<parameter=city>\n"
        "Paris\n</parameter>\n</function>\n</tool_call>",
        ONE,
        dialect="qwen3-coder",
    ),
    Case(
        "M22-twice-equal",
        "<tool_call>\n<function=get_weather>\n<parameter=note=\nx\n</parameter>\n<parameter=city>\nParis\n"
        "</parameter>\n</function>\n</tool_call>",
        ONE,
        dialect="qwen3-coder",
    ),
    Case(
        "M23",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n</parameter>\n</function>\n</tool_call>",
        (("get_weather", {"city": ""}),),
        dialect="qwen3-coder",
    ),
    Case(
        "M23-closed",
        "<function=get_weather><parameter=city></parameter></function>",
        (("get_weather", {"city": ""}),),
        dialect="qwen3-coder",
    ),
    Case(
        "M24",
        "<tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>",
        ONE,
        dialect="qwen3-coder",
    ),
    Case("M24-crlf", _XML.replace("\n", "\r\n"), ONE, dialect="qwen3-coder"),
    Case("M24-one-side", _XML.replace("\nParis", "Paris"), ONE, dialect="qwen3-coder"),
    Case(
        "M24-indent",
        f"{_FILE}\n    x\n  \n</parameter>\n</function>\n</tool_call>",
        wrote("\n    x\n  "),
        dialect="qwen3-coder",
    ),
    Case("M25", "<tool_call>get_weather<arg_key>city</arg_key>Paris</arg_value></tool_call>", ONE, dialect="glm-4.7"),
    Case(
        "M25-no-first-key",
        "<tool_call>get_weathercity</arg_key><arg_value>Paris</arg_value></tool_call>",
        ONE,
        dialect="glm-4.7",
    ),
    Case(
        "M25-line-key",
        "<tool_call>get_weather\ncity</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
        ONE,
        dialect="glm-4.5",
    ),
    Case(
        "M25-opener-as-key",
        "<tool_call>get_weather<tool_call>city</arg_key><arg_value>Paris</arg_value></tool_call>",
        ONE,
        dialect="glm-4.7",
    ),
    Case("M25-stray", f"<tool_call>get_weather</arg_value>{_GLM_CITY}</tool_call>", ONE, dialect="glm-4.7"),
    Case(
        "M26",
        f"<|tool_call_begin|>functions.get_weather:0{_KIMI_ARGS}<|tool_call_end|>",
        ONE,
        dialect="kimi-k2",
        ids=("functions.get_weather:0",),
    ),
    Case(
        "M26-spaces",
        "<|tool_calls_section_begin|> <|tool_call_begin|> functions.get_weather:0 <|tool_call_argument_begin|> "
        '{"city": "Paris"} <|tool_call_end|> <|tool_calls_section_end|>',
        ONE,
        dialect="kimi-k2",
    ),
    Case(
        "M26-name",
        f"<|tool_calls_section_begin|><|tool_call_begin|>get_weather{_KIMI_ARGS}<|tool_call_end|>",
        ONE,
        dialect="kimi-k2",
        ids=("call_0",),
    ),
    Case(
        "M26-no-number",
        f"<|tool_call_begin|>functions.get_weather{_KIMI_ARGS}<|tool_call_end|>",
        ONE,
        dialect="kimi-k2",
    ),
    Case(
        "M26-text-between",
        "<|tool_calls_section_begin|>I will look.\n<|tool_call_begin|>functions.get_weather:0"
        f"{_KIMI_ARGS}<|tool_call_end|><|tool_calls_section_end|>",
        ONE,
        "I will look.\n",
        dialect="kimi-k2",
    ),
    Case("M27", '<|tool_call>call:get_weather{city:"Paris"}<tool_call|>', ONE, dialect="gemma-4"),
    Case("M27-single", "<|tool_call>call:get_weather{city:'Paris'}<tool_call|>", ONE, dialect="gemma-4"),
    Case("M27-bare", "<|tool_call>call:get_weather{city:Paris}<tool_call|>", ONE, dialect="gemma-4"),
    Case(
        "M27-comma",
        "<|tool_call>call:get_weather{city:Paris, France,days:3}<tool_call|>",
        (("get_weather", {"city": "Paris, France", "days": 3}),),
        dialect="gemma-4",
    ),
    Case(
        "M27-space",
        '<|tool_call>call:get_weather{city: "Paris", "days": 2}<tool_call|>',
        (("get_weather", {"city": "Paris", "days": 2}),),
        dialect="gemma-4",
    ),
    Case("M27-parentheses", '<|tool_call>call:get_weather(city="Paris")<tool_call|>', ONE, dialect="gemma-4"),
    Case("M27-no-wrapper", 'call:get_weather{city:<|"|>Paris<|"|>}', ONE, dialect="gemma-4"),
    Case("M27-line", "I look.\ncall:get_weather{city:Paris}\n", ONE, "I look.\n", dialect="gemma-4"),
    Case("M27-no-brace", '<|tool_call>call:get_weather{city:<|"|>Paris<|"|><tool_call|>', ONE, dialect="gemma-4"),
    Case(
        "M28",
        '<|channel|>commentary to=get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
        ONE,
        dialect="harmony",
    ),
    Case(
        "M28-glued",
        '<|start|>assistant to=functions.get_weather<|channel|>commentary<|message|>{"city": "Paris"}<|call|>',
        ONE,
        dialect="harmony",
    ),
    Case(
        "M28-twice",
        "<|channel|>commentary to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>"
        '{"city": "Paris"}',
        ONE,
        dialect="harmony",
    ),
    kept("M28-no-recipient", '<|channel|>commentary<|message|>{"city": "Paris"}<|call|>'),
    kept("M29", 'commentary to=functions.get_weather json{"city":"Paris"}'),
    Case("M30", f"```\n<tool_call>\n{_J}\n</tool_call>\n```", ONE, dialect="hermes"),
    Case("M30-xml", f"```xml\n{_XML}\n```\n", ONE, dialect="qwen3-coder"),
    kept("M30-text", f"Like this:\n```json\n{_J}\n```\n"),
    kept("M30-after", f"```json\n{_J}\n```\nThat is how it looks."),
    Case(
        "M31", f"<think>\nI need it.\n<tool_call>\n{_J}\n</tool_call>", ONE, reasoning="I need it.\n", dialect="hermes"
    ),
    Case(
        "M31-channel",
        "",
        ONE,
        reasoning="I need it.\n",
        reasoning_in=f"I need it.\n<tool_call>\n{_J}\n</tool_call>\n",
        dialect="hermes",
    ),
    Case("M31-two", "", (PARIS, PARIS), reasoning="Hm.", reasoning_in=f"Hm.{_XML}\n{_XML}", dialect="qwen3-coder"),
    Case(
        "M31-kimi",
        "",
        ONE,
        reasoning="Hm. ",
        reasoning_in=f"Hm. <|tool_call_begin|>functions.get_weather:0{_KIMI_ARGS}<|tool_call_end|>",
        dialect="kimi-k2",
    ),
    Case(
        "M31-dsml",
        "",
        ONE,
        reasoning="Hm.\n",
        dialect="deepseek-v3.2",
        reasoning_in='Hm.\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter '
        'name="city" string="true">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    ),
    Case(
        "M31-not-last",
        f"<think>\n<tool_call>\n{_J}\n</tool_call>\nNo, wait.",
        (),
        reasoning=f"<tool_call>\n{_J}\n</tool_call>\nNo, wait.",
    ),
    Case(
        "M31-content",
        "Paris.",
        (),
        "Paris.",
        f"<tool_call>\n{_J}\n</tool_call>",
        reasoning_in=f"<tool_call>\n{_J}\n</tool_call>",
    ),
    Case(
        "M31-cut",
        "",
        (),
        "",
        f"<tool_call>\n{_J}\n</tool_call>",
        reasoning_in=f"<tool_call>\n{_J}\n</tool_call>",
        finish="length",
    ),
    Case(
        "M32",
        f"<think>\nI could call <tool_call>{_J}</tool_call>\n</think>\n\nNo need.",
        (),
        "No need.",
        f"I could call <tool_call>{_J}</tool_call>",
    ),
    Case("M32-only", f"<think>\n<tool_call>{_J}</tool_call>\n</think>", (), "", f"<tool_call>{_J}</tool_call>"),
    Case(
        "M32-then",
        f"<think><tool_call>{_R}</tool_call></think><tool_call>{_J}</tool_call>",
        ONE,
        "",
        f"<tool_call>{_R}</tool_call>",
        dialect="hermes",
    ),
    kept("M33", "Models write `<tool_call>` before a call."),
    kept("M33-prose", "The <tool_call> tag is what Hermes uses, closed by </tool_call>."),
    kept("M33-inline", f"Write `<tool_call>{_J}</tool_call>` for it."),
    Case("M33-stray-backtick", f"It`s cold.\n<tool_call>\n{_J}\n</tool_call>", ONE, "It`s cold.\n", dialect="hermes"),
    Case(
        "M33-then",
        f"With `<tool_call>` it goes:\n<tool_call>\n{_J}\n</tool_call>",
        ONE,
        "With `<tool_call>` it goes:\n",
        dialect="hermes",
    ),
    kept("M34", '{"name": "Bingo", "age": 3}'),
    kept("M34-known", '{"name": "get_weather", "city": "Paris"}'),
    kept("M34-name-only", '{"name": "ping"}'),
    kept("M34-unknown", '{"name": "Bingo", "arguments": {"city": "Paris"}}'),
    hermes('{"name": "functions.get_weather", "arguments": {"city": "Paris"}}', "M35"),
    hermes('{"name": "get_weather:0", "arguments": {"city": "Paris"}}', "M35-number"),
    hermes('{"name": "Get-Weather", "arguments": {"city": "Paris"}}', "M35-fold"),
    hermes(
        '{"name": "mcp__fs__read_file", "arguments": {"path": "a"}}',
        "M35-dash",
        (("mcp__fs__read-file", {"path": "a"}),),
    ),
    hermes('{"name": "default_api.get weather", "arguments": {"city": "Paris"}}', "M35-blank"),
    kept("M35-suffix", '<tool_call>\n{"name": "get_weather_tool", "arguments": {"city": "Paris"}}\n</tool_call>'),
    kept("M35-doubled", '<tool_call>\n{"name": "pingping", "arguments": {}}\n</tool_call>'),
    Case(
        "M35-ambiguous",
        '<tool_call>{"name": "a_b", "arguments": {}}</tool_call>',
        (),
        '<tool_call>{"name": "a_b", "arguments": {}}</tool_call>',
        tools=[{"function": {"name": "A-b"}}, {"function": {"name": "a.B"}}],
    ),
    kept("M36", '<tool_call>\n{"name": "launch", "arguments": {"city": "Paris"}}\n</tool_call>'),
    Case(
        "M36-neighbour",
        f'<tool_call>\n{{"name": "launch", "arguments": {{}}}}\n</tool_call>\n<tool_call>\n{_J}\n</tool_call>',
        ONE,
        '<tool_call>\n{"name": "launch", "arguments": {}}\n</tool_call>\n',
        dialect="hermes",
    ),
    Case(
        "M36-before",
        f'<tool_call>\n{_J}\n</tool_call>\n<tool_call>\n{{"name": "launch", "arguments": {{}}}}\n</tool_call>',
        ONE,
        '\n<tool_call>\n{"name": "launch", "arguments": {}}\n</tool_call>',
        dialect="hermes",
    ),
    Case(
        "M36-in-array",
        f'[TOOL_CALLS] [{_J}, {{"name": "launch", "arguments": {{}}}}, {_R}]',
        TWO,
        ', {"name": "launch", "arguments": {}}',
        dialect="mistral-v7",
    ),
    kept("M36-nested", "<function=launch>\n<parameter=x>\n<function=ping>\n</function>\n</parameter>\n</function>"),
    Case(
        "M36-forward",
        '<tool_call>\n{"name": "launch", "arguments": {"x": 1}}\n</tool_call>',
        (("launch", {"x": 1}),),
        dialect="hermes",
        options={"forward_unknown": True},
    ),
    Case("M37", f"<tool_call>\n{_J}\n</tool_call>\n<tool_call>\n{_J}\n</tool_call>", (PARIS, PARIS), dialect="hermes"),
    Case("M38", f"<tool_call>\n{_J}\n</tool_call>", ONE, dialect="hermes"),
    kept("M39", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par', finish="length"),
    Case(
        "M39-earlier",
        f'<tool_call>\n{_J}\n</tool_call>\n<tool_call>\n{{"name": "get_weather", "arg',
        ONE,
        '\n<tool_call>\n{"name": "get_weather", "arg',
        finish="length",
        dialect="hermes",
    ),
    kept("M39-xml", f"{_HEAD}Par", finish="length"),
    kept("M39-xml-closed", f"{_HEAD}Paris\n</parameter>", finish="length"),
    kept("M39-glm", f"<tool_call>get_weather{_GLM_CITY}", finish="length"),
    kept("M39-gemma", "<|tool_call>call:get_weather{city:Par", finish="length"),
    kept("M39-m3-between", f'{_M3}<invoke name="search">{_M3}<query>x{_M3}</query>', finish="length"),
    kept("M39-m3-nested", f'{_M3}<invoke name="search">{_M3}<filter>{_M3}<k>1{_M3}</k>', finish="length"),
    kept("M39-m3-open", f'{_M3}<invoke name="search">{_M3}<filter>{_M3}<k>1{_M3}</k>'),
    Case(
        "M16-m3",
        f'{_M3}<invoke name="search">{_M3}<query>x{_M3}</query>',
        (("search", {"query": "x"}),),
        dialect="minimax-m3",
    ),
    Case(
        "M16-m3-value",
        f'{_M3}<invoke name="search">{_M3}<query>x{_M3}</qu',
        (("search", {"query": "x"}),),
        dialect="minimax-m3",
    ),
    # many brackets beside each other are not many inside each other
    Case(
        "S-siblings-m3",
        f'{_M3}<invoke name="search">{_M3}<tags>'
        + f"{_M3}<item>{_M3}<k>1{_M3}</k>{_M3}</item>" * 120
        + f"{_M3}</tags>{_M3}</invoke>",
        (("search", {"tags": [{"k": 1}] * 120}),),
        dialect="minimax-m3",
    ),
    Case(
        "S-siblings-gemma",
        "<|tool_call>call:search{tags:[" + "{k:[1]}," * 120 + "]}<tool_call|>",
        (("search", {"tags": [{"k": [1]}] * 120}),),
        dialect="gemma-4",
    ),
    Case(
        "S-siblings-python",
        "[search(tags=[" + "{'k': (1,)}," * 120 + "])]",
        (("search", {"tags": [{"k": [1]}] * 120}),),
        dialect="llama-4",
    ),
    hermes(
        '{"name": "search", "arguments": {"tags": [' + ",".join(['{"k": [1]}'] * 120) + "]}}",
        "S-siblings-json",
        (("search", {"tags": [{"k": [1]}] * 120}),),
    ),
    kept("M39-brace", f"<tool_call>\n{_J[:-1]}", finish="length"),
    Case("M39-complete", f"<tool_call>\n{_J}\n</tool_ca", ONE, finish="length", dialect="hermes"),
    hermes(
        '{"name": "search", "arguments": {"query": "\\ud800", "ratio": 1e400, "limit": 12345678901234567890}}',
        "M40",
        (("search", {"query": "\ud800", "ratio": float("inf"), "limit": 12345678901234567890}),),
    ),
    Case("M41", f"<tool_call>\n{_J}\n</tool_call>\nDone.", ONE, "\nDone.", dialect="hermes"),
    Case("M41-end", f"<tool_call>\n{_J}\n</tool_call><|im_end|>\n", ONE, dialect="hermes"),
    Case("M41-ends", f"{_J}<|eot_id|>", ONE, dialect="qwen2.5-coder"),
    Case(
        "M41-later", f"<tool_call>\n{_J}\n</tool_call> That is it.<|im_end|>\n", ONE, " That is it.", dialect="hermes"
    ),
    Case(
        "M42",
        f"Hi{_XML}{_XML}<tool_call>\n{_J}\n</tool_call>and",
        (PARIS, PARIS, PARIS),
        "Hiand",
        dialect="qwen3-coder",
    ),
    Case(
        "M43",
        f"I look.\n</think>\n\n<tool_call>\n{_J}\n</tool_call>",
        ONE,
        "",
        "I look.",
        dialect="hermes",
        options={"think_open": True},
    ),
    Case(
        "M43-unknown",
        f"I look.\n</think>\n\n<tool_call>\n{_J}\n</tool_call>",
        ONE,
        "I look.\n</think>\n\n",
        dialect="hermes",
    ),
    kept("M43-stray", "It is </think> cold."),
    Case("A1-none", f"<tool_call>\n{_J}\n</tool_call>", (), f"<tool_call>\n{_J}\n</tool_call>", tools=None),
    Case(
        "A1-empty",
        f"<think>x</think><tool_call>\n{_J}\n</tool_call>",
        (),
        f"<think>x</think><tool_call>\n{_J}\n</tool_call>",
        tools=[],
    ),
    Case("A1-choice", f"<tool_call>\n{_J}\n</tool_call>", (), f"<tool_call>\n{_J}\n</tool_call>", choice="none"),
    Case(
        "A1-forced",
        f"{_XML}\n<tool_call>ping</tool_call>",
        (PING,),
        f"{_XML}\n",
        dialect="glm-4.7",
        choice={"type": "function", "function": {"name": "ping"}},
    ),
    Case("A1-off", f"{_XML}", (), f"{_XML}", options={"enabled": False}),
    Case("A8-off", "", (), "", _XML, reasoning_in=_XML, options={"think_calls": False}),
    kept("A9-off", _J, options={"bare_json": False}),
    kept("A7-off", f"```json\n{_J}\n```", options={"fence_calls": False}),
    kept("S-strict", _XML, options={"dialects": frozenset({"hermes"})}),
    Case("P-first", f"{_XML}\n{_XML}", ONE, dialect="qwen3-coder", options={"parallel_tool_calls": False}),
    Case("T-python", '<tool_call>get_weather(city="Paris")</tool_call>', ONE, dialect="pythonic"),
    Case(
        "T-unwrapped",
        f"<tool_call>{_J}</tool_call>",
        ONE,
        dialect="hermes",
        tools=[{"type": "function", **TOOLS[0]["function"]}],
    ),
    Case(
        "T-anthropic",
        f"<tool_call>{_J}</tool_call>",
        ONE,
        dialect="hermes",
        tools=[{"name": "get_weather", "input_schema": TOOLS[0]["function"]["parameters"]}],
    ),
    Case(
        "T-mixed",
        f"<tool_call>{_J}</tool_call>\n{_XML}\ncall:get_time{{zone:UTC}}",
        (PARIS, PARIS, NOON),
        dialect="hermes",
    ),
]
