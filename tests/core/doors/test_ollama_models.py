"""What lists of models say of files, in the words of Ollama and of LM Studio."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from supervisor.core.doors.lmstudio import StatsVoice, stats, with_stats
from supervisor.core.doors.names import digest_of
from supervisor.core.doors.ollama_models import FileFacts, Loaded, capabilities, details, listed, running, shown
from supervisor.core.doors.turned import Telling
from tests.support.headers import header
from tests.support.llama_source import llama_source

KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "general.file_type": 15,
    "llama.context_length": 4096,
    "llama.embedding_length": 64,
    "tokenizer.chat_template": "{{ x }}",
}
TENSORS = {"a.weight": (1000, 3), "b.weight": (7,)}
FACTS = FileFacts(header(KEYS, TENSORS))
DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "llama",
    "families": ["llama"],
    "parameter_size": "3.01K",
    "quantization_level": "Q4_K_M",
    "context_length": 4096,
    "embedding_length": 64,
}


def facts(**keys: Any) -> FileFacts:
    return FileFacts(header({name.replace("__", "."): value for name, value in keys.items()}))


def test_file_types_have_llama_cpps_names() -> None:
    text = (llama_source() / "include" / "llama.h").read_text("utf-8")
    found = re.findall(r"^\s*LLAMA_FTYPE_(?:MOSTLY|ALL)_(\w+)\s*=\s*(\d+)", text, re.MULTILINE)
    assert len(found) > 30
    told = {int(number): facts(general__file_type=int(number)).quantisation for _, number in found}
    assert told == {int(number): name for name, number in found}
    others = set(range(100)) - told.keys()
    assert {facts(general__file_type=number).quantisation for number in others} == {"unknown"}
    assert facts().quantisation == "unknown"


def test_details_of_a_file_and_of_none() -> None:
    assert details(FACTS) == DETAILS
    bare = {"parent_model": "", "format": "gguf", "family": "", "families": [], "parameter_size": ""}
    assert details(None) == {**bare, "quantization_level": ""}
    nothing = {"parameter_size": "0", "quantization_level": "unknown", "context_length": 0, "embedding_length": 0}
    assert details(facts()) == {**bare, **nothing}


@pytest.mark.parametrize(
    ("count", "said"),
    [(999, "999"), (1000, "1.00K"), (999_999, "1000.00K"), (1_000_000, "1.00M"), (25_000_000, "25.00M"),
     (1_000_000_000, "1.0B"), (8_030_000_000, "8.0B"), (1_000_000_000_000, "1.0T")],
)  # fmt: skip
def test_sizes_are_written_as_ollama_does(count: int, said: str) -> None:
    assert details(FileFacts(header(KEYS, {"a": (count,)})))["parameter_size"] == said


def test_what_a_model_can_do() -> None:
    assert capabilities(None) == capabilities(FACTS) == ["completion"]
    every = replace(
        FileFacts(header({**KEYS, "tokenizer.ggml.fim_pre_token_id": 1}), ("text", "image", "audio")),
        tools=True,
        thinking=True,
    )
    assert capabilities(every) == ["completion", "tools", "insert", "vision", "audio", "thinking"]
    assert capabilities(facts(tokenizer__ggml__prefix_token_id=1)) == ["completion", "insert"]
    assert capabilities(replace(facts(), pooling=1)) == ["embedding"]
    assert capabilities(replace(facts(), pooling=0)) == ["completion"]
    assert capabilities(replace(FACTS, pooling=1)) == ["completion"], "one with a template for chats writes texts"


def test_a_model_in_the_lists() -> None:
    assert listed("m", None, 0.0, FACTS) == {
        "name": "m:latest",
        "model": "m:latest",
        "modified_at": "1970-01-01T00:00:00Z",
        "size": 0,
        "digest": digest_of("m"),
        "details": DETAILS,
        "capabilities": ["completion"],
    }
    assert listed("a/m:q4", 7, 0.0, None)["name"] == "a/m:q4"
    assert listed("a/m:q4", 7, 0.0, None)["size"] == 7
    assert running("m", Loaded(9, 5, 60.0, 2048), FACTS) == {
        "name": "m:latest",
        "model": "m:latest",
        "size": 9,
        "digest": digest_of("m"),
        "details": DETAILS,
        "expires_at": "1970-01-01T00:01:00Z",
        "size_vram": 5,
        "context_length": 2048,
    }


def test_one_model_shown() -> None:
    keys: dict[str, Any] = {
        "x.text": "t", "x.flag": True, "x.number": 3, "x.float": 0.5, "x.nan": math.nan,
        "x.few": tuple(range(8)), "x.many": tuple(range(9)), "x.holes": (1.0, math.inf),
    }  # fmt: skip
    asked: dict[str, object] = {"temperature": 0.5, "top_k": 4}
    file = FileFacts(header({**KEYS, **keys}, TENSORS))
    found = shown("m", 0.0, asked, file, verbose=False)
    assert {key: found[key] for key in found if key != "model_info"} == {
        "modelfile": "FROM m\nPARAMETER temperature 0.5\nPARAMETER top_k 4\n",
        "parameters": "temperature 0.5\ntop_k 4",
        "template": "{{ x }}",
        "details": DETAILS,
        "capabilities": ["completion"],
        "modified_at": "1970-01-01T00:00:00Z",
    }
    plain = {key: value for key, value in KEYS.items() if key != "tokenizer.chat_template"}
    info = {
        **plain, **keys, "general.parameter_count": 3007,
        "x.nan": None, "x.few": list(range(8)), "x.many": None, "x.holes": [1.0],
    }  # fmt: skip
    assert found["model_info"] == info
    verbose = shown("m", 0.0, asked, file, verbose=True)
    assert verbose["model_info"] == {**info, "x.many": list(range(9))}
    assert verbose["tensors"] == [
        {"name": "a.weight", "type": "f16", "shape": [1000, 3]},
        {"name": "b.weight", "type": "f16", "shape": [7]},
    ]
    filling = shown("m", 0.0, {}, facts(tokenizer__ggml__fim_pre_token_id=1), verbose=False)
    assert filling["template"] == "{# .Suffix #}"
    assert (filling["modelfile"], filling["parameters"]) == ("FROM m\n", "")


TIMINGS: dict[str, Any] = {"predicted_per_second": 12.5, "prompt_ms": 1500, "predicted_ms": 250.0}
STATS: dict[str, Any] = {"tokens_per_second": 12.5, "time_to_first_token": 1.5, "generation_time": 0.25}


@pytest.mark.parametrize(
    ("reason", "said"),
    [("stop", "eosFound"), (None, "eosFound"), ("length", "maxPredictedTokensReached"), ("tool_calls", "toolCalls")],
)
def test_the_figures_of_lm_studio(reason: str | None, said: str) -> None:
    nothing: dict[str, object] = dict.fromkeys(STATS)
    assert stats(reason, TIMINGS) == {**STATS, "stop_reason": said}
    answer: dict[str, Any] = {"choices": [{"finish_reason": reason}], "timings": TIMINGS}
    assert with_stats(answer, None) == {**answer, "stats": {**STATS, "stop_reason": said}}
    assert with_stats({"timings": TIMINGS}, None) == {"timings": TIMINGS, "stats": stats(None, TIMINGS)}
    assert with_stats({"choices": []}, None) == {"choices": []}
    assert stats(None, {}) == {**nothing, "stop_reason": "eosFound"}


def test_a_stream_of_lm_studio_ends_with_figures() -> None:
    voice = StatsVoice(Telling("m", lambda: 0.0, lambda: (0.0, 0.0)))
    assert voice.chunk({"choices": [], "prompt_progress": {"total": 3}}) == b""
    assert b"stats" not in voice.chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    last = voice.chunk({"choices": [], "timings": TIMINGS})  # type: ignore[typeddict-item]  # as engines write it
    assert b'"stats":{"tokens_per_second":12.5,"time_to_first_token":1.5' in last
    assert b'"stop_reason":"maxPredictedTokensReached"' in last
