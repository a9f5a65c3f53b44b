"""`completions SHELL`: the script that gives a shell completion."""

from __future__ import annotations

import argparse

from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json
from supervisor.cli.shells import SCRIPTS

VERB = Verb(
    summary="print the script of a shell's completion",
    order=270,
    description="""Print the script by which a shell completes verbs, options, names of models and files. Names come
from the running daemon, else from the configuration; no daemon is started.""",
    examples=(
        ("completions bash", 'for ~/.bashrc: eval "$(supervisor completions bash)"'),
        ("completions zsh", 'for ~/.zshrc, after compinit: eval "$(supervisor completions zsh)"'),
        ("completions fish", "for config.fish: supervisor completions fish | source"),
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help=f"{', '.join(SCRIPTS)}")


def run(args: argparse.Namespace) -> int:
    """Print it."""
    if args.json:
        print_json({"shell": args.shell, "script": SCRIPTS[args.shell]})
    else:
        print(SCRIPTS[args.shell], end="")
    return OK
