"""What LocalAI asks, as requests to the daemon."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.localai.asking import Ask, ask
from supervisor.core.localai.messages import Message, PredictOptions
from supervisor.errors import InvalidRequest

SAMPLING = {"temperature": 0.0, "top_k": 0, "min_p": 0.0, "seed": 0, "cache_prompt": False}
USER = Message(role="user", content="Hi")
CHAT: dict[str, Any] = {"use_tokenizer_template": True, "messages": (USER,)}


def asked(**given: Any) -> Ask:
    return ask(PredictOptions(**given), "m", stream=False)


def body(**given: Any) -> dict[str, Any]:
    """What is sent besides what always is."""
    found = asked(**given).body
    return {name: value for name, value in found.items() if SAMPLING.get(name) != value and name not in {"model"}}


def test_a_prompt_is_continued_and_messages_are_a_chat() -> None:
    assert asked(prompt="Hi") == Ask("/v1/completions", {"model": "m", "stream": False, "prompt": "Hi", **SAMPLING})
    chat = asked(**CHAT, prompt="ignored")
    assert (chat.path, chat.is_chat) == ("/v1/chat/completions", True)
    assert chat.body == {"model": "m", "stream": False, "messages": [{"role": "user", "content": "Hi"}], **SAMPLING}
    assert not asked(messages=(USER,), prompt="Hi").is_chat
    assert not asked(use_tokenizer_template=True, prompt="Hi").is_chat


def test_a_stream_is_asked_for_with_its_counts() -> None:
    found = ask(PredictOptions(prompt="Hi"), "m", stream=True).body
    assert (found["stream"], found["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"temperature": 0.8999999761581421}, {"temperature": 0.9}),
        ({"top_k": 40, "min_p": 0.05000000074505806, "seed": -1}, {"top_k": 40, "min_p": 0.05, "seed": -1}),
        ({"top_p": 0.949999988079071, "typical_p": 0.5}, {"top_p": 0.95, "typical_p": 0.5}),
        ({"repeat": 64, "penalty": 1.100000023841858}, {"repeat_last_n": 64, "repeat_penalty": 1.1}),
        (
            {"frequency_penalty": 0.5, "presence_penalty": -0.5},
            {"frequency_penalty": 0.5, "presence_penalty": -0.5},
        ),
        ({"tokens": 12}, {"max_tokens": 12}),
        ({"tokens": -1}, {}),
        ({"mirostat_tau": 5.0, "mirostat_eta": 0.1}, {}),
        (
            {"mirostat": 2, "mirostat_tau": 5.0, "mirostat_eta": 0.1},
            {"mirostat": 2, "mirostat_tau": 5.0, "mirostat_eta": 0.1},
        ),
        ({"stop_prompts": ("a", "b")}, {"stop": ["a", "b"]}),
        ({"logit_bias": '{"5": -100}'}, {"logit_bias": {"5": -100}}),
        ({"grammar": "root ::= x"}, {"grammar": "root ::= x"}),
        ({"ignore_eos": True, "n_keep": 3}, {"ignore_eos": True, "n_keep": 3}),
        ({"logprobs": 1}, {"logprobs": 1}),
        ({"logprobs": 1, "top_logprobs": 5}, {"logprobs": 5}),
        ({"top_logprobs": 5}, {}),
    ],
)
def test_parameters_have_the_daemons_names(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert body(prompt="Hi", **given) == {"stream": False, "prompt": "Hi", **expected}


def test_the_cache_of_prompts_is_used_unless_localai_says_no() -> None:
    assert "cache_prompt" not in asked(prompt="Hi", prompt_cache_all=True).body
    assert asked(prompt="Hi").body["cache_prompt"] is False


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"enable_thinking": "true"}, {"enable_thinking": True}),
        ({"enable_thinking": "False"}, {"enable_thinking": False}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"chat_template_kwargs": '{"a": true}'}, {"chat_template_kwargs": {"a": True}}),
        ({"user": "x"}, {}),
    ],
)
def test_metadata_switch_reasoning(metadata: dict[str, str], expected: dict[str, Any]) -> None:
    assert body(**CHAT, metadata=metadata) == {
        "stream": False,
        "messages": [{"role": "user", "content": "Hi"}],
        **expected,
    }


def test_a_conversation_with_calls_keeps_every_part() -> None:
    calls = '[{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]'
    messages = (
        Message(role="assistant", reasoning_content="Hm.", tool_calls=calls),
        Message(role="tool", name="f", tool_call_id="c", content="Rain."),
    )
    assert asked(use_tokenizer_template=True, messages=messages).body["messages"] == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "Rain.", "name": "f", "tool_call_id": "c"},
    ]


@pytest.mark.parametrize(
    ("choice", "expected"), [('"auto"', "auto"), ("required", "required"), ('{"type": "f"}', {"type": "f"})]
)
def test_tools_and_the_choice_among_them_are_json(choice: str, expected: object) -> None:
    found = asked(**CHAT, tools='[{"a": 1}]', tool_choice=choice).body
    assert (found["tools"], found["tool_choice"]) == ([{"a": 1}], expected)
    assert "tool_choice" not in asked(**CHAT, tool_choice=choice).body


def test_with_a_grammar_localai_reads_the_calls_itself() -> None:
    found = asked(**CHAT, tools='[{"a": 1}]', tool_choice='"auto"', grammar="root ::= x").body
    assert found["grammar"] == "root ::= x"
    assert not {"tools", "tool_choice"} & set(found)


def test_media_go_to_the_last_message_of_the_user() -> None:
    messages = (USER, Message(role="assistant", content="Yes?"), USER, Message(role="assistant", content="So"))
    png, jpeg, wave, other = "iVBORw0KGgo=", "/9j/4AAQ", "UklGRiQA", "SUQzBAA"
    found = asked(
        use_tokenizer_template=True,
        messages=messages,
        images=(png, jpeg, "data:image/gif;base64,R0lG"),
        audios=(wave, f"data:audio/mpeg;base64,{other}"),
    ).body["messages"]
    assert [one["content"] for one in (found[0], found[1], found[3])] == ["Hi", "Yes?", "So"]
    assert found[2]["content"] == [
        {"type": "text", "text": "Hi"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}},
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{jpeg}"}},
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}},
        {"type": "input_audio", "input_audio": {"data": wave, "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": other, "format": "mp3"}},
    ]


def test_probabilities_of_a_chat_are_openais() -> None:
    assert body(**CHAT, logprobs=1, top_logprobs=3)["logprobs"] is True
    assert body(**CHAT, logprobs=1, top_logprobs=3)["top_logprobs"] == 3
    assert "top_logprobs" not in body(**CHAT, logprobs=1)
    assert "logprobs" not in body(**CHAT, top_logprobs=3)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"prompt_cache_path": "/x"}, "PromptCachePath"),
        ({"negative_prompt": "no"}, "NegativePrompt"),
        ({"videos": ("AAAA",)}, "Videos"),
        ({"images": ("AAAA",)}, "Images"),
        ({"audios": ("AAAA",)}, "Images"),
        ({"logit_bias": "{"}, "LogitBias"),
        ({"logit_bias": "[]"}, "LogitBias"),
        ({**CHAT, "tools": "{"}, "Tools"),
        ({**CHAT, "metadata": {"chat_template_kwargs": "1"}}, "chat_template_kwargs"),
        ({"use_tokenizer_template": True, "messages": (Message(role="user", tool_calls="{"),)}, "tool_calls"),
        (
            {"use_tokenizer_template": True, "messages": (Message(role="system"),), "images": ("AAAA",)},
            "Messages",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        asked(**given)
    assert raised.value.param == param
