"""`forget MODEL`: a load by path or reference added it, and nobody wants to see it any more."""

from __future__ import annotations

import argparse

from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json

VERB = Verb(
    summary="drop a model that a load added",
    order=80,
    description="""Take a model that a load added out of the list of models. Its files stay: `rm` removes those of the
hub's cache. A loaded model is refused, and so is one of the configuration.""",
    examples=(("forget qwen3-8b", "its files stay"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="its id or alias")


def run(args: argparse.Namespace) -> int:
    """Forget the model and say so."""
    was = connect(args).client.post("/api/v1/models/forget", {"model": args.model})
    if args.json:
        print_json(was)
    else:
        print(f"{was['id']} is forgotten")
    return OK
