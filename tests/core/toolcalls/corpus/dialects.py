"""Every dialect as its models write it: one call, two, none, with text and thoughts around."""

from __future__ import annotations

from tests.core.toolcalls.corpus import NOON, PARIS, PING, ROME, Case

_J = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
_R = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
_P = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
_XML = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>"
_INVOKE = '<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>'
_INVOKE_ROME = '<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n</invoke>'
_M3 = "]<]minimax[>["
_DS = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>'
_DS_NONE = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
_DS31 = '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>'
_KIMI = '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'
_KIMI_1 = '<|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{"zone": "UTC"}<|tool_call_end|>'
_K3_ARG = '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
_K3 = f'<|open|>call tool="get_weather" index="1"<|sep|>{_K3_ARG}<|close|>call<|sep|>'
_GEMMA = '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>'


def _prefixed(prefix: str, name: str, key: str, value: str, *, wrapped: bool = True) -> str:
    """Tags with a prefix each."""
    parameter = f'<{prefix}:parameter name="{key}">{value}</{prefix}:parameter>'
    call = f'<{prefix}:invoke name="{name}">\n{parameter}\n</{prefix}:invoke>'
    return f"<{prefix}:function_calls>\n{call}\n</{prefix}:function_calls>" if wrapped else call


def _step3(name: str, key: str, value: str) -> str:
    return _prefixed("steptml", name, key, value, wrapped=False)


ONE = (PARIS,)
TWO = (PARIS, ROME)
MIXED = (PARIS, NOON)

