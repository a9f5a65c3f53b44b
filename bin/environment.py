"""Makes or refreshes the checkout's environment: `python environment.py ROOT KIND PYTHON`.

Called by bin/_environment.sh, with any Python from 3.11 on and nothing but its standard library.

    .venv/                    the environment
        ready                 written last: format, checkout, Python it was made with, a line each
        installed-KIND.txt    the lock that was installed, byte for byte
    .venv.setup/              beside it, because .venv itself comes and goes
        lock                  locked (flock) by the run at work, and by the installer it started; holds its pid
        log                   what the installer printed

An environment without `ready` was left by a run that died: it is made anew. The kernel ends the lock with the last
process that holds it, so a killed run blocks nobody, and an installer that outlives its parent is waited for.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

FORMAT = "1"  # also in _environment.sh
FETCHED = ("Collecting ", "Processing ", "Downloaded ")  # how pip's and uv's lines begin that tell of one more package
LAST_STEP = ("Installing collected packages", "Prepared ")  # and those of what follows all of them
PACKAGES_A_LINE = 10
BAR = 20  # columns
LONGEST_WAIT = 1800.0  # seconds for another run's set-up

# What the installer's output tells, first match first, and what to say then.
CAUSES = (
    (("No space left on device",), "the disk is full"),
    (
        ("DO NOT MATCH THE HASHES", "Hash mismatch"),
        "a downloaded package differs from the locked one (a proxy or mirror may have changed it)",
    ),
    (
        ("Failed to establish a new", "error sending request", "ProxyError", "ailed to resolve", "dns error"),
        "the package index cannot be reached (no network, or a proxy is not set)",
    ),
    (
        ("timed out", "Connection reset", "Network is unreachable", "Connection refused", "Failed to fetch"),
        "the package index does not answer as it should",
    ),
    (("(from versions: none)",), "the package index cannot be reached or does not have them"),
)


class SetupFailed(Exception):
    """One sentence for the user."""


@dataclass(frozen=True)
class Setup:
    """One run's task."""

    root: Path
    kind: str  # runtime or dev
    python: str  # as found or given, not resolved: later runs compare it with SUPERVISOR_PYTHON
    python_matters: bool  # it was asked for, so an environment made with another one does not do
    uv: str | None

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def own_python(self) -> str:
        return str(self.venv / "bin" / "python")

    @property
    def lock(self) -> Path:
        return self.root / "requirements" / f"{self.kind}.txt"

    @property
    def workplace(self) -> Path:
        return self.root / ".venv.setup"

    @property
    def log(self) -> Path:
        return self.workplace / "log"

    @property
    def ready(self) -> Path:
        return self.venv / "ready"

    def installed(self, kind: str) -> Path:
        return self.venv / f"installed-{kind}.txt"


def say(text: str) -> None:
    print(f"supervisor: {text}", file=sys.stderr, flush=True)  # noqa: T201 - this script talks to a terminal


def main(root: str, kind: str, python: str) -> int:
    uv = None if os.environ.get("SUPERVISOR_NO_UV") else shutil.which("uv")
    setup = Setup(Path(root), kind, python, bool(os.environ.get("SUPERVISOR_PYTHON")), uv)
    signal.signal(signal.SIGTERM, _end)
    try:
        with held_lock(setup) as lock:
            if not is_current(setup):
                bring_up_to_date(setup, lock)
    except SetupFailed as failure:
        say(str(failure))
        return 1
    except OSError as failure:
        say(f"{setup.venv} cannot be made ({failure.strerror}); the checkout must be in a folder of yours.")
        return 1
    except KeyboardInterrupt:
        say("Interrupted; the next run starts the set-up again.")
        return 130
    return 0


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


@contextmanager
def held_lock(setup: Setup) -> Iterator[BinaryIO]:
    """Hold the lock of this checkout's environment; says so where it has to wait."""
    setup.workplace.mkdir(exist_ok=True)
    with (setup.workplace / "lock").open("a+b") as lock:
        deadline = time.monotonic() + LONGEST_WAIT
        waiting = False
        while not _try_lock(lock):
            if time.monotonic() > deadline:
                raise SetupFailed(f"{_holder(lock)} has been making the environment for too long; end it")
            if not waiting:
                say(f"{_holder(lock)} is making the environment already; waiting for it")
                waiting = True
            time.sleep(0.1)
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
        lock.flush()
        yield lock


