"""The house rules that no linter knows, checked on every file of the repository.

ROOMS is the map of the program: what each module is allowed to import directly. A new module gets a row here and in
docs/architecture.md. The rules themselves are tested at the end, on samples that break them.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Rooms that other rows name as a whole. A name stands for the module and everything below it.
CORE = ("core",)
SHELL = (
    "auth",
    "child",
    "config",
    "cores",
    "daemon",
    "edges",
    "engine",
    "engine_client",
    "choosing",
    "engine_log",
    "fetching",
    "estimating",
    "header_cache",
    "headers",
    "hub",
    "inflight",
    "kv_store",
    "learning",
    "lease",
    "logfile",
    "llamacpp",
    "logs",
    "metrics",
    "modelfiles",
    "modelfolders",
    "owned",
    "proof",
    "paths",
    "planned",
    "planning",
    "pool",
    "prepare",
    "probe",
    "processes",
    "projectors",
    "proxy",
    "records",
    "reloading",
    "remembered",
    "serving",
    "smoke",
    "sockets",
    "store",
    "subjects",
    "targets",
    "terminal",
    "tending",
    "wakefulness",
    "workshop",
)

# Module -> what it may import of this program; the longest matching row counts. A room's modules may import each
# other, except in `core`, where each row is complete.
ROOMS: dict[str, tuple[str, ...]] = {
    "": (),  # supervisor/__init__.py
    "__main__": ("cli",),
    "errors": (),
    "paths": (),
    "terminal": ("core.plaintext",),
    "owned": (),
    "proof": (),
    # the functional core
    "core": (),
    "core.ggml": (),
    "core.gguf_cursor": (),
    "core.gguf_kind": (),
    "core.gguf": ("core.ggml", "core.gguf_cursor"),
    "core.architectures": (),
    "core.template": ("core.toolcalls",),
    "core.spec_keys": ("core.gguf",),
    "core.spec_layers": ("core.architectures", "core.spec_keys"),
    "core.spec_parts": ("core.architectures", "core.spec_keys", "core.spec_layers"),
    "core.spec_blocks": ("core.architectures", "core.spec_keys", "core.spec_layers"),
    "core.spec_tensors": ("core.gguf",),
    "core.spec": (
        *("core.architectures", "core.gguf", "core.template"),
        *("core.spec_blocks", "core.spec_keys", "core.spec_layers", "core.spec_parts", "core.spec_tensors"),
    ),
    "core.describe": ("core.gguf", "core.spec"),
    "core.memory": ("core.architectures", "core.ggml", "core.gguf", "core.memory", "core.spec", "core.spec_parts"),
    "core.devices": ("core.devices",),
    "core.plan": ("core.memory", "core.devices", "core.spec"),
    "core.footprint": (),
    "core.chatter": (),
    "core.identity": ("core.gguf", "core.memory"),
    "core.learn": ("core.footprint", "core.identity", "core.memory", "core.plan"),
    "core.capabilities": (),
    "core.plaintext": (),
    "core.flood": (),
    "core.loglevel": (),
    "core.environment": (),
    "core.statelines": (),
    "core.units": (),
    "core.launch": (
        "core.capabilities",
        "core.environment",
        "core.gguf",
        "core.memory",
        "core.plan",
        "core.statelines",
    ),
    "core.filters": (),
    "core.reload": ("core.registry",),
    "core.registry": (
        *("core.filters", "core.launch", "core.nearest", "core.plaintext", "core.schedule", "core.toolmode"),
    ),
    "core.failures": (),
    "core.keeping": ("core.capabilities", "core.launch"),
    "core.ladder": ("core.events", "core.failures", "core.launch", "core.plan"),
    "core.lifecycle": (),
    "core.events": (),
    "core.schedule": ("core.events", "core.lifecycle", "core.plan"),
    "core.watch": ("core.memory",),
    "core.catalog": ("core.catalog",),
    "core.params": ("core.spec",),
    "core.sse": (),
    "core.toolcalls": ("core.toolcalls",),
    "core.toolmode": (),
    "core.recovery": (
        *("core.apis", "core.chat", "core.recovery", "core.relay", "core.sse", "core.toolcalls", "core.toolmode"),
    ),
    "core.fold": ("core.sse",),
    "core.chat": ("core.fold", "core.sse", "core.toolcalls"),
    "core.completions": ("core.fold",),
    "core.responses": ("core.fold",),
    "core.raw_completions": ("core.fold",),
    "core.affinity": (),
    "core.outline": (),
    "core.outliner": ("core.outline",),
    "core.nearest": (),
    "core.engine_errors": (),
    "core.relay": ("core.apis", "core.sse"),
    "core.apis": ("core.sse",),
    "core.browsers": (),
    "core.upstream": ("core.chat", "core.completions", "core.fold", "core.raw_completions", "core.responses"),
    # the imperative shell
    "config": (*CORE, "auth", "paths"),
    "config.base": ("core.memory", "core.units"),
    "logfile": (),
    "logs": (*CORE, "logfile", "paths", "terminal"),
    "metrics": CORE,
    "auth": CORE,
    "store": (*CORE, "owned", "paths"),
    "probe": ("core.devices", "core.environment", "paths"),
    "processes": (),
    "records": ("owned", "processes"),
    "sockets": ("owned",),
    "child": ("processes", "records"),
    "cores": (),
    "engine_log": ("core.plaintext", "owned"),
    "estimating": ("config.base", "core.describe", "core.memory", "core.spec", "modelfiles"),
    "header_cache": ("core.gguf", "owned"),
    "kv_store": ("core.keeping", "engine_client", "owned"),
    "headers": ("core.catalog", "core.describe", "core.spec", "demo", "header_cache", "hub", "modelfiles", "paths"),
    "modelfiles": ("core.gguf", "header_cache", "paths"),
    "modelfolders": ("core.gguf_kind", "core.plaintext"),
    "outside": (),
    "hub": (
        *("child", "core.architectures", "core.catalog", "core.environment", "core.gguf", "header_cache"),
        *("modelfiles", "outside", "owned", "paths"),
    ),
    "llamacpp": (*CORE, "outside", "owned", "paths"),
    "learning": (*CORE, "llamacpp", "processes", "store"),
    "engine": (
        *("core.chatter", "core.footprint"),
        *("core.launch", "core.lifecycle", "core.failures", "core.statelines"),
        *("child", "engine_client", "engine_log", "paths", "processes", "sockets"),
    ),
    "engine_client": (),
    "wakefulness": (),
    "remembered": ("config", "core.launch", "core.registry", "learning", "store", "targets"),
    "targets": (
        *("config", "core.filters", "core.launch", "core.plaintext", "core.registry", "core.schedule"),
        *("modelfiles", "modelfolders", "paths"),
    ),
    "prepare": (
        *(*CORE, "cores", "demo", "engine", "engine_log", "fetching", "header_cache", "kv_store", "learning"),
        *("hub", "llamacpp", "paths", "planning", "sockets", "subjects"),
    ),
    "subjects": (
        *("core.describe", "core.gguf", "core.identity", "core.launch", "core.plan", "core.spec"),
        *("header_cache", "modelfiles", "projectors"),
    ),
    "planning": (*CORE, "learning", "probe", "subjects"),
    "fetching": ("core.catalog", "core.launch", "core.registry", "header_cache", "hub", "paths", "subjects"),
    "choosing": ("config", *CORE, "fetching", "hub", "planning", "prepare", "targets"),
    "planned": ("choosing", "core.devices", "core.plan", "core.schedule", "planning", "prepare"),
    "workshop": (
        *("child", "choosing", "config", "core.devices", "engine", "fetching", "hub", "kv_store", "learning", "paths"),
        *("planning", "prepare", "probe", "store", "targets"),
    ),
    "reloading": (
        *("config", "core.registry", "core.reload", "llamacpp", "modelfolders"),
        *("planning", "pool", "prepare", "targets", "workshop"),
    ),
    "projectors": ("core.gguf", "modelfiles"),
    "smoke": ("core.launch", "engine", "engine_client", "engine_log", "llamacpp", "paths", "prepare", "sockets"),
    "lease": ("core.schedule", "core.events", "core.failures", "child", "engine", "engine_client"),
    "tending": ("core.events", "core.watch", "engine", "lease"),
    "pool": (
        *("core.devices", "core.events", "core.lifecycle", "core.plan", "core.schedule"),
        *("engine_client", "lease", "tending"),
    ),
    "edges": (*CORE, "engine", "planning", "pool", "prepare", "remembered", "wakefulness"),
    "serving": ("proxy",),
    "inflight": ("core.events",),
    "proxy": (*CORE, "engine_client", "inflight", "pool"),
    "demo": ("owned",),
    # start-up and the ways in
    "daemon": ("auth", "config", "owned", "paths"),
    "api": (*CORE, *SHELL),
    "wiring": (*CORE, *SHELL, "api", "demo"),
    "cli": (*CORE, *SHELL, "demo", "wiring"),
}

# Modules that are tables of data and may be longer than MAX_LINES.
DATA_ONLY: frozenset[str] = frozenset({"core.architectures", "demo.texts", "errors"})
MAX_LINES = 400

IMPURE = frozenset(  # what touches the world
    {"asyncio", "logging", "os", "pathlib", "random", "secrets"}
    | {"socket", "structlog", "subprocess", "threading", "time"}
)

REASON = re.compile(r"\s+(?:-|–|#)\s*\w")  # what follows an ignore: a dash or a second comment, and words
IGNORE = re.compile(r"#\s*(?:noqa\b(?::\s*[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)?|type:\s*ignore\b(?:\[[^\]]*\])?)")

# Nothing of the machine it was written on, and no package index: an index is the user's choice. Written so that this
# file does not match itself.
PLACES = re.compile(
    r"(?<![\w.$}~/-])/(?:home|Users|root|work|farm)/\w"  # somebody's folder
    r"|/tmp/(?:wt|ve|proto)\b"
    r"|files[.]pythonhosted|pypi[.]org|registry[.]npmjs|deb[.]debian[.]org|crates[.]io"
)


def imports_of(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every imported module with its line, absolute: of `from a import b`, `a.b` where that has a row, else `a`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = f"supervisor.{module}".rstrip(".").split(".")
                above = here[: len(here) - node.level + is_package]
                base = ".".join([*above, base]).rstrip(".")
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield node.lineno, name if name.removeprefix("supervisor.") in ROOMS else base


def row_of(module: str) -> str | None:
    """The row of ROOMS that rules this module: itself or the nearest room above it; only the package itself has ""."""
    name = module
    while name not in ROOMS:
        if "." not in name:
            return None
        name = name.rpartition(".")[0]
    return None if name == "core" and module != "core" else name


def is_within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def forbidden_imports(text: str, module: str, is_package: bool = False) -> list[str]:
    """What this module imports of our program without being allowed to, and of the world where it is in the core."""
    row = row_of(module)
    if row is None:
        return [f"{module}: no row in ROOMS (tests/test_house.py)"]
    allowed = (*ROOMS[row], "errors", row) if row else ROOMS[row]
    found = []
    for line, name in imports_of(ast.parse(text), module, is_package):
        top, _, inner = name.partition(".")
        if top == "supervisor":
            if inner and not any(is_within(inner, room) for room in allowed):
                found.append(f"{module}:{line}: may not import {inner}")
        elif is_within(module, "core") and top in IMPURE:
            found.append(f"{module}:{line}: the core may not import {top}")
    return list(dict.fromkeys(found))


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


def test_the_core_opens_no_file() -> None:
    complain([fault for module, text, _ in PROGRAM for fault in opened_files(text, module)])


def test_no_module_is_too_long() -> None:
    complain([fault for module, text, _ in PROGRAM for fault in too_long(text, module)])


def test_every_ignore_has_its_reason() -> None:
    complain([fault for path in source_files() for fault in bare_ignores(path.read_text("utf-8"), path.name)])


def test_no_file_names_a_machine_or_a_package_index() -> None:
    found = []
    for path in repository_files():
        content = path.read_bytes()
        if b"\0" not in content:
            found += named_places(content.decode("utf-8", errors="replace"), str(path.relative_to(ROOT)))
    complain(found)


def test_the_rows_name_rooms_that_have_a_row() -> None:
    complain([f"{row}: {room} has no row" for row, rooms in ROOMS.items() for room in rooms if room not in ROOMS])


# -- the rules on samples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("core.gguf", "import asyncio"),
        ("core.gguf", "from os import path"),
        ("core.gguf", "def f():\n    import time"),
        ("core.gguf", "import supervisor.core.plan"),
        ("core.gguf", "from supervisor.core import plan"),
        ("core.gguf", "from . import plan"),
        ("core.gguf", "from .plan import Placement"),
        ("core.toolcalls.hermes", "from ..plan import Placement"),
        ("core.gguf", "from supervisor import paths"),
        ("pool", "from supervisor.proxy.relay import relay_endpoints"),
        ("child", "from supervisor.core.launch import LaunchSpec"),
        ("errors", "from supervisor import paths"),
        ("api.openai", "from supervisor.cli import main"),
        ("llamacpp.build", "from supervisor.wiring import build"),
        ("newcomer", ""),
        ("core.newcomer", ""),
    ],
)
def test_a_forbidden_import_is_found(module: str, text: str) -> None:
    assert len(forbidden_imports(text, module)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("core.gguf", "import struct\nfrom supervisor.errors import GgufError"),
        ("core.memory.swa", "from supervisor.core.memory.layout import Layout\nfrom ..spec import ModelSpec"),
        ("llamacpp.build", "import os\nfrom supervisor.llamacpp import use\nfrom supervisor.core import capabilities"),
        ("cli.serve", "from supervisor import __version__, wiring\nfrom supervisor.paths import places"),
        ("wiring", "from supervisor.api import openai\nimport supervisor.pool"),
    ],
)
def test_an_allowed_import_is_not_found(module: str, text: str) -> None:
    assert forbidden_imports(text, module) == []


def test_a_package_resolves_its_own_relative_imports() -> None:
    assert forbidden_imports("from .hermes import parse", "core.toolcalls", is_package=True) == []
    assert forbidden_imports("from ..plan import Placement", "core.toolcalls", is_package=True) != []


@pytest.mark.parametrize("call", ["open(path)", "path.open('rb')", "io.open(path)"])
def test_an_opened_file_is_found_in_the_core_alone(call: str) -> None:
    assert len(opened_files(call, "core.gguf")) == 1
    assert opened_files(call, "modelfiles") == []


def test_a_long_module_is_found_unless_it_is_data() -> None:
    assert too_long("x = 1\n" * (MAX_LINES + 1), "pool") != []
    assert too_long("x = 1\n" * MAX_LINES, "pool") == []
    assert too_long("x = 1\n" * (MAX_LINES + 1), "core.architectures") == []


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


@pytest.mark.parametrize("place", ["/" + "home/jo/x", "/" + "root/x", "/tmp/" + "wt/x", "https://pypi" + ".org/simple"])
def test_a_place_is_found(place: str) -> None:
    assert len(named_places(f"fine\ncd {place}\n", "sample")) == 1


ORDINARY = ["~/.cache/x", "$HOME/" + "work/x", "docs/" + "work/x", "https://example.org/" + "home/jo", "/tmp/" + "x"]


@pytest.mark.parametrize("path", ORDINARY)
def test_an_ordinary_path_is_no_place(path: str) -> None:
    assert named_places(f"cd {path}", "sample") == []
