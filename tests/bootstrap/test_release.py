"""A release: version and changelog as texts, the bill of materials, and the files that are built."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from releasing.__main__ import build, main
from releasing.sbom import bill, locked
from releasing.version import ReleaseRefused, version_of, with_release, with_version
from tests.bootstrap.conftest import ROOT

MODULE = '"""A module."""\n\n__version__ = "0.1.0"\n__distribution__ = "x"\n'
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0 – 2026-01-01\n\n- The first.\n"
LOCK = (ROOT / "requirements" / "runtime.txt").read_text("utf-8")
WHEN = "2026-01-31T12:00:00Z"


def test_a_release_stands_below_an_empty_unreleased_part() -> None:
    text = with_release(CHANGELOG, "0.2.0", "2026-01-31")
    assert text == CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n## 0.2.0 – 2026-01-31\n")


@pytest.mark.parametrize(
    "changelog",
    ["# Changelog\n", "# Changelog\n\n## Unreleased\n\n## 0.1.0 – 2026-01-01\n\n- The first.\n"],
    ids=["no part", "nothing in it"],
)
def test_a_release_without_news_is_refused(changelog: str) -> None:
    with pytest.raises(ReleaseRefused, match="nothing under `## Unreleased`"):
        with_release(changelog, "0.2.0", "2026-01-31")


def test_a_version_is_released_once() -> None:
    with pytest.raises(ReleaseRefused, match=r"a release 0\.1\.0 already"):
        with_release(CHANGELOG, "0.1.0", "2026-01-31")


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.10.0", "1.0.0"])
def test_a_version_is_written_into_the_program(version: str) -> None:
    text = with_version(MODULE, version)
    assert version_of(text) == version
    assert text.replace(version, "0.1.0") == MODULE


@pytest.mark.parametrize(("version", "why"), [("0.0.9", "older"), ("1.0", "no version"), ("v1.0.0", "no version")])
def test_a_version_that_makes_no_sense_is_refused(version: str, why: str) -> None:
    with pytest.raises(ReleaseRefused, match=why):
        with_version(MODULE, version)


def test_the_bill_names_every_locked_package_with_its_digests() -> None:
    found = bill("0.2.0", locked(LOCK), WHEN)
    pins = re.findall(r"^([a-z0-9._-]+)==(\S+)", LOCK, re.MULTILINE)
    assert [(one["name"], one["version"]) for one in found["components"]] == pins
    digests = {value["content"] for one in found["components"] for value in one["hashes"]}
    assert digests == set(re.findall(r"--hash=sha256:([0-9a-f]{64})", LOCK))
    markers = {one["name"]: one["properties"][0]["value"] for one in found["components"] if "properties" in one}
    assert markers["uvloop"] == "sys_platform != 'win32'"


def test_the_bill_says_who_needs_what() -> None:
    found = bill("0.2.0", locked(LOCK), WHEN)
    needs = {one["ref"].split("/")[1].split("@")[0]: one["dependsOn"] for one in found["dependencies"]}
    known = {found["metadata"]["component"]["bom-ref"], *(one["bom-ref"] for one in found["components"])}
    assert known >= {ref for refs in needs.values() for ref in refs}
    assert len(found["dependencies"]) == len(found["components"]) + 1
    names = {name: [ref.split("/")[1].split("@")[0] for ref in refs] for name, refs in needs.items()}
    assert {"fastapi", "httpx", "uvicorn"} <= set(names["llama-supervisor"])
    assert "starlette" in names["fastapi"]
    assert "starlette" not in names["llama-supervisor"]


def test_the_same_release_has_the_same_bill() -> None:
    first, again, other = (bill(version, locked(LOCK), WHEN) for version in ("0.2.0", "0.2.0", "0.3.0"))
    assert first == again
    assert first["serialNumber"] != other["serialNumber"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "0.2.0")
    return folder


def test_the_files_are_what_their_digests_say(built: Path) -> None:
    lines = [line.split() for line in (built / "SHA256SUMS").read_text().splitlines()]
    told = {name: digest for digest, name in lines}
    assert told == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in built.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert sorted(Path(name).suffix for name in told) == [".gz", ".json", ".whl"]
    assert json.loads(next(built.glob("*.cdx.json")).read_text())["bomFormat"] == "CycloneDX"


def test_the_source_archive_has_what_the_checkout_has(built: Path) -> None:
    """So tests, pages and packages can be made of it; nothing of the machine it was made on is in it."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    ours = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    left_out = {".dockerignore", ".pre-commit-config.yaml"}
    assert {name for name in ours if (ROOT / name).is_file()} - names <= left_out
    assert not {name for name in names if "__pycache__" in name or name.startswith(".venv")}


