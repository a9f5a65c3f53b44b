"""Every process that is started gets an environment that was chosen for it: seen from within, and in the source."""

from __future__ import annotations

import ast
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from supervisor.core.launch import LaunchSpec
from supervisor.engines.engine import EngineLimits
from supervisor.engines.llama.manner import llama_engine
from supervisor.engines.log import OutputLog
from supervisor.errors import EngineStartFailed
from supervisor.hub.access import HubChoices, hub_access
from supervisor.llamacpp.machine import survey
from supervisor.llamacpp.run_tool import run_tool as run_build_tool
from supervisor.probe.tool import run_tool as run_probe
from tests.support.paths import ROOT

pytestmark = pytest.mark.anyio

SECRETS = {name: "a secret" for name in ("SUPERVISOR_API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY")}
ENV = {**os.environ, **SECRETS, "GGML_NO_BACKTRACE": "1"}
TELL = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


def check(found: Mapping[str, str]) -> None:
    assert not SECRETS.keys() & found.keys()
    assert "a secret" not in found.values()
    assert found["PATH"] == os.environ["PATH"]
    assert found["GGML_NO_BACKTRACE"] == "1"


def telling_program(folder: Path, name: str) -> Path:
    """A program that writes its environment to a file beside it."""
    program, told = folder / name, folder / "told.json"
    program.write_text(f"#!{sys.executable}\nimport json, os\njson.dump(dict(os.environ), open({str(told)!r}, 'w'))\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


async def test_an_engine_gets_what_engines_need_and_what_it_is_given(tmp_path: Path) -> None:
    program = telling_program(tmp_path, "llama-server")
    launch = LaunchSpec((str(program),), {"MY_OWN": "given"}, str(tmp_path / "x.sock"))
    engine = llama_engine(launch, log=OutputLog(None), record_dir=tmp_path / "c", limits=EngineLimits(), environ=ENV)
    with pytest.raises(EngineStartFailed):
        await engine.start(lambda _: None)
    found = json.loads((tmp_path / "told.json").read_text())
    check(found)
    assert found["MY_OWN"] == "given"


def test_a_probe_gets_no_secret() -> None:
    check(json.loads(run_probe(TELL, ENV, 20)))


def test_a_survey_gets_no_secret(tmp_path: Path) -> None:
    telling_program(tmp_path, "nvidia-smi")
    survey({**ENV, "PATH": str(tmp_path)})
    found = json.loads((tmp_path / "told.json").read_text())
    assert not SECRETS.keys() & found.keys()


async def test_a_build_gets_no_secret(tmp_path: Path) -> None:
    result = await run_build_tool(TELL, env=ENV, log=tmp_path / "log")
    check(json.loads(result.tail[-1]))


def test_a_download_gets_the_hubs_token_and_no_other_secret() -> None:
    found = hub_access(ENV, HubChoices(token="the hub's")).child_env()
    assert found.pop("HF_TOKEN") == "the hub's"
    assert "GGML_NO_BACKTRACE" not in found
    check({**found, "GGML_NO_BACKTRACE": "1"})


# -- in the source -----------------------------------------------------------------------------------------------------

STARTS = {"Popen", "run", "call", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell"}
CHOSEN = {"for_engines", "for_python", "for_downloads", "for_builds", "child_environment", "child_env"}
# these run exactly what they are given; those who make it are looked at
HANDED_ON = {"system/child.py", "engines/engine.py", "hub/jobs.py"}
OURSELVES = {"cli/background.py", "daemon/takeover/departure.py", "daemon/takeover/trial.py"}
"""Starts of the daemon itself, which needs the keys."""


def started() -> Iterator[tuple[str, ast.Call]]:
    """Every call that starts a process, with the file it stands in."""
    for path in sorted((ROOT / "supervisor").rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _starts(node.func, of_engine="engines" in path.parts):
                yield str(path.relative_to(ROOT / "supervisor")), node


def _starts(function: ast.expr, *, of_engine: bool) -> bool:
    if not isinstance(function, ast.Attribute):
        return isinstance(function, ast.Name) and (function.id == "run_job" or (of_engine and function.id == "Command"))
    owner = ast.unparse(function.value)
    if (owner, function.attr) == ("asyncio", "run"):
        return False
    return (
        (owner in {"subprocess", "asyncio"} and function.attr in STARTS)
        or (owner.endswith("loop") and function.attr.startswith("subprocess_"))
        or (owner == "os" and function.attr.startswith(("exec", "spawn", "posix_spawn", "system", "popen")))
        or (owner == "Child" and function.attr == "spawn")
    )


def test_every_process_is_started_with_a_chosen_environment() -> None:
    calls = [(place, call) for place, call in started() if place not in OURSELVES | HANDED_ON]
    assert len(calls) >= 9, "the starts of processes are not found any more"
    for place, call in calls:
        given = next((keyword.value for keyword in call.keywords if keyword.arg == "env"), None) or _placed(call)
        assert given is not None, f"{place}:{call.lineno}: inherits our whole environment"
        text = ast.unparse(given)
        local = text.isidentifier() and any(f"{text} = {name}(" in _text(place) for name in CHOSEN)
        assert local or any(f"{name}(" in text for name in CHOSEN), f"{place}:{call.lineno}: env={text}"


def _placed(call: ast.Call) -> ast.expr | None:
    """The environment where it is given by its place."""
    place = {"Command": 1, "run_job": 2}.get(ast.unparse(call.func))
    return None if place is None or len(call.args) <= place else call.args[place]


def _text(place: str) -> str:
    return (ROOT / "supervisor" / place).read_text("utf-8")
