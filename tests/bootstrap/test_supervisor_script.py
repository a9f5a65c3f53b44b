"""bin/supervisor, run for real: first runs, later runs, and first runs that die or cannot work."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bootstrap.conftest import Checkout, Index, path_with
from tests.cli.test_terminal import Terminal
from tests.support.patience import PATIENCE

POSIX_TOOLS = ("sh", "cmp", "readlink")
OLD_PYTHON = "#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.2 && exit\nexit 1\n"
WAITS = "is making the environment already; waiting for it"


@dataclass
class OnTerminal:
    """A checkout's command as a terminal starts it."""

    folder: Path
    env: dict[str, str]
    command: Path

    def argv(self, *arguments: str) -> list[str]:
        """The whole command line."""
        return [str(self.command), *arguments]


@pytest.fixture
def made(uv_checkout: Checkout) -> Checkout:
    """A checkout whose first run is behind it."""
    first = uv_checkout.run()
    assert first.code == 0, first.err
    return uv_checkout


def one_sentence(err: str) -> str:
    """The last line on stderr: ours, and not a traceback."""
    assert "Traceback" not in err
    last = err.rstrip("\n").splitlines()[-1]
    assert last.startswith("supervisor: ")
    return last


# -- first and later runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["uv_checkout", "pip_checkout"])
def test_the_first_run_says_what_it_does_and_later_runs_say_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    checkout: Checkout = request.getfixturevalue(kind)
    first = checkout.run("one", "two words", "")
    assert (first.code, first.out) == (0, f"{checkout.greeting()}|one|two words|\n")
    assert "Making an environment in" in first.err
    assert "The environment is ready" in first.err
    assert checkout.run("again") == type(first)(0, f"{checkout.greeting()}|again\n", "")


