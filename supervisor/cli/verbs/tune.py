"""`tune MODEL`: find the options with which a model is fastest here."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import psutil

from supervisor.cli.background import ensure
from supervisor.cli.client import Json
from supervisor.cli.daemon import Daemon, api_key, at_endpoint, explicit_url
from supervisor.cli.exits import OK
from supervisor.cli.installing import engine_of
from supervisor.cli.launching import add_launch_options, launch_options
from supervisor.cli.loading import parse_target
from supervisor.cli.options import add_background
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json, print_table, say
from supervisor.cli.tuning import Row, Tuner, as_it_was, text_of
from supervisor.core.speed.tuning import Job
from supervisor.errors import UsageError
from supervisor.system.cores import physical_cores
from supervisor.system.paths import places

VERB = Verb(
    summary="find the launch options with which a model is fastest",
    order=187,
    description="""Try what can be chosen: threads, the physical batch, types of the KV cache, experts on the host,
speculation. Each is planned first: only what fits beside the models that are loaded, with as long a context,
counts. The fastest by what is foretold are loaded and measured, one kind of choice after the other. Options that are
given stay. At the end the model is as it was before.""",
    examples=(
        ("tune owner/repo:Q4_K_M", "for a prompt of 1,024 tokens and an answer of 128"),
        ("tune demo --prompt 4096 --answer 64 --minutes 20", "for long prompts, with more time"),
        ("tune MODEL -ctk q8_0 -ctv q8_0 --write", "with these set; what is best goes into the configuration"),
    ),
    exits=((4, "the model does not fit, or another one would have to leave"),),
)


def _count(text: str) -> int:
    found = int(text)
    if not 1 <= found <= 1_000_000:
        raise argparse.ArgumentTypeError("must be from 1 to 1000000")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="MODEL", help="a target of `load`")
    parser.add_argument("--prompt", type=_count, metavar="N", default=1024, help="tokens of a prompt (default: 1024)")
    parser.add_argument("--answer", type=_count, metavar="N", default=128, help="tokens of an answer (default: 128)")
    parser.add_argument("--minutes", type=float, metavar="N", default=10.0, help="no trial begins later (default: 10)")
    parser.add_argument("--most", type=_count, metavar="N", default=2, help="trials per kind of choice (default: 2)")
    parser.add_argument("--write", action="store_true", help="put what is best into the daemon's configuration file")
    add_launch_options(parser)
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Search, show the table, and write if that is wanted."""
    target, given = parse_target(args.target), launch_options(args)
    with progress() as report:
        daemon = ensure(args, report)
        file = _file(args, daemon, target) if args.write else None
        engine_of(args, daemon, report)
        ends = time.monotonic() + args.minutes * 60
        job = Job(args.prompt, max(2, args.answer))
        tuner = Tuner(daemon, target, given, job, args.most, ends, time.monotonic, report)
        with as_it_was(daemon, target, _known(daemon, target)):
            best = tuner.search(physical_cores(), psutil.cpu_count() or 1)
            model = _known(daemon, target) or {"id": target}
    if file is not None:
        _write(file, model, target, {**given, **best.changes})
    if args.json:
        print_json({"model": model["id"], "best": best.to_json(), "trials": [row.to_json() for row in tuner.rows]})
    else:
        _show(tuner.rows, best, job)
        say(f"It is in {file} now." if file else "--write puts it into the configuration file.")
    return OK


def _show(rows: list[Row], best: Row, job: Job) -> None:
    headers = ("", "OPTIONS", "FORETOLD s", "PREFILL t/s", "DECODE t/s", "SECONDS")
    print_table(headers, [_cells(row, best) for row in rows])
    say(f"SECONDS: a prompt of {job.prompt:,} tokens and an answer of {job.answer:,}. Best: {text_of(best.changes)}.")


def _cells(row: Row, best: Row) -> tuple[str, ...]:
    speeds = [f"{value:.1f}" if value is not None else "-" for value in (row.prefill, row.decode)]
    foretold = f"{row.foretold:.2f}" if row.foretold is not None else "-"
    seconds = f"{row.seconds:.2f}" if row.seconds is not None else row.note
    return ("→" if row is best else " ", text_of(row.changes), foretold, *speeds, seconds)


def _known(daemon: Daemon, target: str) -> Json | None:
    """Return the status of the model that is meant, if the daemon has it."""
    found = daemon.client.get("/api/v1/models")["models"]
    return next((one for one in found if target in {one["id"], one["path"], one["hub"], *one["aliases"]}), None)


def _file(args: argparse.Namespace, daemon: Daemon, target: str) -> Path:
    """Return the configuration of this machine's own daemon: what is at another URL must not name files here."""
    if explicit_url(args) is not None:
        here = at_endpoint(places(os.environ), api_key(args))
        if here is None or here.base_url != daemon.base_url:
            raise UsageError(
                f"--write changes a file of the daemon's machine, and {daemon.client.url} is not known to be the "
                "daemon of this state folder. Run this command there without --url, or leave out --write."
            )
        daemon = here
    path = (daemon.client.get("/api/v1/status").get("config") or {}).get("path")
    if path is None:
        raise UsageError(
            "The daemon has no configuration file to write to. `config init` makes one; start it with that."
        )
    known = _known(daemon, target)
    if known is not None and _is_shared(daemon, known["id"]):
        raise UsageError(
            f"'{known['id']}' is in the configuration that all nodes of the cluster share. Leave out --write, and put "
            "the options there: `cluster config show`, `cluster config set`."
        )
    return Path(path)


def _is_shared(daemon: Daemon, model: str) -> bool:
    values = daemon.client.get("/api/v1/config", {"model": model})["values"]
    return any(one["origin"] == "cluster" for one in values)


def _write(file: Path, model: Json, target: str, options: Json) -> None:
    from supervisor.config.change import write_options  # noqa: PLC0415 - 150 ms that only this costs

    source = {"file": target} if target.startswith("/") else {"source": model.get("hub") or target}
    write_options(file, os.environ, model["id"], source, options)
