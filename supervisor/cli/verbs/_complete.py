"""`_complete`: what may be typed next, for the scripts of `completions`. Its name keeps it out of every list."""

from __future__ import annotations

import argparse
import os
import sys

from supervisor.cli.completion import behind_breaks, candidates, words_of
from supervisor.cli.exits import OK
from supervisor.cli.names import model_names
from supervisor.cli.registry import VERBS, Verb
from supervisor.cli.shells import BETWEEN, FILES

VERB = Verb(
    summary="say what may be typed next",
    order=1000,
    description="Say what may be typed next: behind the words of $SUPERVISOR_WORDS, or the line of $SUPERVISOR_LINE.",
    examples=(("_complete", "what the scripts of `completions` ask"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the words come by the environment, so that none of them is taken for an option."""


def run(args: argparse.Namespace) -> int:
    """Print the words, and FILES where names of files may stand."""
    line = os.environ.get("SUPERVISOR_LINE")
    typed = os.environ.get("SUPERVISOR_WORDS", "").split(BETWEEN) if line is None else words_of(line)
    found = candidates(typed, VERBS, model_names)
    words = found.words if line is None else [behind_breaks(word, typed[-1]) for word in found.words]
    sys.stdout.write("".join(f"{word}\n" for word in (*words, *([FILES] if found.files else ()))))
    return OK
