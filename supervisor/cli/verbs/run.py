"""`run MODEL [PROMPT]`: one answer, for people and for pipes."""

from __future__ import annotations

import argparse
import sys

from supervisor.cli.options import require
from supervisor.cli.piped import piped_text
from supervisor.cli.registry import Verb
from supervisor.cli.talking.turns import add_talking, talk

VERB = Verb(
    summary="answer one prompt",
    order=145,
    description="""Answer one prompt and end. What is piped in follows the prompt, or is the prompt. The model is
loaded if need be, and a daemon started. Without a prompt, on a terminal, it is `chat`.""",
    examples=(
        ('run demo "Who are you?"', "the answer on stdout"),
        ('run owner/repo "Sum this up:" < report.txt', "a prompt with a file behind it"),
        ("run demo < question.txt > answer.txt", "in a pipe: the answer alone, without reasoning"),
    ),
    exits=((4, "the model does not fit"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="what `load` takes")
    parser.add_argument("prompt", nargs="*", metavar="PROMPT", help="the prompt; several words are one prompt")
    add_talking(parser)
    parser.add_argument("--thoughts", action="store_true", help="in a pipe: the reasoning, too")


def run(args: argparse.Namespace) -> int:
    """Answer the prompt, what is piped in, or both."""
    return talk(args, args.model, _prompt(args))


def _prompt(args: argparse.Namespace) -> str | None:
    """Return the prompt; None where neither an argument nor a pipe has one."""
    given = " ".join(args.prompt).strip()
    if sys.stdin.isatty():
        return given or None
    piped = piped_text().strip()
    require(given or piped, "There is no prompt; give one behind the model, or pipe one in.")
    return "\n\n".join(text for text in (given, piped) if text)
