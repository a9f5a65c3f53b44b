"""`config …`: writes, checks and shows the configuration; makes one of another program's."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.cli.configured import configuration_of, in_force_here, other_configuration
from supervisor.cli.daemon import at_endpoint, connect
from supervisor.cli.exits import FAILED, OK
from supervisor.cli.options import add_daemon, inner_verb, positive, require
from supervisor.cli.registry import Verb
from supervisor.cli.render import note, print_json, print_table
from supervisor.errors import ConfigError, DaemonError, SupervisorError, UsageError
from supervisor.system.paths import places

if TYPE_CHECKING:
    from supervisor.core.models.registry import ModelEntry

VERB = Verb(
    summary="write, check and show the configuration",
    order=230,
    description="Write, check and show the configuration, or make one of another program's.",
    examples=(
        ("config init -o supervisor.yaml", "a file that names the models that are here"),
        ("config check", "what is wrong, with line and column"),
        ("config show", "every value that counts, and where it comes from"),
        ("config import config.yaml -o supervisor.yaml", "from llama-swap's file"),
    ),
    exits=((1, "`config check`: something is wrong with the file"),),
)

_MOST_IMPORTED = 1 << 20  # bytes: thousands of models; some 20,000 take half a minute
_WHICH = "the configuration (default: the one that `serve` would use)"


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)
    init = inner_verb(verbs, "init", "write a file from what caches and folders hold", run_init)
    init.add_argument("--models-dir", metavar="DIR", action="append", default=[], help="a folder to look in as well")
    init.add_argument("--num-models", metavar="N", type=positive, help="a template for N models instead")
    _add_output(init)
    check = inner_verb(verbs, "check", "say what is wrong with a file", run_check)
    check.add_argument("file", metavar="FILE", nargs="?", help=_WHICH)
    check.add_argument("--insecure", action="store_true", help="as for `serve --insecure`: any address, without a key")
    schema = inner_verb(verbs, "schema", "print the JSON schema, for editors", run_schema)
    schema.set_defaults(json=True)
    show = inner_verb(verbs, "show", "print what counts, and where each value comes from", run_show)
    show.add_argument("--config", metavar="FILE", help=_WHICH)
    show.add_argument("--all", action="store_true", help="the defaults of every model, too")
    reload = inner_verb(verbs, "reload", "let the running daemon take over its changed file", run_reload)
    add_daemon(reload)
    taken = inner_verb(
        verbs, "import", "make a file of llama-swap's config.yaml or llama-server's preset .ini", run_import
    )
    taken.add_argument("file", metavar="FILE", help="that program's configuration")
    taken.add_argument(
        "--from", choices=("llama-swap", "preset"), dest="origin", help="its origin (default: by its name)"
    )
    _add_output(taken)


def run_init(args: argparse.Namespace) -> int:
    """Write a new configuration."""
    from supervisor.cli.config_init import found_models  # noqa: PLC0415 - start-up time
    from supervisor.config.write import as_text, template  # noqa: PLC0415 - as above

    require(not (args.num_models and args.models_dir), "Give either --num-models or --models-dir.")
    if args.num_models:
        return _give(args, template(args.num_models), {})
    folders = [Path(os.path.expanduser(folder)) for folder in args.models_dir]
    missing = next((folder for folder in folders if not os.path.isdir(folder)), None)
    require(missing is None, f"{missing} is not a folder; check --models-dir.")
    models = found_models(os.environ, folders, note)
    if not models:
        note("no models were found; `config init --num-models 2` writes a template")
    return _give(args, as_text({"models": models}), {"models": models})


def run_check(args: argparse.Namespace) -> int:
    """Check a file; return 1 where something is wrong."""
    from supervisor.config import load_settings  # noqa: PLC0415 - start-up time
    from supervisor.config.faults import as_json  # noqa: PLC0415 - as above
    from supervisor.config.load import Start  # noqa: PLC0415 - as above
    from supervisor.models.configured import configured_models, missing_files  # noqa: PLC0415 - as above

    path = _path(args.file)
    _note_daemon(args.file)
    try:
        settings = load_settings(path, os.environ, Start(insecure=args.insecure))
        models = configured_models(settings)
    except ConfigError as error:
        if not args.json or not error.faults:
            raise
        print_json({"ok": False, "faults": as_json(error)})
        return FAILED
    names = [entry.id for entry in models]
    found = [{"key": f"models.{name}", "message": f"{file} does not exist."} for name, file in missing_files(models)]
    found += _lacking(models, settings.engine.path)
    if args.json:
        print_json({"ok": True, "path": str(path) if path else None, "models": names, "warnings": found})
    else:
        for one in found:
            note(f"warning: {one['key']}: {one['message']}")
        print(f"{path or 'no file, so the defaults'}: ok; models: {', '.join(names)}")
    return OK


def _lacking(models: Iterable[ModelEntry], engine: str | None) -> list[dict[str, str]]:
    """List options of models that the engine does not have; nothing where there is no engine."""
    from supervisor.core.launch import lacking  # noqa: PLC0415 - start-up time
    from supervisor.llamacpp.locate import search  # noqa: PLC0415 - as above

    try:
        located = search(places(os.environ), os.environ, engine)
    except SupervisorError:
        return []  # `doctor` says it
    if located.found is None or located.capabilities is None:
        return []
    flags, where = located.capabilities.flags, located.found.path
    told = ((entry.id, error) for entry in models for error in lacking(entry.options, flags))
    return [{"key": f"models.{name}.{error.param}", "message": f"{error.message} ({where})."} for name, error in told]


def run_schema(_args: argparse.Namespace) -> int:
    """Print the schema."""
    from supervisor.config.editors import editor_schema  # noqa: PLC0415 - start-up time

    print_json(editor_schema())
    return OK


def run_show(args: argparse.Namespace) -> int:
    """Print the effective values."""
    import json  # noqa: PLC0415 - start-up time

    from supervisor.config.shown import shown  # noqa: PLC0415 - as above

    path = _path(args.config)
    _note_daemon(args.config)
    rows = list(shown(in_force_here(path, os.environ, places(os.environ)), os.environ, everything=args.all))
    if args.json:
        values = [{"key": row.key, "value": row.value, "from": row.origin, "place": row.place or None} for row in rows]
        print_json({"path": str(path) if path else None, "values": values})
        return OK
    table = [
        (row.key, json.dumps(row.value, ensure_ascii=False), " ".join(filter(None, (row.origin, row.place))))
        for row in rows
    ]
    print_table(("KEY", "VALUE", "FROM"), table)
    return OK


def run_reload(args: argparse.Namespace) -> int:
    """Let the daemon read its configuration again."""
    daemon = connect(args)
    found = daemon.client.post("/api/v1/config/reload", {}, timeout=None)
    if args.json:
        print_json(found)
        return OK
    print(f"reloaded: {configuration_of(daemon.status)}")
    for name in ("added", "removed", "relaunched", "adjusted", "restart_needed"):
        if found.get(name):
            print(f"  {name.replace('_', ' ')}: {', '.join(found[name])}")
    return OK


def run_import(args: argparse.Namespace) -> int:
    """Make a configuration of another program's."""
    from supervisor.config.imports import from_llama_swap, from_preset  # noqa: PLC0415 - start-up time
    from supervisor.config.write import as_text  # noqa: PLC0415 - as above

    path = Path(os.path.expanduser(args.file))
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_IMPORTED + 1)
        if len(content) > _MOST_IMPORTED:
            raise UsageError(f"{path} is larger than {_MOST_IMPORTED >> 20} MiB; split it, and import the parts.")
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    origin = args.origin or ("preset" if path.suffix == ".ini" else "llama-swap")
    found = from_preset(text) if origin == "preset" else from_llama_swap(text, path.name)
    for one in found.notes:
        note(f"not carried over: {one}")
    comments = [f"Made of {path.name} ({origin}).", *(f"Not carried over: {one}" for one in found.notes)]
    return _give(args, as_text(found.data, comments), {"settings": found.data, "notes": found.notes})


