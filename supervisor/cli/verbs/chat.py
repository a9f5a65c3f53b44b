"""`chat [MODEL]`: talk to a model."""

from __future__ import annotations

import argparse
import sys

from supervisor.cli.options import require
from supervisor.cli.piped import piped_text
from supervisor.cli.registry import Verb
from supervisor.cli.talking.turns import add_talking, talk

VERB = Verb(
    summary="talk to a model",
    order=150,
    description="""Talk to a model: a conversation on a terminal, one answer to what is piped in or given with -m. The
model is loaded if need be, and a daemon started.""",
    examples=(
        ("chat", "with the loaded model, else demo"),
        ('chat demo -m "Who are you?"', "one answer"),
        ("chat owner/repo < question.txt", "one answer to a file"),
    ),
    exits=((4, "the model does not fit"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="what `load` takes (default: the one loaded model, else demo)"
    )
    parser.add_argument("-m", "--message", metavar="TEXT", help="send this, print the answer, end")
    add_talking(parser)
    parser.set_defaults(thoughts=True)


def run(args: argparse.Namespace) -> int:
    """Answer one message, or hold a conversation."""
    return talk(args, args.model, _single_message(args))


def _single_message(args: argparse.Namespace) -> str | None:
    """Return the one message to send; None on a terminal without -m."""
    if args.message is None and sys.stdin.isatty():
        return None
    message = piped_text() if args.message is None else str(args.message)
    require(message.strip(), "There is no message to send; give one with -m or pipe one in.")
    return message
