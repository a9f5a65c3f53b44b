"""`load TARGET`: a ready model, and where it answers."""

from __future__ import annotations

import argparse

from supervisor.cli.background import ensure
from supervisor.cli.client import Json
from supervisor.cli.exits import OK
from supervisor.cli.installing import engine_of
from supervisor.cli.launching import add_launch_options, add_preference, launch_options, preferred
from supervisor.cli.loading import load, parse_target
from supervisor.cli.options import add_background
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import bold, print_json

VERB = Verb(
    summary="load a model and print its endpoint",
    order=40,
    description="""Load a model and print where it answers. Starts a daemon in the background if none runs. A model that
is loaded already stays as it is, unless other options are given; these hold until it is unloaded. Ctrl-C cancels the
load.""",
    examples=(
        ("load demo", "the built-in model"),
        ("load models/qwen3-8b.gguf", "a file"),
        ("load owner/repo:Q4_K_M", "a model from the hub"),
        ("load owner/repo --prefer speed", "of a repository the variant that is fastest here"),
        ("load owner/repo -c 32k -ctk q8_0", "with options of llama-server"),
    ),
    exits=((4, "the model does not fit"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="demo, a path, owner/repo[:quant] of the hub, or a known id")
    parser.add_argument("--id", metavar="ID", help="the name to give the model (default: from the file's name)")
    add_launch_options(parser)
    add_preference(parser)
    parser.add_argument("--reset-options", action="store_true", help="drop the options of earlier loads first")
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Load, and print the endpoint."""
    body = _body(args)
    with progress() as report:
        daemon = ensure(args, report)
        engine_of(args, daemon, report)
        status = load(daemon, body, report)
    if args.json:
        print_json({"base_url": daemon.base_url, "model": status["id"], "status": status})
    else:
        print(f"{bold(status['id'])} is ready{_details(status)}")
        print(f"  base URL  {daemon.base_url}")
        print(f"  model     {status['id']}")
        for step in status.get("fallbacks", ()):
            print(f"  note      {step}")
    return OK


def _body(args: argparse.Namespace) -> Json:
    options = launch_options(args)
    body: Json = {"target": parse_target(args.target), **preferred(args)}
    if args.id:
        body["id"] = args.id
    if options:
        body["options"] = options
    if args.reset_options:
        body["reset"] = True
    return body


def _details(status: Json) -> str:
    context, seconds = status.get("n_ctx"), status.get("load_seconds")
    found = [f"context {context}"] if context else []
    found += [f"loaded in {seconds:.1f} s"] if seconds is not None else []
    return f" ({', '.join(found)})" if found else ""
