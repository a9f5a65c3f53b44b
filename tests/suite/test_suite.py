"""llama.cpp's own server tests hold through us wherever they hold directly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.compare import Results, differences
from tests.suite.known import KNOWN, reason_of
from tests.suite.runner import MODES, Mode, Suite
from tests.support.llama_source import llama_source

pytestmark = pytest.mark.engine

SAMPLE = {
    "chat_completion": ["chat_completion.py::test_chat_completion_stream", "chat_completion.py::test_logprobs"],
    "compat_anthropic": ["compat_anthropic.py::test_anthropic_messages_streaming"],
    "completion": ["completion.py::test_completion_stream", "completion.py::test_n_probs_stream"],
    "embedding": ["embedding.py::test_embedding_multiple"],
    "tokenize": ["tokenize.py::test_tokenize_detokenize"],
}


@pytest.fixture(scope="module")
def suite(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(llama_source(), engine_binary, tmp_path_factory.mktemp("suite"))


def unexplained(direct: Results, through: Results) -> dict[str, str]:
    return {test: what for test, what in differences(direct, through).items() if reason_of(test) is None}


@pytest.mark.parametrize("file", SAMPLE)
def test_a_sample_holds_through_us(suite: Suite, file: str) -> None:
    direct, through = (suite.run(mode, file, SAMPLE[file]) for mode in MODES)
    assert len(direct) >= len(SAMPLE[file])
    assert not unexplained(direct, through)


@pytest.mark.full
@pytest.mark.timeout(0)  # some eight hundred starts of a server
def test_every_test_holds_through_us_or_has_its_reason(suite: Suite) -> None:
    found: dict[Mode, Results] = dict(
        suite.run_all([(mode, file) for file in suite.files() for mode in MODES], at_once=2)
    )
    direct, through = found["direct"], found["through"]
    assert len(direct) > 400
    assert sum(result.holds for result in direct.values()) > 200
    assert not unexplained(direct, through)
    reasons = {reason_of(test) for test in differences(direct, through)}
    assert not set(KNOWN) - reasons, "reasons without a test that differs"
