"""Kinds of engines: nobody outside `engines` asks which one a model is of, and a further one is a folder and a row."""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.config.base import Strict
from supervisor.config.options import chosen_from, with_options
from supervisor.core.devices import Budget, Budgets
from supervisor.core.launch.fallback import Fallback
from supervisor.core.models.registry import ModelEntry, Source
from supervisor.core.options import options_of
from supervisor.core.options.kinds import Name
from supervisor.core.options.table import Mark, option
from supervisor.core.plan import DoesNotFit, Place, Resident, Seat, seat
from supervisor.core.takeover.carried import Address
from supervisor.engines.command.manner import CommandManner, Listening
from supervisor.engines.command.options import CommandOptions
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.kind import Ground, Kind, Living, Read, Sight, Yard
from supervisor.engines.kinds import KINDS, launchings, plannings
from supervisor.engines.log import OutputLog
from supervisor.engines.service import Service
from supervisor.errors import NotSupportedByEngine
from supervisor.pool.living import NOBODY
from supervisor.system.sockets import fresh_socket
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[1] / "supervisor"
SERVER = Path(__file__).parent / "fakes" / "openai_server.py"

# What is llama-server's own by its nature: it is timed, tried after an install, and its parts are built.
OF_LLAMA = {"measuring.timing", "service.smoke", "service.launcher", "daemon.build"}

# Those who install what runs a kind.
INSTALLERS = {"llamacpp.mlxlm", "cli.verbs.engine"}


