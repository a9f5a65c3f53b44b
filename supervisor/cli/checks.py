"""The checks of `doctor`: one function per question. Each yields findings and raises nothing."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from supervisor import __version__
from supervisor.cli.configured import in_force_here, other_configuration
from supervisor.cli.daemon import Daemon, explicit_url, find
from supervisor.cli.options import command_name
from supervisor.cli.render import size
from supervisor.config import Settings, find_config
from supervisor.core.engine_output.capabilities import Capabilities
from supervisor.errors import ConfigError, SupervisorError
from supervisor.llamacpp.locate import Located, search
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.system.paths import Places

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]  # the module is absent, not of another type

State = Literal["ok", "warn", "fail"]

_OLDEST = (3, 11)
_LITTLE_SPACE, _NO_SPACE = 2 << 30, 100 << 20
_FEW_FILES = 4096
_OTHER_PLACE: Mapping[str, str] = {
    "state": "SUPERVISOR_HOME",
    "cache": "SUPERVISOR_HOME",
    "engines": "SUPERVISOR_ENGINES",
    "runtime": "XDG_RUNTIME_DIR",
}
_PROBE_FIXES: Mapping[str, str] = {
    "engine": "run that llama-server with --list-devices to see what fails; `{me} engine install` gets another one",
    "rpc": "start the worker there, or take it out of `devices.rpc`; `{me} devices` shows who answers",
    "unused": "`{me} engine install` gets a build for these cards, unless you leave them out on purpose",
    "vulkaninfo": "run `vulkaninfo --summary`; if it fails, install the GPU's Vulkan driver again",
    "amd-smi": "run `amd-smi` or `rocm-smi` by hand; if it fails, install ROCm's tools again",
    "nvml": "check the driver with `nvidia-smi`; if that fails, too, install the driver again",
    "identity": "compare `{me} devices` with the driver's list; masks (CUDA_VISIBLE_DEVICES, …) must name them alike",
    "": "run the tool that was asked by hand; if it is broken, install it again or take it off PATH",
}
"""What mends a probe, by how its name begins."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, and what to do where it is not well. Made by `ok`, `warn` and `fail`."""

    name: str
    state: State
    message: str
    fix: str | None


def ok(name: str, message: str) -> Finding:
    """Return the finding that something is well."""
    return Finding(name, "ok", message, None)


def warn(name: str, message: str, fix: str) -> Finding:
    """Return the finding that something could be better, and how."""
    return Finding(name, "warn", message, fix)


def fail(name: str, message: str, fix: str) -> Finding:
    """Return the finding that something is broken, and what mends it."""
    return Finding(name, "fail", message, fix)


def check_program() -> Iterator[Finding]:
    """Check the interpreter and this package."""
    version = platform.python_version()
    too_old = fail("python", f"{version} is too old; 3.11 is needed", "install Python 3.11 or newer, then delete .venv")
    yield ok("python", version) if sys.version_info[:2] >= _OLDEST else too_old
    yield ok("version", f"llama-supervisor {__version__} on {platform.system()} {platform.machine()}")


def check_config(args: argparse.Namespace, where: Places) -> tuple[Settings, Finding]:
    """Check the configuration; return the defaults where it cannot be used."""
    try:
        file = find_config(args.config, os.environ, Path.cwd(), where.config)
        loaded = in_force_here(file, os.environ, where)
    except ConfigError as error:
        fix = f"correct the file until `{_me()} config check` is content; `{_me()} config init` writes a new one"
        return Settings(), fail("configuration", error.message, fix)
    told = str(file) if file else "none; the defaults"
    return loaded.settings, ok(
        "configuration", f"{told}, over {loaded.shared.path} of the cluster's" if loaded.shared else told
    )


def check_engine(where: Places, explicit: str | None) -> tuple[Located | None, list[Finding]]:
    """Check the llama-server that would be used."""
    try:
        located = search(where, os.environ, explicit)
    except SupervisorError as error:
        fix = f"name one that is there; `{_me()} engine list` shows those of the program, `engine install` gets one"
        return None, [fail("engine", error.message, fix)]
    skipped = [_passed_over(str(one.path), one.reason) for one in located.skipped]
    if located.found is None or located.capabilities is None:
        return None, [*skipped, fail("engine", "there is no llama-server", f"`{_me()} engine install` gets one")]
    known = located.capabilities
    about = f"{located.found.path}, build {known.build or 'unknown'}, back ends: {', '.join(known.backends)}"
    return located, [*skipped, ok("engine", about), *_shortcomings(known)]


