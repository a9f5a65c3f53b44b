"""The house rules that no linter knows, checked on every file of the repository.

FLOORS is the map of the program. docs/architecture.md shows it with what each package is for, made from the packages'
docstrings. The rules themselves are tested at the end, on samples that break them.
"""

from __future__ import annotations

import ast
import graphlib
import io
import re
import subprocess
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# The packages of the program, from the ground up. A module imports from its own package and from those before it.
FLOORS: tuple[str, ...] = (
    "errors",
    "core.text",
    "core.gguf",
    "core.options",
    "core.toolcalls",
    "core.spec",
    "core.memory",
    "core.mlx",
    "core.devices",
    "core.plan",
    "core.environment",
    "core.engine_output",
    "core.schedule",
    "core.takeover",
    "core.workers",
    "core.cluster",
    "core.launch",
    "core.learn",
    "core.params",
    "core.models",
    "core.repository",
    "core.history",
    "core.speed",
    "core.stream",
    "core.recovery",
    "core.doors",
    "core.routes",
    "core.requests",
    "core.localai",
    "system",
    "demo",
    "store",
    "engines",
    "config",
    "llamacpp",
    "probe",
    "workers",
    "files",
    "measuring",
    "hub",
    "models",
    "pool",
    "planning",
    "proxy",
    "service",
    "cluster",
    "ui",
    "api",
    "daemon",
    "cli",
    "__main__",
)

# Modules that are tables of data and may be longer than MAX_LINES.
DATA_ONLY: frozenset[str] = frozenset({"core.spec.architectures", "demo.texts", "errors"})
MAX_LINES = 400
PROGRAM_NAMES = frozenset({"", "__version__"})  # what supervisor/__init__.py holds

# Run by another interpreter, which has nothing of this program.
ELSEWHERE = "engines.mlx.launcher"

# Where text of engines and drivers arrives, JSON is read by `core/text/foreignjson` alone; these read their own.
READ_FOREIGN_JSON = ("core", "engines", "proxy")
READ_THEIR_OWN: frozenset[str] = frozenset(
    {"core.text.foreignjson", "core.learn.identity"}  # it itself; what was written a moment before
    | {"core.requests.outline", "core.requests.outliner"}  # one string
    | {"core.toolcalls.jsontext"}  # numbers keep their spelling; says ValueError for all
    | {"proxy.asgi", "proxy.relay", "proxy.server"}  # envelopes of our errors
)

# Names that one module of another theme uses and that are at home where they are: what a tool prints, what the core may
# compute for the shell, the two ends of one protocol.
AT_HOME: frozenset[str] = frozenset(
    {"core.devices.amd.with_names", "core.engine_output.statelines.ENV_SPEAK", "core.learn.history.typical_seconds"}
    | {"core.recovery.raw.COMPLETION_PATH", "core.stream.responses.answer_id", "system.proof.new_secret"}
)

IMPURE = frozenset(  # what touches the world
    {"asyncio", "logging", "os", "pathlib", "random", "secrets"}
    | {"socket", "structlog", "subprocess", "threading", "time"}
)

# A function's docstring says what it does or returns, with a verb or, of a property, a noun: never a question. These
# packages have yet to follow; none joins them.
ASK_IN_DOCSTRINGS: frozenset[str] = frozenset()
QUESTION = re.compile(r"(?:what|which|who|whom|whose|where|when|why|how|whether)(?:ever|\b)", re.IGNORECASE)

HTTP = frozenset({"fastapi", "starlette"})
SPEAK_HTTP = frozenset({"api", "proxy", "daemon", "cluster"})  # the rest of the program does not know who asks

REASON = re.compile(r"\s+(?:-|–|#)\s*\w")  # what follows an ignore: a dash or a second comment, and words
IGNORE = re.compile(r"#\s*(?:noqa\b(?::\s*[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)?|type:\s*ignore\b(?:\[[^\]]*\])?)")

MODULE = re.compile(r"`(?:supervisor/)?(?P<module>[a-z_]+(?:/[a-z_]+)+)(?:\.py)?`")

# Nothing of the machine it was written on, and no package index: an index is the user's choice. Written so that this
# file does not match itself.
PLACES = re.compile(
    r"(?<![\w.$}~/-])/(?:home|Users|root|work|farm)/\w"  # somebody's folder
    r"|/tmp/(?:wt|ve|proto)\b"
    r"|files[.]pythonhosted|pypi[.]org|registry[.]npmjs|deb[.]debian[.]org|crates[.]io"
)