CASES = [
    Case("D1", f"<tool_call>\n{_J}\n</tool_call>", ONE, dialect="hermes"),
    Case("D1-two", f"<tool_call>\n{_J}\n</tool_call>\n<tool_call>\n{_R}\n</tool_call>", TWO, dialect="hermes"),
    Case("D1-text", f"Let me look.\n\n<tool_call>\n{_J}\n</tool_call>", ONE, "Let me look.\n\n", dialect="hermes"),
    Case("D1-after", f"A <tool_call>{_J}</tool_call> B", ONE, "A  B", dialect="hermes"),
    Case(
        "D1-think",
        f"<think>\nThe user wants the weather.\n</think>\n\n<tool_call>\n{_J}\n</tool_call>",
        ONE,
        reasoning="The user wants the weather.",
        dialect="hermes",
    ),
    Case(
        "D1-code",
        '<tool_call>\n{"name": "write_file", "arguments": {"path": "a", "content": ""}}\n</tool_call>',
        (("write_file", {"path": "a", "content": ""}),),
        dialect="hermes",
    ),
    Case("D1-array", f"<tool_call>[{_J}, {_R}]</tool_call>", TWO, dialect="hermes"),
    Case("D1-empty", '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>', (PING,), dialect="hermes"),
    Case("D2", f"<tool_call>\n{_XML}\n</tool_call>", ONE, dialect="qwen3-coder"),
    Case(
        "D2-two",
        f"<tool_call>\n{_XML}\n</tool_call>\n<tool_call>\n{_XML}\n</tool_call>",
        (PARIS, PARIS),
        dialect="qwen3-coder",
    ),
    Case("D2-one-wrapper", f"<tool_call>\n{_XML}\n{_XML}\n</tool_call>", (PARIS, PARIS), dialect="qwen3-coder"),
    Case(
        "D2-types",
        "<tool_call>\n<function=search>\n<parameter=query>\n00501\n</parameter>\n<parameter=limit>\n5\n</parameter>\n"
        "<parameter=ratio>\n0.50\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n"
        '<parameter=tags>\n["a", "b"]\n</parameter>\n<parameter=filter>\n{"k": [1, null]}\n</parameter>\n'
        "<parameter=note>\nNone\n</parameter>\n</function>\n</tool_call>",
        (
            (
                "search",
                {
                    "query": "00501",
                    "limit": 5,
                    "ratio": 0.5,
                    "exact": True,
                    "tags": ["a", "b"],
                    "filter": {"k": [1, None]},
                    "note": None,
                },
            ),
        ),
        dialect="qwen3-coder",
    ),
    Case(
        "D2-code",
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.py\n</parameter>\n<parameter=content>\n"
        "def f():\n    return '<b>' < 1\n\n\n</parameter>\n</function>\n</tool_call>",
        (("write_file", {"path": "a.py", "content": "def f():\n    return '<b>' < 1\n\n"}),),
        dialect="qwen3-coder",
    ),
    Case("D2-empty", "<tool_call>\n<function=ping>\n</function>\n</tool_call>", (PING,), dialect="qwen3-coder"),
    Case(
        "D3",
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n</function>\n</seed:tool_call>",
        ONE,
        dialect="seed-oss",
    ),
    Case(
        "D3-think",
        "<seed:think>Hm.</seed:think><seed:tool_call>\n<function=get_weather>\n"
        "<parameter=city>Paris</parameter>\n</function>\n</seed:tool_call>",
        ONE,
        reasoning="Hm.",
        dialect="seed-oss",
    ),
    Case(
        "D4",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
        ONE,
        dialect="glm-4.5",
    ),
    Case(
        "D4-two",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>\n<tool_call>ping\n</tool_call>",
        (("get_weather", {"city": "Paris", "days": 3}), PING),
        dialect="glm-4.5",
    ),
    Case(
        "D5",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
        ONE,
        dialect="glm-4.7",
    ),
    Case("D5-empty", "<tool_call>ping</tool_call>", (PING,), dialect="glm-4.7"),
    Case(
        "D6",
        "<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n"
        "<longcat_arg_value>Paris</longcat_arg_value>\n</longcat_tool_call>",
        ONE,
        dialect="longcat",
    ),
    Case(
        "D7",
        "<tool_calls:x1>\n<tool_call:x1>get_weather<tool_sep:x1>\n<arg_key:x1>city</arg_key:x1>\n"
        "<arg_value:x1>Paris</arg_value:x1>\n</tool_call:x1>\n<tool_call:x1>ping<tool_sep:x1>\n</tool_call:x1>\n"
        "</tool_calls:x1>",
        (PARIS, PING),
        dialect="hunyuan-hy3",
    ),
    Case("D8-no-arguments", f"{_DS_NONE}ping<｜tool▁sep｜><｜tool▁call▁end｜>", (PING,), dialect="deepseek-v3.1"),
    Case("D8-no-fence", f"{_DS_NONE}function<｜tool▁sep｜>ping\n<｜tool▁call▁end｜>", (PING,), dialect="deepseek-v3"),
    Case("D8", f"<｜tool▁calls▁begin｜>{_DS}<｜tool▁calls▁end｜>", ONE, dialect="deepseek-v3"),
    Case(
        "D8-two",
        f"<｜tool▁calls▁begin｜>{_DS}\n{_DS}<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
        (PARIS, PARIS),
        dialect="deepseek-v3",
    ),
    Case("D8-underscores", f"<｜tool_calls_begin｜>{_DS}<｜tool_calls_end｜>", ONE, dialect="deepseek-v3"),
    Case("D8-blanks", f"<｜tool calls begin｜>{_DS}", ONE, dialect="deepseek-v3"),
    Case("D8-escaped", f"<｜tool\\_calls\\_begin｜>{_DS}", ONE, dialect="deepseek-v3"),
    Case("D8-short", f"<｜tool▁calls｜>{_DS}", ONE, dialect="deepseek-v3"),
    Case("D9", f"<｜tool▁calls▁begin｜>{_DS31}<｜tool▁calls▁end｜>", ONE, dialect="deepseek-v3.1"),
    Case(
        "D9-two", f"<｜tool▁calls▁begin｜>{_DS31}{_DS31}<｜tool▁calls▁end｜>", (PARIS, PARIS), dialect="deepseek-v3.1"
    ),
    Case(
        "D10",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>",
        ONE,
        dialect="deepseek-v3.2",
    ),
    Case(
        "D10-v4",
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="search">\n'
        '<｜DSML｜parameter name="query" string="true">5</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="limit" string="false">5</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="extra" string="false">[1]</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="more" string="true">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="ping">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
        (("search", {"query": "5", "limit": 5, "extra": [1], "more": "[1]"}), PING),
        dialect="deepseek-v3.2",
    ),
    Case(
        "D10-v4.1",
        '<｜DSML｜ calls>\n<｜DSML｜ invoke name="get_weather">\n'
        '<｜DSML｜ parameter name="city" string="true">Paris</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n'
        "</｜DSML｜ calls>",
        ONE,
        dialect="deepseek-v3.2",
    ),
    Case(
        "D10-v4.1-mixed",
        '<｜DSML｜ calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜ calls>",
        ONE,
        dialect="deepseek-v3.2",
    ),
    Case(
        "D11",
        f"<|tool_calls_section_begin|>{_KIMI}<|tool_calls_section_end|>",
        ONE,
        dialect="kimi-k2",
        ids=("functions.get_weather:0",),
    ),
    Case(
        "D11-two",
        f"On it.<|tool_calls_section_begin|>{_KIMI}{_KIMI_1}<|tool_calls_section_end|>",
        MIXED,
        "On it.",
        dialect="kimi-k2",
        ids=("functions.get_weather:0", "functions.get_time:1"),
    ),
    Case("D12", f"<|open|>tools<|sep|>{_K3}<|close|>tools<|sep|>", ONE, dialect="kimi-k3"),
    Case(
        "D12-two",
        f'<|open|>tools<|sep|>{_K3}<|open|>call tool="search" index="2"<|sep|>'
        '<|open|>argument key="query" type="string"<|sep|>a < b<|close|>argument<|sep|>'
        '<|open|>argument key="limit" type="number"<|sep|>2<|close|>argument<|sep|>'
        '<|open|>argument key="other" type="boolean"<|sep|>true<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|>",
        (PARIS, ("search", {"query": "a < b", "limit": 2, "other": True})),
        dialect="kimi-k3",
    ),
    Case(
        "D12-json",
        '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>json type="object"'
        '<|sep|>{"city": "Paris"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
        ONE,
        dialect="kimi-k3",
    ),
    Case(
        "D12-think",
        f"<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>tools<|sep|>{_K3}<|close|>tools<|sep|>",
        ONE,
        reasoning="Hm.",
        dialect="kimi-k3",
    ),
    Case("D13", f"<tool_calls>\n{_J}\n</tool_calls>", ONE, dialect="minimax-m1"),
    Case("D13-two", f"<tool_calls>\n{_J}\n{_R}\n</tool_calls>", TWO, dialect="minimax-m1"),
    Case("D14", f"<minimax:tool_call>\n{_INVOKE}\n</minimax:tool_call>", ONE, dialect="minimax-m2"),
    Case("D14-two", f"<minimax:tool_call>\n{_INVOKE}\n{_INVOKE_ROME}\n</minimax:tool_call>", TWO, dialect="minimax-m2"),
    Case(
        "D15",
        f'{_M3}<tool_call>\n{_M3}<invoke name="get_weather">{_M3}<city>Paris{_M3}</city>{_M3}</invoke>\n'
        f"{_M3}</tool_call>",
        ONE,
        dialect="minimax-m3",
    ),
    Case(
        "D15-nested",
        f'{_M3}<tool_call>\n{_M3}<invoke name="search">{_M3}<query>x{_M3}</query>{_M3}<limit>3{_M3}</limit>'
        f"{_M3}<tags>{_M3}<item>a{_M3}</item>{_M3}<item>b{_M3}</item>{_M3}</tags>"
        f"{_M3}<filter>{_M3}<k>1{_M3}</k>{_M3}</filter>{_M3}</invoke>\n"
        f'{_M3}<invoke name="ping">{_M3}</invoke>\n{_M3}</tool_call>',
        (("search", {"query": "x", "limit": 3, "tags": ["a", "b"], "filter": {"k": 1}}), PING),
        dialect="minimax-m3",
    ),
    Case(
        "D15-think",
        f'<mm:think>Hm.</mm:think>{_M3}<tool_call>\n{_M3}<invoke name="ping">{_M3}</invoke>\n{_M3}</tool_call>',
        (PING,),
        reasoning="Hm.",
        dialect="minimax-m3",
    ),
    Case("D16", f"<function_calls>\n{_INVOKE}\n</function_calls>", ONE, dialect="anthropic"),
    Case("D16-bare", f"Yes.\n{_INVOKE}\n{_INVOKE_ROME}", TWO, "Yes.\n", dialect="anthropic"),
    Case("D16-prefix", _prefixed("acme", "get_weather", "city", "Paris"), ONE, dialect="anthropic"),
    Case("D16-muse", _prefixed("atem", "get_weather", "city", "Paris"), ONE, dialect="anthropic"),
    Case("D16-ml", _prefixed("ant" + "ml", "get_weather", "city", "Paris"), ONE, dialect="anthropic"),
    Case(
        "D16-prefix-bare", _prefixed("x.y-1", "get_weather", "city", "Paris", wrapped=False), ONE, dialect="anthropic"
    ),
    Case("D17", '<function name="get_weather"><param name="city">Paris</param></function>', ONE, dialect="minicpm5"),
    Case(
        "D17-cdata",
        '<function name="write_file"><param name="path">a</param><param name="content">'
        "<![CDATA[if a < b:\n  '</param></function>'\n]]></param></function>",
        (("write_file", {"path": "a", "content": "if a < b:\n  '</param></function>'\n"}),),
        dialect="minicpm5",
    ),
    Case(
        "D17-two",
        '<function name="get_weather"><param name="city">Paris</param></function>\n<function name="ping"></function>',
        (PARIS, PING),
        dialect="minicpm5",
    ),
    Case("D18", _P, ONE, dialect="llama-3-json"),
    Case("D18-tag", f"<|python_tag|>{_P}", ONE, dialect="llama-3-json"),
    Case("D18-two", f'{_P}; {{"name": "get_time", "parameters": {{"zone": "UTC"}}}}', MIXED, dialect="llama-3-json"),
    Case(
        "D18-lines",
        f'{_P}\n{{"name": "get_time", "parameters": {{"zone": "UTC"}}}}<|eom_id|>',
        MIXED,
        dialect="llama-3-json",
    ),
    Case("D18-think", f"<think>Hm.</think>\n{_P}", ONE, reasoning="Hm.", dialect="llama-3-json"),
    Case("D19", '<|python_tag|>get_weather.call(city="Paris")', ONE, dialect="llama-3-builtin"),
    Case(
        "D19-two",
        '<|python_tag|>get_weather.call(city="Paris"); get_time.call(zone="UTC")',
        MIXED,
        dialect="llama-3-builtin",
    ),
    Case("D20", '<function=get_weather>{"city": "Paris"}</function>', ONE, dialect="functionary-v3.1"),
    Case(
        "D20-two",
        '<function=get_weather>{"city": "Paris"}</function><function=ping>{}</function><|eot_id|>',
        (PARIS, PING),
        dialect="functionary-v3.1",
    ),
    Case("D21", '>>>get_weather\n{"city": "Paris"}', ONE, dialect="functionary-v3.2"),
    Case("D21-prompted", 'get_weather\n{"city": "Paris"}', ONE, dialect="functionary-v3.2"),
    Case(
        "D21-two",
        'Hello.\n>>>get_weather\n{"city": "Paris"}\n>>>get_time\n{"zone": "UTC"}',
        MIXED,
        "Hello.\n",
        dialect="functionary-v3.2",
    ),
    Case("D22", "[get_weather(city='Paris')]", ONE, dialect="llama-4"),
    Case("D22-tokens", "<|python_start|>[get_weather(city='Paris')]<|python_end|>", ONE, dialect="llama-4"),
    Case(
        "D22-two",
        "[get_weather(city='Paris'), search(query=\"a'b\", limit=-2, ratio=1.5, exact=True, "
        "tags=['x', 'y'], filter={'k': None})]",
        (
            PARIS,
            (
                "search",
                {"query": "a'b", "limit": -2, "ratio": 1.5, "exact": True, "tags": ["x", "y"], "filter": {"k": None}},
            ),
        ),
        dialect="llama-4",
    ),
    Case(
        "D22-strings",
        "[write_file(path='a', content='# [x](y) {\\'z\\'} )'), get_weather(city=''), "
        'search(query="""a "b" #""")]',
        (
            ("write_file", {"path": "a", "content": "# [x](y) {'z'} )"}),
            ("get_weather", {"city": ""}),
            ("search", {"query": 'a "b" #'}),
        ),
        dialect="llama-4",
    ),
    Case("D23", '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>', ONE, dialect="lfm2"),
    Case(
        "D23-json-words",
        'Sure. <|tool_call_start|>[search(query="x", exact=true, note=null), ping()]<|tool_call_end|>',
        (("search", {"query": "x", "exact": True, "note": None}), PING),
        "Sure. ",
        dialect="lfm2",
    ),
    Case("D24", '<function_calls>get_weather(city="Paris")</function_calls>', ONE, dialect="olmo-3"),
    Case(
        "D24-two",
        '<function_calls>\nget_weather(city="Paris")\nget_time(zone="UTC")\n</function_calls>',
        MIXED,
        dialect="olmo-3",
    ),
    Case(
        "D25",
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "123456789"}]',
        ONE,
        dialect="mistral-v7",
        ids=("123456789",),
    ),
    Case("D25-no-commas", f"[TOOL_CALLS] [{_J}{_R}]</s>", TWO, dialect="mistral-v7"),
    Case("D26", '[TOOL_CALLS]get_weather{"city": "Paris"}', ONE, dialect="mistral-v11"),
    Case(
        "D26-id",
        '[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{"city": "Paris"}',
        ONE,
        dialect="mistral-v11",
        ids=("123456789",),
    ),
    Case(
        "D27",
        'Yes.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{"zone": "UTC"}</s>',
        MIXED,
        "Yes.",
        dialect="mistral-v13",
    ),
    Case(
        "D27-think",
        '[THINK]Hm.[/THINK][TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
        ONE,
        reasoning="Hm.",
        dialect="mistral-v13",
    ),
    Case("D27-rehearsal", 'get_weather[ARGS]{"city": "Paris"}', ONE, dialect="mistral-v13"),
    Case("D28", '```tool_code\nget_weather(city="Paris")\n```', ONE, dialect="gemma-3"),
    Case(
        "D28-print",
        'I look.\n\n```tool_code\nprint(get_weather("Paris", 3))\n```\n',
        (("get_weather", {"city": "Paris", "days": 3}),),
        "I look.\n\n",
        dialect="gemma-3",
    ),
    Case(
        "D28-two",
        '```tool_code\nprint(default_api.get_weather(city="Paris"))\nget_time(zone="UTC")\n```',
        MIXED,
        dialect="gemma-3",
    ),
    Case(
        "D28-fences",
        '```tool_code\nget_weather(city="Paris")\n```\n```tool_code\nping()\n```',
        (PARIS, PING),
        dialect="gemma-3",
    ),
    Case("D28-one-line", '```tool_code get_weather(city="Paris")```', ONE, dialect="gemma-3"),
    Case("D28-one-line-print", '```tool_code print(get_weather(city="Paris")) ```\n', ONE, dialect="gemma-3"),
    Case(
        "D28-same-line", '```tool_code get_weather(city="Paris")\nget_time(zone="UTC")\n```', MIXED, dialect="gemma-3"
    ),
    Case(
        "D28-semicolon", '```tool_code\nget_weather(city="Paris"); get_time(zone="UTC")\n```', MIXED, dialect="gemma-3"
    ),
    Case(
        "D28-assigned",
        '```tool_code\nweather = get_weather(city="Paris")\nprint(weather)\n'
        'now = default_api.get_time(zone="UTC")\nnow\n```',
        MIXED,
        dialect="gemma-3",
    ),
    Case(
        "D28-comments",
        '```tool_code\n# the weather: get_weather(city="Rome")\nget_weather(\n'
        '    city="Paris",  # the capital, "Paris"\n)  # done\n```',
        ONE,
        dialect="gemma-3",
    ),
    Case("D28-only-one-comment", '```tool_code # now\nget_weather(city="Paris")\n```', ONE, dialect="gemma-3"),
    Case("D28-bare", "```tool_code\nget_weather(city=Paris)\n```", ONE, dialect="gemma-3"),
    Case(
        "D28-bare-place",
        "```tool_code\nget_weather(Paris, 3)\n```",
        (("get_weather", {"city": "Paris", "days": 3}),),
        dialect="gemma-3",
    ),
    Case(
        "D28-bare-words",
        "```tool_code\nsearch(query=weather in Paris, limit=2, note=readme.md)\n```",
        (("search", {"query": "weather in Paris", "limit": 2, "note": "readme.md"}),),
        dialect="gemma-3",
    ),
    Case(
        "D28-bare-digits",
        "```tool_code\nget_weather(city=10 Downing Street)\n```",
        (("get_weather", {"city": "10 Downing Street"}),),
        dialect="gemma-3",
    ),
    Case(
        "D28-shell",
        "```tool_code\nget_weather --city Paris --days 3\n```",
        (("get_weather", {"city": "Paris", "days": 3}),),
        dialect="gemma-3",
    ),
    Case(
        "D28-shell-equals",
        '```tool_code\nget_weather --city="New York" days=3\n```',
        (("get_weather", {"city": "New York", "days": 3}),),
        dialect="gemma-3",
    ),
    Case("D28-shell-place", "```tool_code\nget_weather Paris\nping()\n```", (PARIS, PING), dialect="gemma-3"),
    Case(
        "D28-shell-flag",
        "```tool_code search 'a | b' --exact --limit 2```",
        (("search", {"query": "a | b", "exact": True, "limit": 2}),),
        dialect="gemma-3",
    ),
    Case("D28-shell-assigned", "```tool_code\nx = get_weather --city Paris\n```", ONE, dialect="gemma-3"),
    Case(
        "D28-backticks",
        '```tool_code\nwrite_file(path="a", content="```\\n# x\\n```")\n```',
        (("write_file", {"path": "a", "content": "```\n# x\n```"}),),
        dialect="gemma-3",
    ),
    Case("D28-open", '```tool_code\nget_weather(city="Paris")', ONE, dialect="gemma-3"),
    Case("D29", _GEMMA, ONE, dialect="gemma-4"),
    Case("D29-two", f"Yes.{_GEMMA}{_GEMMA}", (PARIS, PARIS), "Yes.", dialect="gemma-4"),
    Case(
        "D29-nested",
        '<|tool_call>call:search{query:<|"|>a{b}, c:d<|"|>,limit:3,exact:true,tags:[<|"|>x<|"|>,<|"|>y<|"|>],'
        "filter:{k:{n:null},l:[1,2]}}<tool_call|>",
        (
            (
                "search",
                {
                    "query": "a{b}, c:d",
                    "limit": 3,
                    "exact": True,
                    "tags": ["x", "y"],
                    "filter": {"k": {"n": None}, "l": [1, 2]},
                },
            ),
        ),
        dialect="gemma-4",
    ),
    Case(
        "D29-one-wrapper",
        '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}call:ping{}<tool_call|>',
        (PARIS, PING),
        dialect="gemma-4",
    ),
    Case("D29-think", f"<|channel>thought\nHm.<channel|>{_GEMMA}", ONE, reasoning="Hm.", dialect="gemma-4"),
    Case(
        "D30",
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>",
        ONE,
        dialect="functiongemma",
    ),
    Case(
        "D30-two",
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>"
        "<start_function_call>call:ping{}<end_function_call>",
        (PARIS, PING),
        dialect="functiongemma",
    ),
    Case(
        "D31",
        '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
        ONE,
        dialect="harmony",
    ),
    Case(
        "D31-start",
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>',
        ONE,
        dialect="harmony",
    ),
    Case(
        "D31-analysis",
        "<|channel|>analysis<|message|>Weather, so a tool.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
        ONE,
        reasoning="Weather, so a tool.",
        dialect="harmony",
    ),
    Case(
        "D31-two",
        '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
        '<|start|>assistant<|channel|>commentary to=functions.get_time json<|message|>{"zone": "UTC"}<|call|>',
        MIXED,
        dialect="harmony",
    ),
    Case("D32", f"<|tool_call|>[{_J}]", ONE, dialect="granite-3"),
    Case("D32-fc", f"<function_call> {_J}", ONE, dialect="granite-3"),
    Case("D33", f"functools[{_J}]", ONE, dialect="phi-4-mini"),
    Case("D33-tags", f"<|tool_calls|>[{_J}, {_R}]<|/tool_calls|>", TWO, dialect="phi-4-mini"),
    Case("D33-tag", f"<|tool_call|>[{_J}]<|/tool_call|>", ONE, dialect="granite-3"),
    Case("D34", f"<TOOLCALL>[{_J}]</TOOLCALL>", ONE, dialect="nemotron-nano-v2"),
    Case(
        "D34-two",
        f"<think>Hm.</think>\n<TOOLCALL>[{_J}, {_R}]</TOOLCALL>",
        TWO,
        reasoning="Hm.",
        dialect="nemotron-nano-v2",
    ),
    Case("D35", f"<tool_calls>[{_J}]</tool_calls>", ONE, dialect="hunyuan-a13b"),
    Case("D35-two", f"Text.\n<tool_calls>[{_J}, {_R}]</tool_calls>", TWO, "Text.\n", dialect="hunyuan-a13b"),
    Case(
        "D36",
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}]'
        "<|END_ACTION|>",
        ONE,
        dialect="command-r7b",
        ids=("0",),
    ),
    Case(
        "D36-two",
        "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n"
        '    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}},\n'
        '    {"tool_call_id": "1", "tool_name": "get_time", "parameters": {"zone": "UTC"}}\n]<|END_ACTION|>',
        MIXED,
        reasoning="Hm.",
        dialect="command-r7b",
        ids=("0", "1"),
    ),
    Case(
        "D37",
        'Action:\n```json\n[{"tool_name": "get_weather", "parameters": {"city": "Paris"}}]\n```',
        ONE,
        dialect="command-r-plus",
    ),
    Case(
        "D37-two",
        'Action: ```json\n[\n    {"tool_name": "get_weather", "parameters": {"city": "Paris"}},\n'
        '    {"tool_name": "ping", "parameters": {}}\n]```',
        (PARIS, PING),
        dialect="command-r-plus",
    ),
    Case("D38", f"[{_J}]", ONE, dialect="xlam-2"),
    Case("D38-fence", f"```json\n[{_J}, {_R}]\n```", TWO, dialect="xlam-2"),
    Case("D38-think", f"<think>Hm.</think>\n\n[{_J}]", ONE, reasoning="Hm.", dialect="xlam-2"),
    Case("D38-lone-closer", f"Hm.\n</think>\n\n[{_J}]", ONE, "Hm.\n</think>\n\n", dialect="xlam-2"),
    Case("D38-quotes", "[{'name': 'get_weather', 'arguments': {'city': 'Paris'}}]", ONE, dialect="xlam-2"),
    Case("D1-seed", f"<seed:tool_call>{_J}</seed:tool_call>", ONE, dialect="hermes"),
    Case("D1-longcat", f"<longcat_tool_call>{_J}</longcat_tool_call>", ONE, dialect="hermes"),
    Case("D1-minimax", f"<minimax:tool_call>{_J}</minimax:tool_call>", ONE, dialect="hermes"),
    Case("D37-open", f"Action:\n```json\n[{_P}]\n\nDone.", ONE, "\n\nDone.", dialect="command-r-plus"),
    Case(
        "D31-four-tokens",
        "<|start|>assistant<|channel|>commentary to=functions.ping<|channel|>commentary <|constrain|>json<|message|>{}",
        (PING,),
        dialect="harmony",
    ),
    Case(
        "D39",
        "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>"
        + _step3("get_weather", "city", "Paris")
        + "<｜tool_call_end｜>\n<｜tool_calls_end｜>",
        ONE,
        dialect="step3",
    ),
    Case(
        "D39-two",
        "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>"
        + _step3("get_weather", "city", "Paris")
        + "<｜tool_call_end｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>"
        + _step3("get_time", "zone", "UTC")
        + "<｜tool_call_end｜>\n<｜tool_calls_end｜>",
        MIXED,
        dialect="step3",
    ),
    Case("D40", '<|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>', ONE, dialect="apertus"),
    Case(
        "D40-two",
        '<|tools_prefix|>[{"get_weather": {"city": "Paris"}}, {"ping": {}}]<|tools_suffix|>',
        (PARIS, PING),
        dialect="apertus",
    ),
    Case("D41", f"<|action_start|><|plugin|>\n{_P}<|action_end|>", ONE, dialect="internlm2"),
    Case(
        "D41-two",
        f"I look.<|action_start|><|plugin|>\n{_P}<|action_end|>\n<|action_start|> <|plugin|>\n{_P}<|action_end|>",
        (PARIS, PARIS),
        "I look.",
        dialect="internlm2",
    ),
    Case("D42", f"<|function_call|>{_J}", ONE, dialect="gigachat-3"),
    Case("D42-v3", f"<|message_sep|>\n\nfunction call<|role_sep|>\n{_J}", ONE, dialect="gigachat-3"),
    Case(
        "D42-v3-cut",
        f"Yes.\nfunction call<|role_sep|>\n{_J}<|message_sep|>",
        ONE,
        "Yes.\n<|message_sep|>",
        dialect="gigachat-3",
    ),
    Case(
        "D43",
        '<|tool_calls|><|tool_call:begin|>call_7<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}'
        "<|tool_call:end|>",
        ONE,
        dialect="solar-open",
        ids=("call_7",),
    ),
    Case(
        "D43-two",
        '<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}'
        "<|tool_call:end|><|tool_call:begin|>a2<|tool_call:name|>ping<|tool_call:args|>{}<|tool_call:end|><|calls|>",
        (PARIS, PING),
        dialect="solar-open",
        ids=("a1", "a2"),
    ),
    Case(
        "D43-inkling",
        '<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}<|end_message|>',
        ONE,
        dialect="inkling",
    ),
    Case("D44", '✿FUNCTION✿: get_weather\n✿ARGS✿: {"city": "Paris"}', ONE, dialect="qwen-agent"),
    Case(
        "D44-two",
        'Yes.\n✿FUNCTION✿: get_weather\n✿ARGS✿: {"city": "Paris"}\n✿FUNCTION✿: get_time\n'
        '✿ARGS✿: {"zone": "UTC"}\n✿RESULT✿',
        MIXED,
        "Yes.\n",
        dialect="qwen-agent",
    ),
    Case("D45", f"```json\n{_J}\n```", ONE, dialect="qwen2.5-coder"),
    Case("D45-bare", _J, ONE, dialect="qwen2.5-coder"),
    Case("D45-tools", f"<tools>\n{_J}\n</tools>", ONE, dialect="qwen2.5-coder"),
    Case("D45-function", f"<function>{_J}</function>", ONE, dialect="qwen2.5-coder"),
    Case("D45-function-call", f"<function-call> {_J}", ONE, dialect="qwen2.5-coder"),
    Case("D46", f'{{"tool_calls": [{_J}, {_R}]}}', TWO, dialect="openai"),
    Case(
        "D46-openai",
        '{"type": "function", "function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}}',
        ONE,
        dialect="openai",
    ),
    Case("D46-one", f'{{"tool_call": {_J}}}', ONE, dialect="openai"),
    Case(
        "D46-id",
        '[{"id": "call_9", "type": "function", "function": {"name": "ping", "arguments": "{}"}}]',
        (PING,),
        dialect="xlam-2",
        ids=("call_9",),
    ),
]
