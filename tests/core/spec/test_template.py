"""What chat templates can do: excerpts in the manner of well-known ones, and all that llama.cpp's source has."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.spec.template import TemplateCapabilities, read_template
from tests.support.llama_source import llama_source

_LOOP = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}{% endfor %}"
_EACH = "{% for call in message.tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}"
_TOOLS = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"

QWEN3 = (
    _TOOLS
    + "{%- for m in messages %}{{ '<|im_start|>' + m.role }}{%- for tool_call in m.tool_calls %}"
    + """{{- '<tool_call>\\n{"name": "' }}{{ tool_call.name }}{%- endfor %}{%- endfor %}"""
    + "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>' }}{%- endif %}"
)
QWEN3_CODER = _TOOLS + _LOOP + "<tool_call>\n<function=name>\n<parameter=x>" + _EACH
GLM = (
    _TOOLS
    + "{% for k, v in args.items() %}<tool_call><arg_key>{{ k }}</arg_key>{% endfor %}"
    + _EACH
    + _LOOP
    + "{{ '' if enable_thinking is defined and not enable_thinking else '<think>' }}"
    + "{% if clear_thinking is defined and not clear_thinking %}{{ reasoning }}{% endif %}"
)
GPT_OSS = (
    "{%- if reasoning_effort is not defined %}{%- set reasoning_effort = 'medium' %}{%- endif %}"
    "{{ 'Reasoning: ' + reasoning_effort }}{% if tools %}{{ render_tools(tools) }}{% endif %}"
    "{% for message in messages %}{% if message.role == 'system' or message.thinking %}{{ message['thinking'] }}"
    "{% endif %}{% set tool_call = message.tool_calls[0] %}<|channel|>commentary to={{ tool_call.name }}{% endfor %}"
)
DEEPSEEK_V31 = (
    "{% if not thinking is defined %}{% set thinking = false %}{% endif %}"
    "{%- for message in messages %}{%- if message['role'] == 'system' %}{{ message['content'] }}{%- endif %}"
    "{%- for tool in message['tool_calls'] %}<｜tool▁calls▁begin｜>{{ tool }}{%- endfor %}{%- endfor %}"
    "{% if thinking %}<think>{% else %}</think>{% endif %}"
)
DEEPSEEK_R1 = (
    "{% set ns = namespace(system_prompt='') %}{% if message['role'] == 'system' %}{{ ns.system_prompt }}{% endif %}"
    "{% if add_generation_prompt %}{{'<｜Assistant｜><think>\\n'}}{% endif %}"
)
LLAMA31 = (
    "{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}"
    "{%- if not tools is defined %}{%- set tools = none %}{%- endif %}"
    "{%- if messages[0]['role'] == 'system' %}{%- endif %}"
    """{{- 'Respond in the format {"name": function name, "parameters": dictionary of arguments}.' }}"""
    "{%- if message.tool_calls|length != 1 %}"
    '{{- raise_exception("This model only supports single tool-calls at once!") }}{%- endif %}'
    "{%- set tool_call = message.tool_calls[0].function %}"
)
MISTRAL = (
    "{%- if tools is defined and tools is not none %}[AVAILABLE_TOOLS]{%- endif %}"
    "{%- if role == 'system' %}{%- endif %}"
    "{%- for tool_call in message.tool_calls %}[TOOL_CALLS]{{ tool_call }}{%- endfor %}"
)
GEMMA2 = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% set role = message['role'] %}{{ '<start_of_turn>' + role }}{% endfor %}"
)
LLAMA2 = "{% for message in messages %}{% if message['role'] == 'user' %}[INST]{% endif %}{% endfor %}"
MINISTRAL = MISTRAL + "{% for block in content %}{% if block['type'] == 'thinking' %}[THINK]{% endif %}{% endfor %}"
HERMES_SET = "{% set enable_thinking = enable_thinking | default(true) %}{% set preserve_thinking = false %}" + _LOOP
LOCAL = "{% set enable_thinking = true %}{% set tools = [] %}{{ tools }}{{ enable_thinking }}" + _LOOP

# name, template, (tools, dialect, parallel, thinking, preserve_thinking, system role)
KNOWN: list[tuple[str, str, tuple[bool, str | None, bool | None, str | None, bool, bool]]] = [
    ("chatml", _LOOP, (False, None, None, None, False, True)),
    ("qwen3", QWEN3, (True, "hermes", True, "enable_thinking", False, True)),
    ("qwen3-coder", QWEN3_CODER, (True, "qwen3-coder", True, None, False, True)),
    ("glm-4.7", GLM, (True, "glm-4.7", True, "enable_thinking", True, True)),
    ("gpt-oss", GPT_OSS, (True, "harmony", False, "reasoning_effort", False, True)),
    ("deepseek-v3.1", DEEPSEEK_V31, (False, "deepseek-v3.1", True, "thinking", False, True)),
    ("deepseek-r1", DEEPSEEK_R1, (False, None, None, "always", False, True)),
    ("llama-3.1", LLAMA31, (True, "llama-3-json", False, None, False, True)),
    ("mistral", MISTRAL, (True, "mistral-v7", True, None, False, True)),
    ("ministral-3", MINISTRAL, (True, "mistral-v7", True, "always", False, True)),
    ("gemma-2", GEMMA2, (False, None, None, None, False, False)),
    ("llama-2", LLAMA2, (False, None, None, None, False, False)),
    ("defaulted", HERMES_SET, (False, None, None, "enable_thinking", False, True)),
    ("local", LOCAL, (False, None, None, None, False, True)),
    ("commented out", "{# {% if tools %}<think>{% endif %} #}", (False, None, None, None, False, False)),
    ("empty", "", (False, None, None, None, False, False)),
]


@pytest.mark.parametrize(("template", "expected"), [row[1:] for row in KNOWN], ids=[row[0] for row in KNOWN])
def test_known_templates(template: str, expected: tuple[bool, str | None, bool | None, str | None, bool, bool]) -> None:
    assert read_template(template) == TemplateCapabilities(*expected)


# What differs from tools, parallel calls, a system role and no reasoning, in llama.cpp's models/templates.
TOOL_LESS = {
    "google-gemma-2-2b-it",
    "HuggingFaceTB-SmolLM3-3B",
    "llama-cpp-rwkv-world",
    "microsoft-Phi-3.5-mini-instruct",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "fireworks-ai-llama-3-firefunction-v2",  # it wants them in a variable that llama-server does not set
}
ONE_CALL = {
    "GigaChat3-10B-A1.8B",
    "GigaChat3.1-10B-A1.8B",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "openai-gpt-oss-120b",
}
THINKING = {
    "Qwen-Qwen3-0.6B": "enable_thinking",
    "Qwen3.5-4B": "enable_thinking",
    "GLM-4.6": "enable_thinking",
    "google-gemma-4-31B-it": "enable_thinking",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "enable_thinking",
    "deepseek-ai-DeepSeek-V4": "enable_thinking",
    "openai-gpt-oss-120b": "reasoning_effort",
    "upstage-Solar-Open-100B": "reasoning_effort",
    "tencent-Hy3": "reasoning_effort",
    "ibm-granite-granite-3.3-2B-Instruct": "thinking",
    "Kimi-K3": "thinking",
    "ByteDance-Seed-OSS": "thinking_budget",
    "MiniMax-M3": "thinking_mode",
    "Kimi-K2-Thinking": "always",
    "MiniMax-M2": "always",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "always",
    "mistralai-Ministral-3-14B-Reasoning-2512": "always",
    "Qwen3-Coder": None,
    "Qwen-Qwen2.5-7B-Instruct": None,
    "meta-llama-Llama-3.1-8B-Instruct": None,
    "mistralai-Mistral-Nemo-Instruct-2407": None,
    "moonshotai-Kimi-K2": None,
    "ibm-granite-granite-4.0": None,
}


@pytest.mark.parametrize(
    ("marks", "dialect"),
    [
        ("<function_usage> function_call", "gigachat-3"),
        ("<|message_sep|> <|role_sep|>", "gigachat-3"),
        ("Action: ```json", "command-r-plus"),
        ("List of tools: ", "lfm2"),
        ("functools[", "phi-4-mini"),
        ("<|open|> <|close|>", "kimi-k3"),
        ("<arg_key <tool_sep", "hunyuan-hy3"),
        ("<tool_calls>[", "hunyuan-a13b"),
        ("<tool_calls>", "minimax-m1"),
        ('<function name=" <param name="', "minicpm5"),
        ("<function=", "functionary-v3.1"),
        ("<tool_call> <function=", "qwen3-coder"),
        ("<seed:tool_call>", "seed-oss"),
        ("<|tool_call:begin|>", "solar-open"),
        (">>>", "functionary-v3.2"),
    ],
)
def test_a_dialect_is_known_by_its_marks(marks: str, dialect: str) -> None:
    assert read_template("{% if tools %}{{ '" + marks + "' }}{% endif %}").tool_dialect == dialect


def test_every_template_of_the_source() -> None:
    folder = llama_source() / "models" / "templates"
    found = {path.stem: read_template(path.read_text(encoding="utf-8")) for path in folder.glob("*.jinja")}
    assert len(found) == 71
    assert {name for name, can in found.items() if not can.tools} == TOOL_LESS
    assert {name for name, can in found.items() if not can.system_role} == {"google-gemma-2-2b-it"}
    assert {name for name, can in found.items() if can.parallel_tools is False} == ONE_CALL
    assert {name: found[name].thinking for name in THINKING} == THINKING
    assert [name for name, can in found.items() if can.tools and can.tool_dialect is None] == []


@given(st.text(st.sampled_from("{}%#-'\"\\ ;:aset.tools|[]()=\n"), max_size=300) | st.text(max_size=300))
def test_any_text_has_an_answer(text: str) -> None:
    read_template(text)


@pytest.mark.parametrize(
    "text",
    [
        "{%" * 200_000,
        "{#" * 200_000,
        "{{" + "\\'" * 130_000 + "}}",
        "{{'" * 100_000,
        "{%" + " for a in tool" * 15_000 + "%}",
        "{%" + " set thinking =" * 15_000 + "%}",
        "{{" + "thinking is " * 20_000 + "}}{% set thinking %}",
        "system role" + " " * 200_000,
        "{{ x.role" + " " * 200_000 + "}}",
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_text_costs_little(text: str) -> None:
    began = time.process_time()
    read_template(text)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "text",
    [
        "{% for" + " " * 200_000 + "%}",
        "{{ '" + "\\'" * 120_000 + "\\ }}",
        "{% " + "for x in " * 30_000 + "%}",
        "system role" + " " * 250_000,
        "{% " + "tool_calls" + " " * 200_000 + "%}",
        "{% set x =" + " x" * 100_000 + "%}",
    ],
)
def test_no_template_takes_long_to_read(text: str) -> None:
    """A template comes from a stranger's file: what is done with it must not grow faster than it does."""
    before = time.process_time()
    read_template(text)
    assert time.process_time() - before < 5
