"""`pull TARGET`: a model of the hub on disk, not loaded."""

from __future__ import annotations

import argparse
import contextlib

from supervisor.cli.background import ensure
from supervisor.cli.client import Json, remote_error
from supervisor.cli.daemon import Daemon
from supervisor.cli.exits import OK
from supervisor.cli.loading import download_text
from supervisor.cli.options import add_background
from supervisor.cli.progress import Report, progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import bold, print_json, size
from supervisor.errors import DaemonError

VERB = Verb(
    summary="download a model from the hub",
    order=120,
    description="""Download a model from the hub without loading it; without a quantisation the best that fits here.
What is on disk already is not fetched again. Ctrl-C calls it off; whole files are kept.""",
    examples=(
        ("pull owner/repo:Q4_K_M", "one quantisation"),
        ("pull owner/repo", "the best that fits here"),
        ("pull owner/repo:Q4_K_M --update", "the newest commit"),
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="owner/repo[:quant], owner/repo/file.gguf, @revision")
    parser.add_argument("--update", action="store_true", help="ask the hub whether there is a newer commit")
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Download, and print where the model is."""
    with progress() as report:
        daemon = ensure(args, report)
        found = _pulled(daemon, {"model": args.target, "update": args.update}, report)
    if args.json:
        print_json(found)
        return OK
    print(f"{bold(found['model'])} is on disk ({size(found['size_bytes'])}, commit {found['commit'][:12]})")
    if args.update:
        print(f"updated from {found['previous'][:12]}" if found["updated"] else "that is the newest commit")
    return OK


def _pulled(daemon: Daemon, body: Json, report: Report) -> Json:
    found: Json = {}
    with contextlib.closing(daemon.client.events("/api/v1/models", body)) as events:
        for event in events:
            found = daemon.client.parsed(event)
            if found["state"] == "failed":
                raise remote_error(found)
            if found["state"] == "downloading":
                shown = found["download"]
                share = shown["done_bytes"] / shown["total_bytes"] if shown["total_bytes"] else None
                report(f"{found['model']}: {download_text(shown)}" if share else found["model"], share)
    if found.get("state") != "done":
        raise DaemonError("The daemon broke off before the download was over; see `supervisor logs`.")
    return found