def questions(text: str, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Where code compares something with the name of a kind, or something called a kind with anything."""
    for node in ast.walk(ast.parse(text)):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        sides += (
            [case.pattern.value for case in node.cases if isinstance(case.pattern, ast.MatchValue)]
            if isinstance(node, ast.Match)
            else []
        )
        named = any(isinstance(side, ast.Constant) and side.value in names for side in sides)
        asked = any(isinstance(side, ast.Attribute) and ast.unparse(side).endswith("entry.kind") for side in sides)
        if named or asked:
            yield node.lineno, ast.unparse(node)[:80]  # type: ignore[attr-defined]  # both have a line


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if not module.startswith("engines."):
            yield module, path.read_text("utf-8")


def test_nobody_outside_the_engines_asks_of_which_kind_one_is() -> None:
    found = {module: list(questions(text, frozenset(KINDS))) for module, text in modules()}
    assert {module: asked for module, asked in found.items() if asked} == {}


def test_nobody_outside_the_engines_uses_a_kinds_own_modules() -> None:
    users = {
        module
        for module, text in modules()
        for name in KINDS
        if f"supervisor.engines.{name}" in text and module not in OF_LLAMA | INSTALLERS
    }
    assert users == set()


@pytest.mark.parametrize(
    "code",
    [
        'if entry.kind == "x": ...',
        'if kind_of(entry) in ("a", other) or name == "llama": ...',
        "a = entry.kind is b",
        'match name:\n    case "command": ...',
    ],
)
def test_a_question_for_the_kind_is_found(code: str) -> None:
    assert list(questions(code, frozenset(KINDS)))


def test_what_is_no_such_question_is_not_found() -> None:
    assert not list(questions('kinds[entry.kind].of(x)\nif source == "hub": ...', frozenset(KINDS)))


# -- a kind of its own -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScratchOptions:
    """One option."""

    scratch_word: Name | None = option("", "what it says", Mark.CONFIGURATION)


@dataclass(frozen=True)
class ScratchPlanning:
    ground: Ground

    async def know(self, entry: ModelEntry, living: Living) -> Read:
        return Read(entry)

    async def glance(self, entry: ModelEntry, living: Living) -> Read:
        return Read(entry)

    def plan(self, read: Read, sight: Sight, residents: Sequence[Resident]) -> tuple[Place | DoesNotFit, bool]:
        return seat(read.entry.id, {"CPU": 10}, sight.budgets, residents), False

    def again(self, fallback: Fallback, failure: Any, entry: ModelEntry, place: Place) -> Fallback | None:
        return None

    def check(self, entry: ModelEntry, given: Sequence[str] = ()) -> None:
        """Everything can be."""

    def told(self, read: Read, sight: Sight, place: Place, answered: Sequence[Any]) -> Mapping[str, object]:
        return {}


@dataclass(frozen=True)
class ScratchLaunching:
    yard: Yard

    async def prepare(self, read: Read, sight: Sight, place: Place, at: Address | None = None) -> Engine:
        path = at if isinstance(at, str) else str(fresh_socket(self.yard.runtime))
        command = (sys.executable, str(SERVER), "--socket", "${SOCKET}")
        listening, log = Listening(path, {"${SOCKET}": path}), self.yard.log(read.entry.id)
        manner = CommandManner(CommandOptions(command=command), listening, (self.yard.env, {}), log, None)
        return Engine(manner, log=log, record_dir=self.yard.records, limits=self.yard.limits())


SCRATCH = Kind(
    name="scratch",
    summary="For a test.",
    options=ScratchOptions,
    shared=frozenset(),
    lacks=frozenset(),
    source="scratch",
    placed=lambda options, absolute: {},
    complaints=lambda options: (),
    service=lambda entry: Service(frozenset({"/v1/chat/completions"}), plain=True),
    planning=ScratchPlanning,
    launching=ScratchLaunching,
)
ALL = {**KINDS, SCRATCH.name: SCRATCH}
ENTRY = ModelEntry("mine", Source.COMMAND, None, kind="scratch", own=ScratchOptions("hi"))


@with_options(row for row in options_of(SCRATCH.options))
class ScratchSettings(Strict):
    """What a file may say."""


@dataclass(frozen=True)
class Look:
    machine: Any
    budgets: Budgets


SIGHT = Look(None, Budgets((), Budget("CPU", "cpu", 100, 100)))


def test_its_options_become_settings() -> None:
    made = ScratchSettings.model_validate({"scratch_word": "hello"})
    assert chosen_from(ScratchOptions, made) == ScratchOptions("hello")
    assert SCRATCH.knows == {"scratch_word"}


def test_it_is_planned_launched_and_answers_beside_the_others(tmp_path: Path) -> None:
    async def live() -> None:
        planning = plannings(Ground(_Memory(), float, _Nobody(), _Nobody()), ALL).of(ENTRY)
        read = await planning.know(ENTRY, NOBODY)
        place, _ = planning.plan(read, SIGHT, ())
        assert isinstance(place, Seat)
        yard = Yard(
            *(_Memory(), float, lambda pid: {}, {}, tmp_path / "children", tmp_path / "run"),
            *(EngineLimits, lambda model: OutputLog(None), _Nobody()),
        )
        engine = await launchings(yard, ALL).of(ENTRY).prepare(read, SIGHT, place)
        try:
            async with asyncio.timeout(PATIENCE):
                ready = await engine.start(lambda progress: None)
            assert ready.n_slots == 4
            async with engine.client.get("/health") as answer:
                assert await answer.read() == b"ok"
        finally:
            await engine.stop()

    asyncio.run(live())


def test_what_it_does_not_answer_is_refused_by_name() -> None:
    service = SCRATCH.service(ENTRY)
    service.check("/v1/chat/completions", "mine")
    with pytest.raises(NotSupportedByEngine, match=r"mine.*/tokenize"):
        service.check("/tokenize", "mine")


def test_an_engine_of_another_kind_is_another_launch() -> None:
    assert not ENTRY.same_launch(replace(ENTRY, own=ScratchOptions("other")))
    assert not ENTRY.same_launch(replace(ENTRY, kind="command"))


class _Memory:
    """Remembers nothing."""

    def observations(self, model: str) -> tuple[Any, ...]:
        return ()

    def later(self, what: str, job: Any) -> None:
        """Forget it."""


class _Nobody:
    """The parts of models in GGUF, which nobody here has."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)