def check_devices(located: Located | None, settings: Settings) -> Iterator[Finding]:
    """Run every probe; yield its result and the time it took."""
    prober = Prober(Surroundings(os.environ))
    machine = prober.machine(located.found.path if located and located.found else None, settings.devices.rpc)
    for run in prober.runs:
        taken = f"{run.seconds * 1000:.0f} ms"
        name = f"probe {run.name}"
        yield warn(name, f"{run.problem.message} ({taken})", _probe_fix(run.name)) if run.problem else ok(name, taken)
    asked = {run.name for run in prober.runs}
    for problem in machine.problems:
        if problem.probe not in asked and located is not None:
            yield warn(f"devices {problem.probe}", problem.message, _probe_fix(problem.probe))
    names = [f"{device.name} {device.description} {size(device.total_bytes)}" for device in machine.devices]
    yield ok("devices", "; ".join(names) or "none but the CPU")
    host = machine.host
    yield ok("memory", f"{size(host.available_bytes)} of {size(host.total_bytes)} available")


def check_folders(where: Places) -> Iterator[Finding]:
    """Check that the program can write where it has to, and that there is space."""
    folders = {"state": where.state, "cache": where.cache, "engines": where.engines, "runtime": where.runtime}
    for name, folder in folders.items():
        there = _nearest(folder)
        if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
            yield _of_folder(f"folder {name}", folder, shutil.disk_usage(there).free, needs_space=name != "runtime")
        else:
            fix = f"give {there} to yourself (chown, chmod u+wx), or set {_OTHER_PLACE[name]}"
            yield fail(f"folder {name}", f"{there} cannot be written", fix)


def check_daemon(args: argparse.Namespace) -> Iterator[Finding]:
    """Check that a daemon answers, is of this version, and uses the configuration that was found here."""
    try:
        daemon = find(args)
    except SupervisorError as error:
        yield fail("daemon", f"{error.message} [{error.code}]", _unreachable_fix(error))
        return
    if daemon is None:
        yield ok("daemon", "none runs; it starts when it is needed")
        return
    yield _of_daemon(daemon)
    other = None if explicit_url(args) else other_configuration(daemon.status, os.environ, Path.cwd(), args.config)
    if other is not None:
        fix = f"`{_me()} stop`, then `{_me()} start --config {other[0]}`, if that is the one you mean"
        yield warn("daemon configuration", other[1], fix)


def check_limits() -> Iterator[Finding]:
    """Check how many files may be open: a stream takes two."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        shown = f"{soft} now, {'unlimited' if hard == resource.RLIM_INFINITY else hard} at most"
        few = f"{shown}: few for many streams at once"
        enough = hard == resource.RLIM_INFINITY or hard >= _FEW_FILES
        fix = f"raise the hard limit to {_FEW_FILES}: `ulimit -Hn {_FEW_FILES}` as root, or LimitNOFILE of the unit"
        yield ok("open files", shown) if enough else warn("open files", few, fix)


def _of_folder(name: str, folder: Path, free: int, *, needs_space: bool) -> Finding:
    message = f"{folder}, {size(free)} free"
    if not needs_space or free >= _LITTLE_SPACE:  # sockets take none
        return ok(name, message)
    fix = f"free some room on that disk (`{_me()} rm` removes models), or choose another with SUPERVISOR_HOME"
    return warn(name, message, fix) if free >= _NO_SPACE else fail(name, message, fix)


def _of_daemon(daemon: Daemon) -> Finding:
    version = str(daemon.status.get("version"))
    if version != __version__:
        message = f"version {version} runs, this command is {__version__}"
        return fail("daemon", message, f"`{_me()} upgrade` has this version take over")
    configuration = daemon.status.get("config") or {}
    refused, waiting = configuration.get("error"), configuration.get("restart_needed")
    if refused:
        message = f"it keeps its old configuration: {refused.get('message')}"
        return warn("daemon", message, f"correct the file, then `{_me()} config reload`")
    if waiting:
        message = f"{', '.join(waiting)}: changed; takes effect at the next start of the daemon"
        return warn("daemon", message, f"`{_me()} stop`, then `{_me()} start`")
    return ok("daemon", f"answers at {daemon.client.url} (pid {daemon.status.get('pid')})")


def _unreachable_fix(error: SupervisorError) -> str:
    if error.code == "unauthorized":
        return "give its key with --api-key or in SUPERVISOR_API_KEY"
    return f"`{_me()} logs` shows what it said last; end its process, then `{_me()} start`; check SUPERVISOR_URL if set"


def _passed_over(path: str, reason: str) -> Finding:
    fix = f"repair or remove {path}, or choose another with `{_me()} engine use`"
    return warn("engine", f"passed over {path}: {reason}", fix)


def _shortcomings(known: Capabilities) -> Iterator[Finding]:
    if not known.supports("--list-devices"):
        yield warn("engine", "it cannot list devices", f"`{_me()} engine install` gets a newer build")


def _probe_fix(name: str) -> str:
    """Return what mends a source of figures that failed, by the beginning of its name."""
    begins = (kind for kind in _PROBE_FIXES if name.startswith(kind))
    return _PROBE_FIXES[next(begins, "")].format(me=_me())


def _me() -> str:
    return command_name(os.environ)


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest existing folder above it."""
    return next(path for path in (folder, *folder.parents) if path.exists())