def _try_lock(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(lock: BinaryIO) -> str:
    lock.seek(0)
    return f"Another run (process {lock.read().decode() or 'unknown'})"


def is_current(setup: Setup) -> bool:
    """The same question as `environment_is_current` in _environment.sh."""
    return is_complete(setup) and _text(setup.installed(setup.kind)) == setup.lock.read_text()


def is_complete(setup: Setup) -> bool:
    """Was this environment finished once, here and with a Python that will do, whatever the lock was?"""
    made = (_text(setup.ready) or "").splitlines()
    return (
        os.access(setup.own_python, os.X_OK)
        and made[:2] == [FORMAT, str(setup.root)]
        and (made[2:] == [setup.python] or not setup.python_matters)
    )


def _text(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def bring_up_to_date(setup: Setup, lock: BinaryIO) -> None:
    """Install the lock: into the complete environment that is there, else into a new one."""
    started = time.monotonic()
    ready = _text(setup.ready) if is_complete(setup) else None
    with setup.log.open("wb") as log:
        run = Runner(setup, lock, log)
        if ready is None:
            ready = f"{FORMAT}\n{setup.root}\n{setup.python}\n"
            say(f"Making an environment in {setup.venv} with {'uv' if setup.uv else 'venv and pip'}")
            make_venv(setup, run)
        for stale in (setup.ready, setup.installed("runtime"), setup.installed("dev")):
            stale.unlink(missing_ok=True)
        install(setup, run)
    finish(setup, ready)
    say(f"The environment is ready ({time.monotonic() - started:.0f} s)")


def make_venv(setup: Setup, run: Runner) -> None:
    """An empty environment in place of whatever is there."""
    if setup.venv.is_dir() and not setup.venv.is_symlink():
        shutil.rmtree(setup.venv)
    else:
        setup.venv.unlink(missing_ok=True)
    if setup.uv:
        failed = run([setup.uv, "venv", "--no-project", "--python", base_python(), str(setup.venv)])
    else:
        _check_venv_module()
        failed = run([base_python(), "-I", "-m", "venv", str(setup.venv)])
    if failed:
        raise SetupFailed(f"The environment cannot be made: {cause(setup.log)}. Details: {setup.log}")


def base_python() -> str:
    """The Python to build on: never one of an environment, which may be the one to be replaced."""
    if sys.prefix == sys.base_prefix:
        return sys.executable
    return str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))


def _check_venv_module() -> None:
    if any(importlib.util.find_spec(name) is None for name in ("venv", "ensurepip")):
        raise SetupFailed(
            f"{sys.executable} comes without the venv module (or ensurepip); install it (Debian, Ubuntu: "
            "`apt install python3-venv`) or install uv."
        )


def install(setup: Setup, run: Runner) -> None:
    """Install the lock, every file checked against its hash."""
    say(f"Installing the packages of requirements/{setup.lock.name}; only the first run takes this long")
    if setup.uv:
        argv = [setup.uv, "pip", "install", "--python", setup.own_python]
    else:
        argv = [setup.own_python, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    if run([*argv, "--require-hashes", "-r", str(setup.lock)]):
        raise SetupFailed(f"The packages cannot be installed: {cause(setup.log)}. Details: {setup.log}")


def cause(log: Path) -> str:
    """Half a sentence: why the installer failed, read from its log."""
    text = log.read_text(errors="replace")
    for signs, meaning in CAUSES:
        if any(sign in text for sign in signs):
            return meaning
    errors = [line.strip() for line in text.splitlines() if line.lower().lstrip().startswith("error")]
    return errors[-1].rstrip(".") if errors else "the installer failed"


def finish(setup: Setup, ready: str) -> None:
    """Put the checkout on the environment's path and declare it complete."""
    (packages,) = setup.venv.glob("lib/*/site-packages")
    (packages / "llama-supervisor-checkout.pth").write_text(f"{setup.root}\n")
    kinds = ("runtime", "dev") if setup.kind == "dev" else ("runtime",)  # the dev lock contains the runtime lock
    for kind in kinds:
        shutil.copyfile(setup.root / "requirements" / f"{kind}.txt", setup.installed(kind))
    setup.ready.write_text(ready)


class Runner:
    """Runs the installer's commands: output to the log, the current line to a terminal, the lock kept by the child."""

    def __init__(self, setup: Setup, lock: BinaryIO, log: BinaryIO) -> None:
        self._lock = lock
        self._log = log
        self._terminal = sys.stderr.isatty()
        self._env = os.environ | {"PIP_USER": "0", "PYTHONUNBUFFERED": "1"}
        self._env.pop("UV_SYSTEM_PYTHON", None)
        self._root = setup.root
        self._packages = sum("==" in line for line in setup.lock.read_text().splitlines())
        self._fetched = self._told = 0
        self._line = ""
        self._began = time.monotonic()

    def __call__(self, argv: Sequence[str]) -> int:
        """Run it to its end; returns the exit status."""
        self._log.write(f"$ {' '.join(argv)}\n".encode())
        self._log.flush()
        process = subprocess.Popen(
            argv,
            cwd=self._root,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(self._lock.fileno(),),
        )
        try:
            self._relay(process)
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()

    def _relay(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # a pipe was asked for
        with self._moving():
            for line in process.stdout:
                self._log.write(line)
                self._log.flush()
                self._tell(line.decode(errors="replace").strip())

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Draw the terminal's line every second, so that a long download is seen to go on; it is empty afterwards."""
        if not self._terminal:
            yield
            return
        over = threading.Event()

        def draw() -> None:
            while not over.wait(1.0):
                self._draw()

        drawing = threading.Thread(target=draw, daemon=True)
        drawing.start()
        try:
            yield
        finally:
            over.set()
            drawing.join()
            self._show("")

    def _tell(self, line: str) -> None:
        """How far it is: on a terminal with what the installer says, elsewhere a line every so many packages."""
        self._fetched += line.startswith(FETCHED)
        self._line = line or self._line
        if self._terminal:
            self._draw()
            return
        if self._fetched - self._told >= PACKAGES_A_LINE:
            self._told = self._fetched
            say(f"  {self._fetched} of {self._packages} packages")
        if line.startswith(LAST_STEP):
            say("  unpacking them")

    def _draw(self) -> None:
        """Show a bar, how many packages there are, for how long it has been going on, and what the installer says."""
        known = min(self._fetched, self._packages)
        bar = "#" * (BAR * known // max(self._packages, 1))
        spent = time.monotonic() - self._began
        self._show(f"[{bar:<{BAR}}] {known} of {self._packages} packages, {spent:.0f} s  {self._line}")

    def _show(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
