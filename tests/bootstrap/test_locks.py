"""The locked packages: complete, in agreement, and what pyproject.toml asks for."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.bootstrap.conftest import ROOT, uv_folder

PIN = re.compile(r"(?m)^([a-z0-9-]+)==([^\s;]+)( ; [^\\]+)? \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")

MLX = ROOT / "supervisor" / "engines" / "mlx" / "launcher"
TRACING = ROOT / "supervisor" / "service"
CLUSTER = ROOT / "supervisor" / "cluster"
EXTRA = ROOT / "supervisor" / "cli" / "localai"  # the only folder that may import what the extra [localai] brings


def pins(kind: str) -> dict[tuple[str, str], frozenset[str]]:
    """(package, version) -> the hashes of its files."""
    text = (ROOT / "requirements" / f"{kind}.txt").read_text()
    found = {(pin[1], pin[2]): frozenset(re.findall("sha256:[0-9a-f]{64}", pin[4])) for pin in PIN.finditer(text)}
    assert len(found) == sum(line[:1].isalnum() for line in text.splitlines())
    return found


def normalised(name: str) -> str:
    """A package's name as locks spell it."""
    return re.sub("[-_.]+", "-", name).lower()


@pytest.mark.parametrize(("inner", "outer"), [("runtime", "localai"), ("localai", "dev")])
def test_a_lock_contains_the_smaller_one(inner: str, outer: str) -> None:
    larger = pins(outer)
    assert all(larger.get(pin) == hashes for pin, hashes in pins(inner).items())


@pytest.mark.parametrize("kind", ["runtime", "localai", "dev"])
def test_every_dependency_is_locked(kind: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    development = [one for one in groups["dev"] if isinstance(one, str)] + groups["docs"]
    assert {"include-group": "docs"} in groups["dev"]
    extras = project["project"]["optional-dependencies"]
    chosen = {"runtime": [], "localai": ["localai"], "dev": list(extras)}[kind]
    further = [one for extra in chosen for one in extras[extra]]
    asked = project["project"]["dependencies"] + further + (development if kind == "dev" else [])
    names = {normalised(re.split(r"[^A-Za-z0-9_.-]", requirement)[0]) for requirement in asked}
    assert names <= {name for name, _ in pins(kind)}


def imported() -> set[tuple[str, Path]]:
    """The modules of other projects that the program imports, anywhere in a file, with the folder of the file."""
    found: set[tuple[str, Path]] = set()
    for path in (ROOT / "supervisor").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            found |= {(name.partition(".")[0], path.parent) for name in names}
    return {(name, place) for name, place in found if name not in {*sys.stdlib_module_names, "supervisor"}}


def test_the_program_imports_nothing_that_only_its_tests_have() -> None:
    locked = {kind: {name for name, _ in pins(kind)} for kind in ("runtime", "localai", "dev")}
    providers = packages_distributions()
    modules = imported()
    assert len({name for name, _ in modules}) >= 10, "imports are not found any more"
    assert ("grpc", EXTRA) in modules
    assert ("mlx_lm", MLX) in modules
    for module, place in modules:
        if place == MLX:  # run by another interpreter, whose packages have a lock of their own
            assert module in {"mlx", "mlx_lm"}, f"{place} imports {module}"
            continue
        if place == CLUSTER and module == "nats":  # of the extra for clusters, likewise
            assert "nats-py" in locked["dev"]
            continue
        packages = set(map(normalised, providers[module]))
        if (module, place) == ("requests", TRACING):  # of the extra for traces, which only the tests install
            assert packages & locked["dev"]
            continue
        assert packages & locked["localai" if place == EXTRA else "runtime"], f"{place} imports {module}"


@pytest.mark.full
def test_making_the_locks_again_changes_nothing(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "bin", tmp_path / "bin")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    env = os.environ | {"PATH": f"{uv_folder()}:{os.environ['PATH']}"}
    pinned = Path("supervisor", "engines", "mlx")
    (tmp_path / pinned).mkdir(parents=True)
    for name in ("requirements.in", "requirements.txt"):
        shutil.copy(ROOT / pinned / name, tmp_path / pinned)
    subprocess.run([tmp_path / "bin" / "lock"], env=env, check=True)
    for kind in ("runtime", "localai", "dev"):
        again = (tmp_path / "requirements" / f"{kind}.txt").read_text()
        assert again == (ROOT / "requirements" / f"{kind}.txt").read_text()
    again = (tmp_path / pinned / "requirements.txt").read_text()
    assert again == (ROOT / pinned / "requirements.txt").read_text()
