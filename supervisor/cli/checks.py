"""The checks of `doctor`: one function per question. Each yields findings and raises nothing."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from supervisor import __version__
from supervisor.cli.configured import other_configuration
from supervisor.cli.daemon import Daemon, explicit_url, find
from supervisor.cli.options import command_name
from supervisor.cli.render import size
from supervisor.config import Settings, find_config, load_settings
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


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and what to do where it is not well."""

    name: str
    state: State
    message: str


def check_program() -> Iterator[Finding]:
    """Check the interpreter and this package."""
    version = platform.python_version()
    fits = sys.version_info[:2] >= _OLDEST
    yield Finding("python", "ok" if fits else "fail", version if fits else f"{version} is too old; 3.11 is needed")
    yield Finding("version", "ok", f"llama-supervisor {__version__} on {platform.system()} {platform.machine()}")


def check_config(args: argparse.Namespace, where: Places) -> tuple[Settings, Finding]:
    """Check the configuration; return the defaults where it cannot be used."""
    try:
        file = find_config(args.config, os.environ, Path.cwd(), where.config)
        settings = load_settings(file, os.environ)
    except ConfigError as error:
        return Settings(), Finding("configuration", "fail", error.message)
    return settings, Finding("configuration", "ok", str(file) if file else "none; the defaults")


def check_engine(where: Places, explicit: str | None) -> tuple[Located | None, list[Finding]]:
    """Check the llama-server that would be used."""
    try:
        located = search(where, os.environ, explicit)
    except SupervisorError as error:
        return None, [Finding("engine", "fail", error.message)]
    skipped = [Finding("engine", "warn", f"passed over {one.path}: {one.reason}") for one in located.skipped]
    if located.found is None or located.capabilities is None:
        advice = f"there is no llama-server; `{command_name(os.environ)} engine install` gets one"
        return None, [*skipped, Finding("engine", "fail", advice)]
    known = located.capabilities
    about = f"{located.found.path}, build {known.build or 'unknown'}, back ends: {', '.join(known.backends)}"
    return located, [*skipped, Finding("engine", "ok", about), *_shortcomings(known)]


def check_devices(located: Located | None, settings: Settings) -> Iterator[Finding]:
    """Run every probe; yield its result and the time it took."""
    prober = Prober(Surroundings(os.environ))
    machine = prober.machine(located.found.path if located and located.found else None, settings.devices.rpc)
    for run in prober.runs:
        taken = f"{run.seconds * 1000:.0f} ms"
        told = f"{run.problem.message} ({taken})" if run.problem else taken
        yield Finding(f"probe {run.name}", "warn" if run.problem else "ok", told)
    asked = {run.name for run in prober.runs}
    for problem in machine.problems:
        if problem.probe not in asked and located is not None:
            yield Finding(f"devices {problem.probe}", "warn", problem.message)
    names = [f"{device.name} {device.description} {size(device.total_bytes)}" for device in machine.devices]
    yield Finding("devices", "ok", "; ".join(names) or "none but the CPU")
    host = machine.host
    yield Finding("memory", "ok", f"{size(host.available_bytes)} of {size(host.total_bytes)} available")


def check_folders(where: Places) -> Iterator[Finding]:
    """Check that the program can write where it has to, and that there is space."""
    folders = {"state": where.state, "cache": where.cache, "engines": where.engines, "runtime": where.runtime}
    for name, folder in folders.items():
        there = _nearest(folder)
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            advice = f"{there} cannot be written; change its owner, or set SUPERVISOR_HOME (runtime: XDG_RUNTIME_DIR)"
            yield Finding(f"folder {name}", "fail", advice)
            continue
        free = shutil.disk_usage(there).free
        state: State = "ok" if free >= _LITTLE_SPACE else "warn" if free >= _NO_SPACE else "fail"
        advice = "" if state == "ok" else "; free some, or choose another place with SUPERVISOR_HOME"
        needs_space = name != "runtime"  # sockets take none
        yield Finding(f"folder {name}", state if needs_space else "ok", f"{folder}, {size(free)} free{advice}")


def check_daemon(args: argparse.Namespace) -> Iterator[Finding]:
    """Check that a daemon answers, is of this version, and uses the configuration that was found here."""
    try:
        daemon = find(args)
    except SupervisorError as error:
        yield Finding("daemon", "fail", f"{error.message} [{error.code}]")
        return
    if daemon is None:
        yield Finding("daemon", "ok", "none runs; it starts when it is needed")
        return
    yield _of_daemon(daemon)
    other = None if explicit_url(args) else other_configuration(daemon.status, os.environ, Path.cwd(), args.config)
    if other is not None:
        yield Finding("daemon configuration", "warn", other[1])


def _of_daemon(daemon: Daemon) -> Finding:
    version = str(daemon.status.get("version"))
    if version != __version__:
        advice = f"`{command_name(os.environ)} stop` ends it"
        return Finding("daemon", "fail", f"version {version} runs, this command is {__version__}; {advice}")
    configuration = daemon.status.get("config") or {}
    refused, waiting = configuration.get("error"), configuration.get("restart_needed")
    if refused:
        return Finding("daemon", "warn", f"it keeps its old configuration: {refused.get('message')}")
    if waiting:
        return Finding("daemon", "warn", f"{', '.join(waiting)}: changed; takes effect at the next start of the daemon")
    return Finding("daemon", "ok", f"answers at {daemon.client.url} (pid {daemon.status.get('pid')})")


def check_limits() -> Iterator[Finding]:
    """Check how many files may be open: a stream takes two."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        shown = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        enough = hard == resource.RLIM_INFINITY or hard >= _FEW_FILES
        advice = "" if enough else f"; raise the hard limit (ulimit -Hn) to {_FEW_FILES} for many streams at once"
        yield Finding("open files", "ok" if enough else "warn", f"{soft} now, {shown} at most{advice}")


def _shortcomings(known: Capabilities) -> Iterator[Finding]:
    if not known.supports("--list-devices"):
        yield Finding("engine", "warn", "it cannot list devices; `engine install` gets a newer build")


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest existing folder above it."""
    return next(path for path in (folder, *folder.parents) if path.exists())
