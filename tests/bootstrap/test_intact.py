"""The check for a package that the other distribution of the same name has overwritten."""

from __future__ import annotations

import timeit
from pathlib import Path
from types import ModuleType

import pytest

import supervisor
from supervisor.cli.intact import check_intact
from supervisor.errors import PackageOverwritten


def installed(folder: Path, *, distribution: str | None = supervisor.__distribution__) -> ModuleType:
    """A package `supervisor` as the import system would have found it in `folder`."""
    package = ModuleType("supervisor")
    package.__file__ = str(folder / "supervisor" / "__init__.py")
    if distribution:
        package.__dict__["__distribution__"] = distribution
    (folder / f"llama_supervisor-{supervisor.__version__}.dist-info").mkdir()
    return package


def test_our_own_package_is_intact() -> None:
    check_intact()


def test_an_installation_beside_strangers_is_intact(tmp_path: Path) -> None:
    (tmp_path / "supervisor_checks-0.8.1.dist-info").mkdir()
    (tmp_path / "rich-15.0.0.dist-info").mkdir()
    check_intact(installed(tmp_path))


def test_an_overwritten_package_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(PackageOverwritten, match="environment of its own"):
        check_intact(installed(tmp_path, distribution=None))


@pytest.mark.parametrize("record", ["supervisor-4.3.0.dist-info", "supervisor-4.2.5.egg-info"])
def test_the_other_distribution_beside_ours_is_noticed(tmp_path: Path, record: str) -> None:
    (tmp_path / record).mkdir()
    with pytest.raises(PackageOverwritten) as caught:
        check_intact(installed(tmp_path))
    assert str(tmp_path) in caught.value.message


def test_the_check_costs_next_to_nothing(tmp_path: Path) -> None:
    package = installed(tmp_path)
    for number in range(300):
        (tmp_path / f"package{number}-1.0.dist-info").mkdir()
    assert min(timeit.repeat(lambda: check_intact(package), number=10, repeat=5)) / 10 < 0.005