def _give(args: argparse.Namespace, text: str, as_json: dict[str, object]) -> int:
    """Write the text to a new file, or to standard output."""
    if args.output is not None:
        path = Path(os.path.expanduser(args.output))
        try:
            with path.open("w" if args.force else "x", encoding="utf-8") as stream:
                stream.write(text)
        except FileExistsError:
            raise UsageError(f"{path} is there already; --force writes over it.") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}; name another file with -o.") from None
        note(f"written: {path}")
        as_json = {**as_json, "written": str(path)}
    if args.json:
        print_json({**as_json, "text": text})
    elif args.output is None:
        print(text, end="")
    return OK


def _note_daemon(explicit: str | None) -> None:
    """Say that the running daemon uses another file than the one that is looked at."""
    with contextlib.suppress(DaemonError):
        daemon = at_endpoint(places(os.environ), os.environ.get("SUPERVISOR_API_KEY"))
        other = other_configuration(daemon.status, os.environ, Path.cwd(), explicit) if daemon else None
        if other is not None:
            note(f"note: {other[1]}")


def _path(explicit: str | None) -> Path | None:
    from supervisor.config import find_config  # noqa: PLC0415 - start-up time

    return find_config(explicit, os.environ, Path.cwd(), places(os.environ).config)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="where to (default: standard output)")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
