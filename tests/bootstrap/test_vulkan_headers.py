"""bin/vulkan-headers: newer Vulkan headers for a Debian whose own are too old, with an apt that fetches nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE

SCRIPT = Path(__file__).parents[2] / "bin" / "vulkan-headers"

# Notes how it was called; "downloads" a package where it was told to do so.
APT = """#!/bin/sh
echo "$*" >>"{calls}"
case "$*" in
  indextargets*) echo "bookworm-updates http://mirror.test/updates"; echo "bookworm http://mirror.test/debian" ;;
  *update) cat "$(echo "$*" | sed 's/.*SourceList=\\([^ ]*\\).*/\\1/')" >>"{calls}"; exit {status} ;;
  *download*) touch libvulkan-dev_1.4.309.deb ;;
esac
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/include/vulkan" "$3/usr/lib"
echo new >"$3/usr/include/vulkan/vulkan_core.h"
"""


class Machine:
    """A Debian with an apt of ours."""

    def __init__(self, folder: Path, version: str = "12", status: int = 0) -> None:
        self.engines = folder / "engines"
        self.calls = folder / "calls"
        self.calls.touch()
        (folder / "os-release").write_text(f'ID=debian\nVERSION_ID="{version}"\nVERSION_CODENAME=bookworm\n')
        (folder / "bin").mkdir()
        for name, text in (("apt-get", APT.format(calls=self.calls, status=status)), ("dpkg", DPKG)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        self.env = {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "SUPERVISOR_ENGINES": str(self.engines),
            "OS_RELEASE": str(folder / "os-release"),
        }

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(SCRIPT)], env=self.env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )


def test_headers_of_the_next_suite_from_the_mirror_in_use(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    done = machine.run()
    assert (done.returncode, done.stdout) == (0, "")
    sdk = machine.engines / "vulkan-sdk"
    assert (sdk / "include" / "vulkan" / "vulkan_core.h").read_text() == "new\n"
    assert [path.name for path in sdk.iterdir()] == ["include"]
    calls = machine.calls.read_text()
    assert "debian-archive-keyring.gpg] http://mirror.test/debian trixie main\n" in calls
    assert "download libvulkan-dev/trixie" in calls
    machine.calls.write_text("")
    assert (machine.run().returncode, machine.calls.read_text()) == (0, "")


def test_a_debian_whose_own_headers_do_is_left_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path, version="13")
    assert (machine.run().returncode, machine.calls.read_text()) == (0, "")
    assert not machine.engines.exists()


@pytest.mark.parametrize("status", [1, 100])
def test_an_apt_that_fails_leaves_nothing(tmp_path: Path, status: int) -> None:
    machine = Machine(tmp_path, status=status)
    done = machine.run()
    assert done.returncode == 1
    assert "apt cannot read the lists of trixie" in done.stderr
    assert not list((machine.engines / "vulkan-sdk").iterdir())
