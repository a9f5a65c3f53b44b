"""`toolcalls parse`: the recovery of tool calls on text from standard input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.core.toolcalls.corpus import TOOLS, dialects, malformations, negatives

CASES = [
    case
    for case in (*dialects.CASES, *malformations.CASES, *negatives.CASES)
    if not case.options.keys() - {"parallel_tool_calls"}
]
CALL = (
    '<think>\nHm.\n</think>\n\nYes. <tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
)


def as_line(case: Any) -> str:
    asked = {"text": case.text, "tools": case.tools, "finish_reason": case.finish, "tool_choice": case.choice}
    more = {"reasoning_content": case.reasoning_in, **case.options}
    return json.dumps({**asked, **more})


@pytest.fixture
def tools(tmp_path: Path) -> str:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return str(path)


@pytest.mark.parametrize("chunk", [(), ("--chunk", "1"), ("--chunk", "3"), ("--chunk", "64")], ids=" ".join)
def test_every_case_of_the_corpus_by_lines(cli: Cli, chunk: tuple[str, ...]) -> None:
    outcome = cli("toolcalls", "parse", "--jsonl", *chunk, stdin="\n".join(map(as_line, CASES)))
    assert outcome.code == 0
    found = [json.loads(line) for line in outcome.out.splitlines()]
    for case, answer in zip(CASES, found, strict=True):
        calls = tuple((call["name"], json.loads(call["arguments"])) for call in answer["tool_calls"])
        assert calls == case.calls, case.id
        assert (answer["content"], answer["reasoning_content"]) == (case.content, case.reasoning), case.id
        assert answer["dialect"] == case.dialect, case.id
        assert answer["finish_reason"] == ("tool_calls" if calls and case.finish == "stop" else case.finish)


def test_one_text(cli: Cli, tools: str) -> None:
    found = cli("toolcalls", "parse", "--tools", tools, "--chunk", "1", "--json", stdin=CALL).json()
    assert found == {
        "content": "Yes. ",
        "reasoning_content": "Hm.",
        "tool_calls": [{"name": "get_weather", "arguments": '{"city": "Zürich"}'}],
        "dialect": "hermes",
        "finish_reason": "tool_calls",
    }
    shown = cli("toolcalls", "parse", "--tools", tools, stdin=CALL).out
    assert 'call: get_weather {"city": "Zürich"}' in shown


def test_a_request_s_file_names_the_tools_too(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"messages": [], "tools": TOOLS}))
    assert cli("toolcalls", "parse", "--tools", str(path), "--json", stdin=CALL).json()["dialect"] == "hermes"


def test_without_tools_and_after_a_cut_it_stays_text(cli: Cli, tools: str) -> None:
    assert cli("toolcalls", "parse", "--json", stdin=CALL).json()["content"] == CALL
    cut = CALL[: CALL.index("}")]
    found = cli("toolcalls", "parse", "--json", "--tools", tools, "--finish-reason", "length", stdin=cut).json()
    assert (found["tool_calls"], found["finish_reason"]) == ([], "length")
    assert found["content"] == cut[cut.index("Yes.") :]


def test_a_bad_line_is_answered_and_the_others_too(cli: Cli) -> None:
    lines = ["{", "[1]", '{"text": 1}', '{"text": "a", "tools": {}}', "", '{"text": "Hello\\ud800"}']
    outcome = cli("toolcalls", "parse", "--jsonl", stdin="\n".join(lines))
    found = [json.loads(line) for line in outcome.out.splitlines()]
    assert outcome.code == 1
    assert [answer["error"]["code"] for answer in found[:4]] == ["invalid_request"] * 4
    assert found[4]["content"] == "Hello\ud800"


def test_tools_that_cannot_be_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}")
    for path in (tmp_path / "x", tmp_path / "none"):
        assert cli("toolcalls", "parse", "--json", "--tools", str(path), stdin="").json()["error"]["param"] == "tools"