def test_the_wheel_brings_the_manual_page_and_the_units(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        shared = {name.partition(".data/data/")[2] for name in wheel.namelist() if ".data/data/" in name}
        inside = {name.partition("/")[0] for name in wheel.namelist()}
    assert {
        "share/man/man1/llama-supervisor.1",
        "share/llama-supervisor/systemd/llama-supervisor.service",
        "share/llama-supervisor/systemd/llama-supervisor.socket",
        "share/llama-supervisor/launchd/llama-supervisor.plist",
        "share/llama-supervisor/config.example.yaml",
    } <= shared
    assert {name for name in inside if not name.startswith("llama_supervisor-")} == {"supervisor"}


def test_files_of_two_releases_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    with pytest.raises(ReleaseRefused, match="is not empty"):
        build(ROOT, tmp_path, "0.2.0")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small project of the same form, with one commit."""
    root = tmp_path / "checkout"
    for folder in ("supervisor", "requirements"):
        (root / folder).mkdir(parents=True)
    (root / "supervisor" / "__init__.py").write_text(MODULE)
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    shutil.copy(ROOT / "requirements" / "runtime.txt", root / "requirements")
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "llama-supervisor"\nrequires-python = ">=3.11"\ndynamic = ["version"]\n'
        '[tool.hatch.version]\npath = "supervisor/__init__.py"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["supervisor"]\n'
    )
    _git(root, "init", "-q")
    _commit(root)
    return root


def test_a_release_writes_version_changelog_and_files(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dist = checkout.parent / "dist"
    assert main(["0.2.0", "--output", str(dist)], checkout) == 0
    assert version_of((checkout / "supervisor" / "__init__.py").read_text()) == "0.2.0"
    assert "## 0.2.0 – 20" in (checkout / "CHANGELOG.md").read_text()
    assert "llama_supervisor-0.2.0-py3-none-any.whl" in {path.name for path in dist.iterdir()}
    assert "uv publish" in capsys.readouterr().out
    assert _git(checkout, "log", "--oneline").count("\n") == 1, "it commits nothing"
    assert not _git(checkout, "tag")


def test_the_same_commit_gives_the_same_files(checkout: Path) -> None:
    for name in ("one", "two"):
        assert main(["--output", str(checkout.parent / name)], checkout) == 0
    one, two = ((checkout.parent / name / "SHA256SUMS").read_text() for name in ("one", "two"))
    assert one == two


def test_a_refused_release_changes_nothing(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "stray").touch()
    assert main(["0.2.0"], checkout) == 1
    assert "not committed" in capsys.readouterr().err
    (checkout / "stray").unlink()
    (checkout / "CHANGELOG.md").write_text("# Changelog\n")
    _commit(checkout)
    assert main(["0.2.0"], checkout) == 1
    assert not _git(checkout, "status", "--porcelain")


def _git(root: Path, *args: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *who, *args], cwd=root, capture_output=True, text=True, check=True).stdout


def _commit(root: Path) -> None:
    _git(root, "add", "-A")
    _git(root, "commit", "-q", "-m", "A commit")
