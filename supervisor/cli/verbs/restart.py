"""`restart`: the installed program and its configuration take over from the daemon; engines and streams go on."""

from __future__ import annotations

import argparse

from supervisor.cli.daemon import connect_any
from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.restarting import take_over

VERB = Verb(
    summary="restart the daemon; engines and streams go on",
    order=202,
    description="""Have the program that is installed now, with its configuration, take over from the running daemon. It
is tried in another process first; where it would not start, the daemon goes on as it is. Engines stay loaded, requests
go on, no connection is refused. Linux only; elsewhere the daemon ends after its requests and is started again.""",
    examples=(("restart", "after an upgrade of the package, or to have a long-running daemon begin anew"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the common options are all."""


def run(args: argparse.Namespace) -> int:
    """Have it taken over."""
    take_over(args, connect_any(args))
    return OK