def test_it_runs_from_any_folder_and_through_links(made: Checkout, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "supervisor").mkdir(parents=True)
    (elsewhere / "supervisor" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    (elsewhere / "absolute").symlink_to(made.command)
    (elsewhere / "relative").symlink_to(Path("..") / made.root.name / "bin" / "supervisor")
    (elsewhere / "chain").symlink_to("relative")
    (tmp_path / "folder").symlink_to(made.root, target_is_directory=True)
    expected = f"{made.greeting()}\n"
    for command in ("./absolute", "./relative", "./chain", "../folder/bin/supervisor", "../elsewhere/chain"):
        done = made.run(command=command, cwd=elsewhere)
        assert (done.code, done.out, done.err) == (0, expected, ""), command
    on_path = made.run(command="chain", cwd=tmp_path, PATH=f"{elsewhere}:{made.env['PATH']}")
    assert on_path.out == expected
    spoiled = made.run(cwd=elsewhere, PYTHONPATH=".")
    assert spoiled.out == expected


def test_every_shell_of_this_machine_can_run_it(made: Checkout) -> None:
    shells = [found for shell in ("dash", "bash", "busybox", "ksh", "zsh") if (found := shutil.which(shell))]
    for shell in shells:
        applet = ["sh"] if Path(shell).name == "busybox" else []
        done = made.run(*applet, str(made.command), "x", command=shell)
        assert (done.code, done.out) == (0, f"{made.greeting()}|x\n"), shell
    assert shells


def test_a_changed_lock_refreshes_the_environment(checkout: Checkout, index: Index) -> None:
    assert checkout.run().code == 0
    checkout.lock.write_text(index.lock_text("2.0.1"))
    os.utime(checkout.lock, (0, 0))  # the content decides, whatever the file's date
    changed = checkout.run()
    assert (changed.code, changed.out) == (0, f"{checkout.greeting('2.0.1')}\n")
    assert "Making" not in changed.err
    assert checkout.run().err == ""


def test_a_checkout_that_was_moved_makes_its_environment_anew(made: Checkout, tmp_path: Path) -> None:
    moved = Checkout(made.root.rename(tmp_path / "moved"), made.env)
    done = moved.run()
    assert (done.code, done.out) == (0, f"{moved.greeting()}\n")
    assert "Making" in done.err


def test_another_python_makes_the_environment_anew_and_no_python_keeps_it(made: Checkout, tmp_path: Path) -> None:
    other = tmp_path / "other-python"
    other.symlink_to(made.env["SUPERVISOR_PYTHON"])
    assert made.run(SUPERVISOR_PYTHON="").err == ""
    assert "Making" in made.run(SUPERVISOR_PYTHON=str(other)).err
    assert made.run(SUPERVISOR_PYTHON=str(other)).err == ""


def test_the_environments_own_python_can_make_it_anew(made: Checkout) -> None:
    own = made.root / ".venv" / "bin" / "python3"
    (made.root / ".venv" / "ready").unlink()
    done = made.run(SUPERVISOR_PYTHON=str(own))
    assert (done.code, done.out) == (0, f"{made.greeting()}\n")


def test_a_python_that_went_away_is_replaced(made: Checkout) -> None:
    own = made.root / ".venv" / "bin" / "python"
    own.unlink()
    own.symlink_to("/nonexistent/python")
    done = made.run()
    assert (done.code, done.out) == (0, f"{made.greeting()}\n")


# -- first runs that meet or die ---------------------------------------------------------------------------------------


def test_two_first_runs_at_once_both_work(checkout: Checkout, index: Index) -> None:
    index.open.clear()
    first = checkout.start()
    assert index.asked.wait(PATIENCE)
    second = checkout.start()
    assert second.stderr is not None
    assert WAITS in second.stderr.readline()
    index.open.set()
    for run in (first, second):
        out, err = run.communicate(timeout=PATIENCE)
        assert (run.returncode, out) == (0, f"{checkout.greeting()}\n"), err
    assert checkout.run().err == ""


def test_a_terminal_sees_that_a_slow_download_goes_on(checkout: Checkout, index: Index) -> None:
    index.open.clear()
    with Terminal(OnTerminal(checkout.root, checkout.env, checkout.command)) as terminal:
        terminal.see("of 1 packages, ")
        terminal.wait_until(lambda: len(set(re.findall(r" of 1 packages, (\d+) s", terminal.shown))) > 2)
        index.open.set()
        assert terminal.end() == 0
        assert terminal.lines[-1] == checkout.greeting()
        assert not any(" of 1 packages" in line for line in terminal.lines), "the bar is gone"
    assert checkout.run().err == ""


def test_a_first_run_killed_in_the_middle_is_mended_by_the_next(checkout: Checkout, index: Index) -> None:
    index.open.clear()
    killed = checkout.start()
    assert index.asked.wait(PATIENCE)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=PATIENCE)
    assert (checkout.root / ".venv").is_dir()
    index.open.set()
    done = checkout.run()
    assert (done.code, done.out) == (0, f"{checkout.greeting()}\n"), done.err


def test_an_installer_that_outlives_its_killed_parent_is_waited_for(checkout: Checkout, index: Index) -> None:
    index.open.clear()
    killed = checkout.start()
    assert index.asked.wait(PATIENCE)
    os.kill(int((checkout.root / ".venv.setup" / "lock").read_text()), signal.SIGKILL)
    killed.communicate(timeout=PATIENCE)
    following = checkout.start()
    assert following.stderr is not None
    assert WAITS in following.stderr.readline()
    index.open.set()
    out, err = following.communicate(timeout=PATIENCE)
    assert (following.returncode, out) == (0, f"{checkout.greeting()}\n"), err


def test_an_interrupted_first_run_leaves_nothing_that_blocks(checkout: Checkout, index: Index) -> None:
    index.open.clear()
    interrupted = checkout.start()
    assert index.asked.wait(PATIENCE)
    os.killpg(interrupted.pid, signal.SIGINT)  # what Ctrl-C in a terminal does
    _, err = interrupted.communicate(timeout=PATIENCE)
    assert interrupted.returncode != 0
    assert "Interrupted" in one_sentence(err)
    index.open.set()
    assert checkout.run().code == 0