def imports_of(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every imported name with its line, absolute and whole: `a.b` of `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = f"supervisor.{module}".rstrip(".").split(".")
                above = here[: len(here) - node.level + is_package]
                base = ".".join([*above, base]).rstrip(".")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def floor_of(name: str) -> str | None:
    """The package that a module, or a name of one, belongs to; None for one that FLOORS does not know."""
    return next((floor for floor in FLOORS if is_within(name, floor)), None)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def forbidden_imports(text: str, module: str, is_package: bool = False) -> list[str]:
    """What this module imports of our program without being allowed to, and of the world where it is in the core."""
    floor = floor_of(module)
    if floor is None:
        empty = not list(imports_of(ast.parse(text), module, is_package))
        return [] if empty and is_package else [f"{module}: no floor (FLOORS in tests/test_house.py)"]
    found = []
    for line, name in imports_of(ast.parse(text), module, is_package):
        top, _, inner = name.partition(".")
        if top == "supervisor":
            found += [f"{module}:{line}: {fault}" for fault in _faults(floor, inner)]
        elif top in HTTP and floor not in SPEAK_HTTP:
            found.append(f"{module}:{line}: {floor} may not import {top}")
        elif is_within(module, "core") and top in IMPURE:
            found.append(f"{module}:{line}: the core may not import {top}")
    return list(dict.fromkeys(found))


def _faults(floor: str, name: str) -> Iterator[str]:
    """What forbids a module of `floor` to import `name`, which is without the program's own name."""
    other = floor_of(name)
    if other is None:
        if "." in name or name not in PROGRAM_NAMES:
            yield f"may not import {name}: it stands on no floor"
    elif other != floor:
        if FLOORS.index(other) > FLOORS.index(floor):
            yield f"may not import {name}: {other} stands above {floor}"
        if any(part.startswith("_") for part in name.removeprefix(other).split(".")):
            yield f"may not import {name}: it is private to {other}"


def import_circle(modules: Iterable[tuple[str, str, bool]]) -> list[str]:
    """A circle of modules that import each other, in a function and for types, too; empty where there is none."""
    program = {module: (text, is_package) for module, text, is_package in modules}
    imported: dict[str, set[str]] = {module: set() for module in program}
    for module, (text, is_package) in program.items():
        for _, name in imports_of(ast.parse(text), module, is_package):
            inner = name.removeprefix("supervisor.")
            meant = inner if inner in program else inner.rpartition(".")[0]
            if inner != name and meant in program and meant != module:
                imported[module].add(meant)
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def late_imports(text: str, module: str) -> list[str]:
    """Imports inside functions; the command line may have them, for its start-up time."""
    if is_within(module, "cli"):
        return []
    tree = ast.parse(text)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    late = {node.lineno for one in functions for node in ast.walk(one) if isinstance(node, ast.Import | ast.ImportFrom)}
    return [f"{module}:{line}: an import inside a function" for line in sorted(late)]


class _Settings(ast.NodeVisitor):
    """The attributes of one module's classes that may be set, and those that the module sets.

    Attributes:
        settable: attributes that a class sets on itself, and the fields of dataclasses that are not frozen.
        set: (line, attribute) that it sets on something else than `self`. Arguments that are declared as objects of
            another library, or as Any, do not count.
    """

    def __init__(self, tree: ast.Module, module: str) -> None:
        self.settable: set[str] = set()
        self.set: list[tuple[int, str]] = []
        self._arguments: list[dict[str, str]] = []
        names = (name for _, name in imports_of(tree, module, is_package=False))
        self._libraries = {name.partition(".")[0] for name in names} - {"supervisor"}
        self.visit(tree)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        fields = {one.id for part in node.body for one in _targets(part) if isinstance(one, ast.Name)}
        made = [ast.unparse(one) for one in node.decorator_list if "dataclass" in ast.unparse(one)]
        if made and "frozen=True" not in made[0]:
            self.settable |= fields
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self._arguments.append({one.arg: ast.unparse(one.annotation) for one in given if one.annotation})
        self.generic_visit(node)
        self._arguments.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit(self, node: ast.AST) -> None:
        for target in _targets(node):
            if isinstance(target, ast.Attribute):
                self._note(target)
        super().visit(node)

    def _note(self, target: ast.Attribute) -> None:
        if not isinstance(target.value, ast.Name):
            self.set.append((target.lineno, target.attr))
        elif target.value.id == "self":
            self.settable.add(target.attr)
        elif not self._is_foreign(target.value.id):
            self.set.append((target.lineno, target.attr))

    def _is_foreign(self, name: str) -> bool:
        kind = next((found[name] for found in reversed(self._arguments) if name in found), "")
        return kind == "Any" or ("." in kind and kind.partition(".")[0] in self._libraries)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """The places that a statement assigns to."""
    found = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    for target in found:
        yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def foreign_attributes(modules: Iterable[tuple[str, str, bool]]) -> list[str]:
    """Attributes that a module sets on an object of another package: by their names, as no package of its own has them.

    What an object needs it gets when it is built; what may change later it asks for, or it has a method that says so.
    """
    found = {module: _Settings(ast.parse(text), module) for module, text, _ in modules}
    known = {name for one in found.values() for name in one.settable}
    own: dict[str | None, set[str]] = {}
    for module, one in found.items():
        own.setdefault(floor_of(module), set()).update(one.settable)
    return [
        f"{module}:{line}: sets `.{name}` of an object of another package"
        for module, one in found.items()
        for line, name in one.set
        if name in known and name not in own[floor_of(module)]
    ]


class _Names:
    """The functions and constants of one module, and which of them are used together.

    Attributes:
        all: their names, and those of classes.
        imported: (module, name) of what it takes from others.
    """

    def __init__(self, text: str, module: str, is_package: bool) -> None:
        tree = ast.parse(text)
        self.is_package = is_package
        self.all: dict[str, ast.stmt] = {name: part for part in tree.body for name in _defined(part)}
        names = (name.removeprefix("supervisor.") for _, name in imports_of(tree, module, is_package))
        self.imported = {(name.rpartition(".")[0], name.rpartition(".")[2]) for name in names}
        self._used = [{*_defined(part), *_read(part)} & self.all.keys() for part in tree.body]

    def with_it(self, name: str) -> set[str]:
        """The names that use this one or are used by it, directly or through others."""
        found, before = {name}, set[str]()
        while found != before:
            before = set(found)
            found = found.union(*(used for used in self._used if used & found))
        return found


def _defined(part: ast.stmt) -> set[str]:
    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {part.name}
    return {one.id for one in _targets(part) if isinstance(one, ast.Name)}


def _read(part: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}


def strays(modules: Iterable[tuple[str, str, bool]]) -> list[str]:
    """Functions and constants that only one module uses, and that have nothing to do with their own.

    Nothing else of their module uses them or is used by them; who imports them takes nothing else from there, and what
    is left is the larger part, for others.
    """
    found = {module: _Names(text, module, is_package) for module, text, is_package in modules}
    users: dict[tuple[str, str], set[str]] = {}
    for module, one in found.items():
        for taken in one.imported:
            users.setdefault(taken, set()).add(module)
    return [
        f"{module}: {name} is used in {next(iter(users[module, name]))} alone and has nothing to do with its own module"
        for module, one in found.items()
        for name in one.all
        if f"{module}.{name}" not in AT_HOME and _is_stray(module, name, one, users)
    ]


def _is_stray(module: str, name: str, names: _Names, users: dict[tuple[str, str], set[str]]) -> bool:
    own = users.get((module, name), set())
    together = names.with_it(name)
    if len(own) != 1 or isinstance(names.all[name], ast.ClassDef) or len(together) > len(names.all) / 2:
        return False
    others = [users.get((module, other), set()) for other in names.all.keys() - together]
    used_as_one = all(users.get((module, other), own) <= own for other in together)
    return used_as_one and any(others) and not any(own & other for other in others)


def opened_files(text: str, module: str) -> list[str]:
    """Calls of `open` in the core."""
    if not is_within(module, "core"):
        return []
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [
        f"{module}:{call.lineno}: the core opens no file"
        for call in calls
        if getattr(call.func, "id", getattr(call.func, "attr", "")) == "open"
    ]


def unguarded_json(text: str, module: str) -> list[str]:
    """Calls of `json.loads` where others' JSON arrives: it also raises what is no ValueError."""
    if (
        module in READ_THEIR_OWN
        or is_within(module, ELSEWHERE)
        or not any(is_within(module, room) for room in READ_FOREIGN_JSON)
    ):
        return []
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [
        f"{module}:{call.lineno}: read others' JSON with core/text/foreignjson"
        for call in calls
        if getattr(call.func, "attr", "") == "loads" and getattr(getattr(call.func, "value", None), "id", "") == "json"
    ]


def asking_docstrings(text: str, module: str) -> list[str]:
    """Return the functions whose docstring begins with a question word, of packages that have to do without."""
    if floor_of(module) in ASK_IN_DOCSTRINGS:
        return []
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [
        f"{module}:{node.lineno}: the docstring of {node.name} begins with a question word: use a verb"
        for node in functions
        if QUESTION.match(ast.get_docstring(node) or "")
    ]


def too_long(text: str, module: str) -> list[str]:
    lines = text.count("\n")
    return [f"{module}: {lines} lines, {MAX_LINES} at most"] if lines > MAX_LINES and module not in DATA_ONLY else []


def bare_ignores(text: str, name: str) -> list[str]:
    """`noqa` and `type: ignore` comments without a reason after them."""
    comments = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    return [
        f"{name}:{comment.start[0]}: an ignore without its reason: {comment.string}"
        for comment in comments
        for ignore in IGNORE.finditer(comment.string)
        if not REASON.match(IGNORE.sub("", comment.string[ignore.end() :]))
    ]


def lost_modules(text: str, name: str) -> list[str]:
    """Modules of the program that a text names in backticks and that are not there."""
    found = ((at, named["module"]) for at, line in enumerate(text.splitlines(), 1) for named in MODULE.finditer(line))
    here = ROOT / "supervisor"
    return [
        f"{name}:{at}: names `{module}`, which is not there"
        for at, module in found
        if (here / module.partition("/")[0]).is_dir()
        and not ((here / module).is_dir() or (here / f"{module}.py").is_file())
    ]


WAITING = ("subprocess", "httpx", "socket", "http")  # modules whose calls wait for something real
AT = {"asyncio.timeout": 0, "asyncio.wait_for": 1, "join": 0, "result": 0, "settimeout": 0}  # where others have it


def impatient(text: str, name: str) -> list[str]:
    """Limits of seconds on what a test waits for: a busy machine needs longer. Short ones are a client's own."""
    calls = (call for call in ast.walk(ast.parse(text)) if isinstance(call, ast.Call))
    return [
        f"{name}:{call.lineno}: wait for PATIENCE (tests/support/patience.py), not for {limit.value} seconds"
        for call in calls
        if isinstance(call.func, ast.Attribute)
        for limit in limits_of(call, ast.unparse(call.func), call.func.attr)
        if isinstance(limit, ast.Constant) and isinstance(limit.value, int | float) and limit.value >= 10
    ]


def limits_of(call: ast.Call, function: str, method: str) -> list[ast.expr]:
    """What of a call may be how long it waits for something real."""
    at = AT.get(function, AT.get(method, len(call.args)))
    named = function.startswith(WAITING) or method in {"communicate", *AT}
    return [*call.args[at : at + 1], *(word.value for word in call.keywords if named and word.arg == "timeout")]


def named_places(text: str, name: str) -> list[str]:
    return [
        f"{name}:{number}: names a machine or a package index: {found.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := PLACES.search(line))
    ]


def repository_files() -> list[Path]:
    """The tracked files and those about to be; without git (an unpacked archive), the folders of the project."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        folders = ("supervisor", "tests", "bin", "docs", "benchmarks", "requirements")
        return [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    return [path for name in names if name and (path := ROOT / name).is_file()]


def source_files() -> list[Path]:
    return [path for path in repository_files() if path.suffix == ".py"]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "supervisor").with_suffix("").parts).removesuffix("__init__").rstrip(".")


def program_modules() -> list[tuple[str, str, bool]]:
    """(module, text, is it a package) of every file of the program."""
    paths = sorted((ROOT / "supervisor").rglob("*.py"))
    return [(module_name(path), path.read_text("utf-8"), path.name == "__init__.py") for path in paths]


def complain(found: list[str]) -> None:
    if found:
        pytest.fail("\n".join(found), pytrace=False)


PROGRAM = program_modules()

# -- the rules on the repository ---------------------------------------------------------------------------------------


def test_modules_import_only_what_their_room_allows() -> None:
    complain([fault for module, text, package in PROGRAM for fault in forbidden_imports(text, module, package)])


def test_no_modules_import_each_other() -> None:
    circle = import_circle(PROGRAM)
    complain([" ← ".join(circle)] if circle else [])


def test_only_the_command_line_imports_late() -> None:
    complain([fault for module, text, _ in PROGRAM for fault in late_imports(text, module)])


def test_no_object_is_patched_from_another_package() -> None:
    complain(foreign_attributes(PROGRAM))


def test_what_one_module_uses_lives_there() -> None:
    complain(strays(PROGRAM))


def test_what_is_at_home_is_there() -> None:
    there = {f"{module}.{name}" for module, text, package in PROGRAM for name in _Names(text, module, package).all}
    assert there >= AT_HOME


def test_the_core_opens_no_file() -> None:
    complain([fault for module, text, _ in PROGRAM for fault in opened_files(text, module)])


def test_others_json_is_read_in_one_place() -> None:
    complain([fault for module, text, _ in PROGRAM for fault in unguarded_json(text, module)])


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    complain([fault for module, text, _ in PROGRAM for fault in asking_docstrings(text, module)])


def test_the_packages_that_have_yet_to_follow_are_there() -> None:
    assert set(FLOORS) >= ASK_IN_DOCSTRINGS


def test_no_module_is_too_long() -> None:
    complain([fault for module, text, _ in PROGRAM for fault in too_long(text, module)])


def test_every_ignore_has_its_reason() -> None:
    complain([fault for path in source_files() for fault in bare_ignores(path.read_text("utf-8"), path.name)])


def test_tests_wait_with_the_same_patience() -> None:
    tests = ROOT / "tests"
    elsewhere = {tests / "mutants", tests / "evidence"}  # programs of their own, with limits that they are about
    found = [path for path in source_files() if tests in path.parents and not elsewhere & set(path.parents)]
    assert len(found) > 200
    complain([fault for path in found for fault in impatient(path.read_text("utf-8"), path.name)])


def test_the_modules_that_texts_name_are_there() -> None:
    paths = [*source_files(), *(ROOT / "docs").glob("*.md")]
    ours = [path for path in paths if path.relative_to(ROOT).parts[0] in {"supervisor", "docs"}]
    complain([fault for path in ours for fault in lost_modules(path.read_text("utf-8"), path.name)])


def test_no_file_names_a_machine_or_a_package_index() -> None:
    found = []
    for path in repository_files():
        content = path.read_bytes()
        if b"\0" not in content:
            found += named_places(content.decode("utf-8", errors="replace"), str(path.relative_to(ROOT)))
    complain(found)


def test_every_floor_is_there() -> None:
    modules = {module for module, _, _ in PROGRAM}
    complain([f"FLOORS names {floor}, which is not there" for floor in FLOORS if floor not in modules])


# -- the rules on samples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("core.gguf.header", "import asyncio"),
        ("core.gguf.header", "from os import path"),
        ("core.gguf.header", "def f():\n    import time"),
        ("core.gguf.header", "import supervisor.core.plan"),
        ("core.gguf.header", "from supervisor.core import plan"),
        ("core.gguf.header", "from .. import plan"),
        ("core.gguf.header", "from ..plan import Placement"),
        ("core.toolcalls.dialects.hermes", "from ...plan import Placement"),
        ("core.gguf.header", "from supervisor.system import paths"),
        ("pool.pool", "from supervisor.proxy.relay import relay_endpoints"),
        ("errors", "from supervisor import system"),
        ("api.openai", "from supervisor.cli import main"),
        ("llamacpp.build", "from supervisor.daemon.run import build"),
        ("api.openai", "from supervisor.pool.pool import _grants"),
        ("api.openai", "from supervisor import nowhere"),
        ("newcomer", ""),
        ("core.newcomer", ""),
        ("service.loads", "from fastapi import Request"),
        ("service.loads", "import starlette.responses"),
    ],
)
def test_a_forbidden_import_is_found(module: str, text: str) -> None:
    assert len(forbidden_imports(text, module)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("core.gguf.header", "import struct\nfrom supervisor.errors import GgufError"),
        ("core.memory.swa", "from supervisor.core.memory.layout import Layout\nfrom ..spec import ModelSpec"),
        ("core.memory.swa", "from supervisor.core.memory import _tables"),
        ("llamacpp.build", "import os\nfrom supervisor.llamacpp import use\nfrom supervisor.core import plan"),
        ("cli.serve", "from supervisor import __version__, daemon\nfrom supervisor.system.paths import places"),
        ("daemon.run", "from supervisor.api import openai\nimport supervisor.pool.pool"),
        ("api.openai", "from fastapi import APIRouter"),
    ],
)
def test_an_allowed_import_is_not_found(module: str, text: str) -> None:
    assert forbidden_imports(text, module) == []


def test_a_package_resolves_its_own_relative_imports() -> None:
    assert forbidden_imports("from .hermes import parse", "core.toolcalls", is_package=True) == []
    assert forbidden_imports("from ..plan import Placement", "core.toolcalls", is_package=True) != []


@pytest.mark.parametrize(
    "back",
    [
        "from supervisor.a import x",
        "def f():\n    from supervisor import a",
        "from .. import a",
        "if TYPE_CHECKING:\n    import supervisor.a",
    ],
)
def test_an_import_circle_is_found(back: str) -> None:
    rest = [("a", "from supervisor import b", False), ("b", "import supervisor.c.d", False)]
    assert import_circle([*rest, ("c.d", "from supervisor.c import e", False)]) == []
    circle = import_circle([*rest, ("c.d", back, False)])
    assert circle[0] == circle[-1]
    assert set(circle) == {"a", "b", "c.d"}


def test_a_late_import_is_found_outside_the_command_line() -> None:
    text = "import os\n\n\ndef f():\n    async def g():\n        import json\n    return g"
    assert late_imports(text, "hub.worker") == ["hub.worker:6: an import inside a function"]
    assert late_imports(text, "cli.main") == []
    assert late_imports("import os", "hub.worker") == []


OWNER = """
import httpx

class Engine:
    def __init__(self):
        self.keeper = None
"""


@pytest.mark.parametrize(
    "line",
    ["engine.keeper = k", "self.engine.keeper = k", "a, engine.keeper = 1, 2", "engine.keeper += 1"],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_object_that_is_patched_is_found(line: str, kind: str) -> None:
    patching = f"{kind} f(engine):\n    {line}"
    assert len(foreign_attributes([("engines.engine", OWNER, False), ("service.launcher", patching, False)])) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def f(engine):\n    engine.other = 1\n    keeper = engine.keeper",
        "class C:\n    def f(self):\n        self.keeper = 1\n\ndef g(c):\n    c.keeper = 2",
        "@dataclass\nclass C:\n    keeper: int = 0\n\ndef g(c):\n    c.keeper = 2",
        "import httpx\n\ndef f(answer: httpx.Response):\n    answer.keeper = 1",
        "def f(answer: Any):\n    answer.keeper = 1",
    ],
)
def test_what_a_package_sets_of_its_own_and_of_libraries_is_not_found(text: str) -> None:
    assert foreign_attributes([("engines.engine", OWNER, False), ("service.launcher", text, False)]) == []


TOOLBOX = "LIMIT = 1\n\ndef saw(): ...\n\ndef plane(): return saw()\n\ndef drill(): ..."
SHOPS = [("b", "from supervisor.a import plane", False), ("c", "from supervisor.a import saw", False)]


@pytest.mark.parametrize("taken", ["drill", "LIMIT"])
def test_a_stray_is_found(taken: str) -> None:
    assert len(strays([("a", TOOLBOX, False), *SHOPS, ("d", f"from supervisor.a import {taken}", False)])) == 1


@pytest.mark.parametrize(
    "users",
    [
        [("d", "from supervisor.a import drill, saw", False)],
        [("d", "from supervisor.a import drill", False), ("e", "from supervisor.a import drill", False)],
        [("d", "from supervisor.a import plane", False)],
        [],
    ],
)
def test_what_belongs_to_its_module_is_no_stray(users: list[tuple[str, str, bool]]) -> None:
    assert strays([("a", TOOLBOX, False), *SHOPS, *users]) == []
    alone = [("a", "def drill(): ...", False), ("d", "from supervisor.a import drill", False)]
    assert strays(alone) == []


@pytest.mark.parametrize("call", ["open(path)", "path.open('rb')", "io.open(path)"])
def test_an_opened_file_is_found_in_the_core_alone(call: str) -> None:
    assert len(opened_files(call, "core.gguf")) == 1
    assert opened_files(call, "files.model_file") == []


def test_a_limit_of_seconds_is_found() -> None:
    waits = "subprocess.run(command, timeout=60)\nprocess.communicate(timeout=30)\nhttpx.Client(timeout=100)\n"
    more = "asyncio.wait_for(ended, 10)\nasyncio.timeout(30)\nthread.join(20)\nfuture.result(timeout=30)\n"
    assert len(impatient(waits + more, "x")) == 7
    assert impatient("subprocess.run(x, timeout=PATIENCE)\nhttpx.get(x, timeout=5)\nrooms.ask(timeout=60)\n", "x") == []
    assert (
        impatient("asyncio.wait_for(20, 3)\nasyncio.timeout(PATIENCE)\n', '.join(found)\nclock.wait(20)\n", "x") == []
    )


def test_others_json_that_is_read_elsewhere_is_found() -> None:
    assert len(unguarded_json("x = json.loads(line)", "core.engine_output.statelines")) == 1
    assert unguarded_json("x = json.loads(line)", "core.text.foreignjson") == []
    assert unguarded_json("x = json.loads(line)", "cli.main") == []


@pytest.mark.parametrize(
    "start", ["What", "Whether", "how", "Where", "Which", "Why", "Who", "Whoever", "When", "Whose"]
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_docstring_that_asks_is_found(start: str, kind: str) -> None:
    method = f'class C:\n    """What it is."""\n    {kind} f(self):\n        """{start} it is."""\n'
    assert len(asking_docstrings(method, "pool.pool")) == 1
    assert (
        len(asking_docstrings(f'def f():\n    {kind} g():\n        """\n        {start} it is."""', "core.gguf")) == 1
    )


@pytest.mark.parametrize(
    "docstring", ["Return what it is.", "Return whether it is.", "Whole names of it.", "Howl.", ""]
)
def test_a_docstring_with_a_verb_is_not_found(docstring: str) -> None:
    assert asking_docstrings(f'def f():\n    """{docstring}"""', "pool.pool") == []
    assert asking_docstrings("def f(): ...", "pool.pool") == []


def test_a_long_module_is_found_unless_it_is_data() -> None:
    assert too_long("x = 1\n" * (MAX_LINES + 1), "pool") != []
    assert too_long("x = 1\n" * MAX_LINES, "pool") == []
    assert too_long("x = 1\n" * (MAX_LINES + 1), "core.spec.architectures") == []


@pytest.mark.parametrize("ignore", ["noqa", "noqa: BLE001", "noqa: E501, F401", "type: ignore", "type: ignore[misc]"])
def test_an_ignore_needs_a_reason(ignore: str) -> None:
    assert len(bare_ignores(f"x = 1  # {ignore}\n", "sample")) == 1
    assert len(bare_ignores(f"x = 1  # {ignore} -\n", "sample")) == 1
    assert bare_ignores(f"x = 1  # {ignore} - the boundary: everything becomes an envelope\n", "sample") == []
    assert bare_ignores(f"x = 1  # {ignore}  # ships no types\n", "sample") == []


def test_one_reason_serves_two_ignores_on_a_line() -> None:
    assert bare_ignores("x = 1  # type: ignore[misc]  # noqa: BLE001 - untyped boundary\n", "sample") == []


def test_the_word_noqa_in_a_text_is_no_ignore() -> None:
    assert bare_ignores('x = "# noqa"\n', "sample") == []


def test_a_module_that_is_not_there_is_found() -> None:
    assert len(lost_modules("see `core/nowhere` and `probe/nowhere.py`, not `owner/repo`", "sample")) == 2
    assert lost_modules("see `core/gguf`, `core/text/units.py` and `supervisor/core/text/units.py`", "sample") == []


@pytest.mark.parametrize("place", ["/" + "home/jo/x", "/" + "root/x", "/tmp/" + "wt/x", "https://pypi" + ".org/simple"])
def test_a_place_is_found(place: str) -> None:
    assert len(named_places(f"fine\ncd {place}\n", "sample")) == 1


ORDINARY = ["~/.cache/x", "$HOME/" + "work/x", "docs/" + "work/x", "https://example.org/" + "home/jo", "/tmp/" + "x"]


@pytest.mark.parametrize("path", ORDINARY)
def test_an_ordinary_path_is_no_place(path: str) -> None:
    assert named_places(f"cd {path}", "sample") == []
