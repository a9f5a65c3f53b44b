"""Tool calls through the daemon: models that say calls as text, in every dialect, broken, and as look-alikes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.core.toolcalls.corpus import TOOLS, Case, dialects, malformations, negatives
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.talkers import write_talkers

pytestmark = pytest.mark.engine

ROW = re.compile(r"[DM]\d+|N-.*")
WEIRD = {"N-surrogates"}  # no text that a model could say


def can_be_asked(case: Case) -> bool:
    """Whether a request with the usual tools comes to this case."""
    asked = case.finish == "stop" and not case.reasoning_in and not case.options and case.choice is None
    said = bool(case.text.strip()) and case.id not in WEIRD and case.tools is TOOLS
    return asked and said and not case.reasoning and bool(ROW.fullmatch(case.id))


def word(case: Case) -> str:
    return re.sub(r"[^a-z0-9]+", "-", case.id.lower()).strip("-")


CASES = [case for case in (*dialects.CASES, *malformations.CASES, *negatives.CASES) if can_be_asked(case)]


class Talkers:
    """A daemon whose models say the cases."""

    def __init__(self, daemon: RunningDaemon, homes: dict[str, str]) -> None:
        self.daemon = daemon
        self.homes = homes
        self.client = openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0)

    def ask(self, case: Case, **more: Any) -> Any:
        messages: Any = [{"role": "user", "content": word(case)}]
        model = self.homes[word(case)]
        return self.client.chat.completions.create(model=model, messages=messages, tools=TOOLS, **more)


@pytest.fixture(scope="module")
def talkers(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talkers]:
    files, homes = write_talkers(tmp_path_factory.mktemp("talkers"), {word(case): case.text for case in CASES})
    models = {name: {"file": str(path), "parallel": 2, "ctx_size": 16384} for name, path in files.items()}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        yield Talkers(daemon, homes)


def said(message: Any) -> tuple[tuple[tuple[str, Any], ...], str]:
    calls = message.tool_calls or []
    found = tuple((call.function.name, json.loads(call.function.arguments)) for call in calls)
    return found, message.content or ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_streamed_and_whole_it_is_the_same(talkers: Talkers, case: Case) -> None:
    whole = talkers.ask(case).choices[0]
    assert said(whole.message) == (case.calls, case.content)
    assert whole.finish_reason == ("tool_calls" if case.calls else "stop")
    model, messages = talkers.homes[word(case)], [{"role": "user", "content": word(case)}]
    asked: Any = {"model": model, "messages": messages, "tools": TOOLS}
    with talkers.client.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion().choices[0]
    assert said(final.message) == (case.calls, case.content)
    assert final.finish_reason == whole.finish_reason
    ids = [call.id for call in final.message.tool_calls or []]
    assert len(set(ids)) == len(ids)