# -- what cannot work: one clear sentence ------------------------------------------------------------------------------


def test_an_old_python_is_named(pip_checkout: Checkout, tmp_path: Path) -> None:
    path = path_with(tmp_path / "path", POSIX_TOOLS, {"python3": OLD_PYTHON})
    done = pip_checkout.run(PATH=path, SUPERVISOR_PYTHON="")
    assert done.code == 1
    assert "Python 3.11 or newer is needed and this machine has Python 3.9.2;" in one_sentence(done.err)
    chosen = pip_checkout.run(SUPERVISOR_PYTHON=f"{path}/python3")
    assert chosen.code == 1
    assert f"SUPERVISOR_PYTHON names {path}/python3, which is Python 3.9.2;" in one_sentence(chosen.err)


def test_a_fitting_python_behind_an_old_one_is_found(pip_checkout: Checkout, tmp_path: Path) -> None:
    path = path_with(tmp_path / "path", POSIX_TOOLS, {"python3.13": OLD_PYTHON})
    (Path(path) / "python3").symlink_to(pip_checkout.env["SUPERVISOR_PYTHON"])
    done = pip_checkout.run(PATH=path, SUPERVISOR_PYTHON="")
    assert (done.code, done.out) == (0, f"{pip_checkout.greeting()}\n"), done.err


def test_a_missing_python_is_named(pip_checkout: Checkout, tmp_path: Path) -> None:
    path = path_with(tmp_path / "path", POSIX_TOOLS, {})
    done = pip_checkout.run(PATH=path, SUPERVISOR_PYTHON="")
    assert done.code == 1
    assert "none is on PATH" in one_sentence(done.err)
    chosen = pip_checkout.run(SUPERVISOR_PYTHON="/nonexistent/python")
    assert chosen.code == 1
    assert "/nonexistent/python, which does not run" in one_sentence(chosen.err)


def test_a_python_without_venv_is_named(pip_checkout: Checkout, tmp_path: Path) -> None:
    without = python_without(tmp_path / "python", "ensurepip")
    done = pip_checkout.run(SUPERVISOR_PYTHON=str(without))
    assert done.code == 1
    assert "comes without the venv module (or ensurepip)" in one_sentence(done.err)


def python_without(folder: Path, module: str) -> Path:
    """A real Python whose standard library lacks one module, as a distribution may ship it."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = folder / "lib" / name
    library.mkdir(parents=True)
    for entry in Path(os.__file__).parent.iterdir():
        if entry.name not in {module, "site-packages", "dist-packages"}:
            (library / entry.name).symlink_to(entry)
    (folder / "bin").mkdir()
    shutil.copy(Path(sys.base_prefix, "bin", name).resolve(), folder / "bin" / name)
    return folder / "bin" / name


def test_no_network_is_named_and_the_next_run_mends_it(checkout: Checkout) -> None:
    nowhere = "http://127.0.0.1:9/simple"
    done = checkout.run(PIP_INDEX_URL=nowhere, UV_INDEX_URL=nowhere)
    assert done.code == 1
    sentence = one_sentence(done.err)
    assert "the package index cannot be reached" in sentence
    log = Path(sentence.rpartition("Details: ")[2])
    assert "127.0.0.1" in log.read_text()
    assert checkout.run().code == 0


def test_a_package_that_differs_from_the_locked_one_is_refused(checkout: Checkout, index: Index) -> None:
    checkout.lock.write_text(index.lock_text("1.0").replace("sha256:", "sha256:0000")[: -1 - 4] + "\n")
    done = checkout.run()
    assert done.code == 1
    assert "differs from the locked one" in one_sentence(done.err)


def test_a_checkout_that_cannot_be_written_is_named(pip_checkout: Checkout) -> None:
    (pip_checkout.root / ".venv.setup").write_text("a file where the folder should be")
    done = pip_checkout.run()
    assert done.code == 1
    assert "the checkout must be in a folder of yours" in one_sentence(done.err)
