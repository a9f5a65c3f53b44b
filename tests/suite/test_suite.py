"""llama.cpp's own server tests hold through us wherever they hold directly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.compare import Results, differences
from tests.suite.known import KNOWN, is_meant, reason_of
from tests.suite.runner import MODES, Suite
from tests.support.llama_source import llama_source

pytestmark = pytest.mark.engine

SAMPLE = {
    "chat_completion": ["chat_completion.py::test_chat_completion_stream", "chat_completion.py::test_logprobs"],
    "compat_anthropic": ["compat_anthropic.py::test_anthropic_messages_streaming"],
    "completion": ["completion.py::test_completion_stream", "completion.py::test_n_probs_stream"],
    "embedding": ["embedding.py::test_embedding_multiple"],
    "tokenize": ["tokenize.py::test_tokenize_detokenize"],
}
_ALWAYS = frozenset({"chat_completion", "completion"})
FILES = (
    *("basic", "chat_completion", "compat_anthropic", "compat_gcp", "compat_oai_responses", "completion", "ctx_shift"),
    *("embedding", "ignore_eos", "infill", "kv_keep_only_active", "lora", "mcp_servers", "metrics"),
    *("proxy", "rerank", "router", "security", "sleep", "slot_save", "speculative"),
    *("stream", "systemone", "template", "tokenize", "tool_call", "tools_builtin", "vision_api"),
)


@pytest.fixture(scope="module")
def suite(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(llama_source(), engine_binary, tmp_path_factory.mktemp("suite"))


def unexplained(direct: Results, through: Results) -> dict[str, str]:
    return {test: what for test, what in differences(direct, through).items() if reason_of(test) is None}


@pytest.mark.parametrize(
    "file", [pytest.param(one, marks=() if one in _ALWAYS else pytest.mark.full) for one in SAMPLE]
)
def test_a_sample_holds_through_us(suite: Suite, file: str) -> None:
    direct, through = (suite.run(mode, file, SAMPLE[file]) for mode in MODES)
    assert len(direct) >= len(SAMPLE[file])
    assert not unexplained(direct, through)


def test_the_files_are_those_of_the_suite(suite: Suite) -> None:
    assert suite.files() == list(FILES)
    assert {name.partition(".py::")[0] for names in KNOWN.values() for name in names} <= set(FILES)


@pytest.mark.full
@pytest.mark.timeout(0)  # up to some hundred starts of a server
@pytest.mark.parametrize("file", FILES)
def test_every_test_holds_through_us_or_has_its_reason(suite: Suite, file: str) -> None:
    found = suite.run_all([(mode, file) for mode in MODES], at_once=2)
    direct, through = found["direct"], found["through"]
    assert direct
    assert not unexplained(direct, through)
    differ = differences(direct, through)
    needed = {name for names in KNOWN.values() for name in names if name.startswith(f"{file}.py::")}
    assert not {name for name in needed if not any(is_meant(test, name) for test in differ)}, "no test differs so"
