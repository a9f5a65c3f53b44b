"""`engine`: where llama-server comes from, and which one is used."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from supervisor.cli.exits import OK
from supervisor.cli.installing import run_until_signal, teller
from supervisor.cli.options import inner_verb, positive, require
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import ago, cell, print_json, print_table
from supervisor.system.paths import places

if TYPE_CHECKING:
    from supervisor.llamacpp.install import InstallRequest
    from supervisor.llamacpp.locate import EngineBinary
    from supervisor.llamacpp.store import Chosen, EngineStore, Manifest

VERB = Verb(
    summary="get, build and choose llama-server",
    order=220,
    description="Show which llama-server is used; get, build or choose one.",
    examples=(
        ("engine which", "the engine that would be used, and why"),
        ("engine install", "the official build for this machine, else one from source"),
        ("engine build --backend cuda", "from source, for NVIDIA GPUs"),
        ("engine install mlx", "mlx-lm, for models in safetensors"),
        ("engine use --previous", "back to the one before"),
    ),
)

LLAMA, MLX = "llama-server", "mlx"
BACKENDS = ("auto", "cpu", "cuda", "hip", "vulkan", "metal")
ROUTES = {"auto": ("release", "registry", "git"), "release": ("release",), "source": ("registry", "git")}
_HEADERS = ("NAME", "BUILD", "COMMIT", "BACK END", "FROM", "MADE", "")

_WHICH = """Show the llama-server that would be used. Order of search: --engine, $SUPERVISOR_LLAMA_SERVER,
$LLAMA_SERVER_PATH, the one chosen with `engine use`, others installed here, PATH, the usual build folders, those
installed with --no-use."""
_INSTALL = """Get an engine by the first route that works: the official release archive for this machine, else a build
from source. It is tried out with the built-in model before it is used; the one before stays for
`engine use --previous`. `mlx` is mlx-lm, with all that it needs in an environment of its own."""
_BUILD = """Build an engine from source. `registry` takes the source from the Python package index that is configured,
`git` from the repository, a folder is built as it is. Compilers must be installed; cmake is fetched if there is
none."""
_USE = "Choose the engine for engines started from now on; running models keep theirs until they are loaded again."


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="engine_verb", required=True)

    which = inner_verb(verbs, "which", "show the engine that would be used", run_which, _WHICH)
    which.add_argument("--engine", metavar="PATH", help="a llama-server, its folder, or the name of an engine here")
    inner_verb(verbs, "list", "show the engines installed here", run_list)

    install = inner_verb(verbs, "install", "get an engine by the first route that works", run_install, _INSTALL)
    install.add_argument("what", nargs="?", choices=(LLAMA, MLX), default=LLAMA, help="default: %(default)s")
    install.add_argument("--route", choices=tuple(ROUTES), default="auto", help="which routes (default: %(default)s)")
    install.add_argument("--if-missing", action="store_true", help="mlx: leave one of the same versions as it is")
    _add_making(install)

    build = inner_verb(verbs, "build", "build an engine from source", run_build, _BUILD)
    build.add_argument("--from", dest="origin", metavar="{registry,git,DIR}", default="registry",
                       help="where the source comes from (default: %(default)s)")  # fmt: skip
    build.add_argument("--jobs", type=positive, metavar="N", help="compilers at once (default: one per core)")
    _add_making(build)

    use = inner_verb(verbs, "use", "choose an engine, or go back to the previous one", run_use, _USE)
    use.add_argument("name", nargs="?", metavar="NAME", help="a name from `engine list`, or a path")
    use.add_argument("--previous", action="store_true", help="the engine used before this one")

    remove = inner_verb(verbs, "remove", "delete an engine installed here", run_remove)
    remove.add_argument("name", metavar="NAME", help="a name from `engine list`")


def run_which(args: argparse.Namespace) -> int:
    """Print the engine that would be used, and what was passed over on the way to it."""
    from supervisor.llamacpp.locate import locate, search  # noqa: PLC0415 - start-up time
    from supervisor.llamacpp.store import manifest_of  # noqa: PLC0415 - as above

    where = places(os.environ)
    found = search(where, os.environ, args.engine)
    if found.found is None or found.capabilities is None:
        locate(where, os.environ, args.engine)  # raises EngineNotFound with what was passed over
        return OK
    known = found.capabilities
    manifest = manifest_of(found.found.path.resolve())
    skipped = [{"path": str(s.path), "source": s.source, "reason": s.reason} for s in found.skipped]
    facts = {
        **_binary_facts(found.found),
        "build": known.build,
        "commit": known.commit,
        "backends": list(known.backends),
    }
    if args.json:
        capabilities = {"version": known.version_text, "flags": sorted(known.flags)}
        digest = {"sha256": manifest.sha256} if manifest else {}
        print_json({**facts, "capabilities": capabilities, **digest, "skipped": skipped})
        return OK
    shown = {**facts, "backends": ", ".join(known.backends), "version": known.version_text,
             "options": f"{len(known.flags)} known"}  # fmt: skip
    _print_facts(shown)
    for one in skipped:
        print(f"passed over {one['path']} ({one['source']}): {one['reason']}", file=sys.stderr)
    return OK


def run_list(args: argparse.Namespace) -> int:
    """Print the engines in the store."""
    store = _store()
    from supervisor.engines.mlx.environment import find_python  # noqa: PLC0415 - start-up time

    chosen, engines = store.chosen(), store.engines()
    python = find_python(os.environ)
    if args.json:
        listed = [_engine_facts(store, manifest, chosen) for manifest in engines]
        mlx = None if python is None else str(python)
        print_json({"engines": listed, "current": chosen.current, "previous": chosen.previous, "mlx": mlx})
        return OK
    if engines:
        print_table(_HEADERS, [_row(manifest, chosen) for manifest in engines])
    else:
        print("no llama-server is installed here; `engine install` gets one")
    if python is not None:
        print(f"mlx-lm, for models in safetensors: {python}")
    return OK


def run_install(args: argparse.Namespace) -> int:
    """Install an engine."""
    return _install_mlx(args) if args.what == MLX else _make(args, ROUTES[args.route])


def run_build(args: argparse.Namespace) -> int:
    """Build an engine from source."""
    known = args.origin in {"registry", "git"}
    return _make(args, (args.origin if known else os.path.abspath(os.path.expanduser(args.origin)),))


def run_use(args: argparse.Namespace) -> int:
    """Choose an engine."""
    require(bool(args.name) != args.previous, "Give either a NAME from `engine list` or --previous.")
    store = _store()
    chosen = store.choose_previous() if args.previous else store.choose(_choosable(store, args.name))
    return _print_chosen(args, store, chosen)


def run_remove(args: argparse.Namespace) -> int:
    """Delete an engine."""
    if args.name == MLX:
        from supervisor.llamacpp.mlxlm import remove_mlx  # noqa: PLC0415 - start-up time

        require(remove_mlx(os.environ), "mlx-lm is not installed here.")
        return _tell(args, {"removed": MLX})
    store = _store()
    return _print_chosen(args, store, store.remove(args.name))


def _add_making(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", choices=BACKENDS, default="auto",
                        help="auto: the best that this machine has (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--no-use",
        action="store_true",
        help="install it beside the others: used if named or chosen later, or if there is no other",
    )
    parser.add_argument("--wait", action="store_true", help="if another process installs an engine: wait for it")


def _make(args: argparse.Namespace, routes: tuple[str, ...]) -> int:
    from supervisor.llamacpp.install import InstallRequest  # noqa: PLC0415 - start-up time

    jobs = getattr(args, "jobs", None)
    request = InstallRequest(routes, args.backend, jobs, use=not args.no_use, wait=args.wait)
    manifest = _install(request)
    store = _store()
    facts = _engine_facts(store, manifest, store.chosen())
    return _tell(args, facts)


def _install(request: InstallRequest) -> Manifest:
    from supervisor.llamacpp.install import install  # noqa: PLC0415 - start-up time
    from supervisor.service.smoke import SmokeTest  # noqa: PLC0415 - as above

    where = places(os.environ)
    with progress() as report:
        work = install(where, os.environ, request, smoke_test=SmokeTest(where, os.environ), progress=teller(report))
        return run_until_signal(work)


def _install_mlx(args: argparse.Namespace) -> int:
    from supervisor.llamacpp.mlxlm import install_mlx, is_current  # noqa: PLC0415 - start-up time

    if args.if_missing and is_current(os.environ):
        return OK
    with progress() as report:
        work = install_mlx(places(os.environ), os.environ, wait=args.wait, report=teller(report))
        path = run_until_signal(work)
    return _tell(args, {"name": MLX, "path": str(path)})


def _store() -> EngineStore:
    from supervisor.llamacpp.store import EngineStore  # noqa: PLC0415 - start-up time

    return EngineStore(places(os.environ).engines)


def _choosable(store: EngineStore, name: str) -> str:
    """Return a name of the store as it is. Anything else is a path, which is tried before it is chosen."""
    if name in {manifest.name for manifest in store.engines()}:
        return name
    from supervisor.llamacpp.locate import locate  # noqa: PLC0415 - start-up time

    return str(locate(places(os.environ), os.environ, name).path)


def _print_chosen(args: argparse.Namespace, store: EngineStore, chosen: Chosen) -> int:
    path = str(store.binary(chosen.current)) if chosen.current else None
    facts = {"current": chosen.current, "previous": chosen.previous, "path": path}
    return _tell(args, facts)


def _binary_facts(binary: EngineBinary) -> dict[str, object]:
    return {"path": str(binary.path), "source": binary.source}


def _engine_facts(store: EngineStore, manifest: Manifest, chosen: Chosen) -> dict[str, object]:
    return {
        **vars(manifest),
        "path": str(store.binary(manifest.name)),
        "current": manifest.name == chosen.current,
        "previous": manifest.name == chosen.previous,
    }


def _row(manifest: Manifest, chosen: Chosen) -> tuple[str, ...]:
    mark = {chosen.previous: "previous", chosen.current: "current"}.get(manifest.name, "")
    return (
        manifest.name,
        cell(manifest.build),
        cell(manifest.commit),
        manifest.backend,
        manifest.source,
        ago(manifest.made_at),
        mark,
    )


def _tell(args: argparse.Namespace, facts: Mapping[str, object]) -> int:
    if args.json:
        print_json(facts)
    else:
        _print_facts(facts)
    return OK


def _print_facts(facts: Mapping[str, object]) -> None:
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {cell(value)}")
