"""`upgrade`: as `restart`, where the daemon runs another version than the one that is installed."""

from __future__ import annotations

import argparse

from supervisor import __version__
from supervisor.cli.daemon import connect_any
from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json
from supervisor.cli.restarting import take_over

VERB = Verb(
    summary="have the daemon run the version that is installed",
    order=204,
    description="""Have the installed version take over from the running daemon, as `restart` does, unless the daemon
runs it already. It installs nothing: upgrade the package first, the way it was installed.""",
    examples=(("upgrade", "after `uv tool upgrade llama-supervisor`, or `pip install --upgrade llama-supervisor`"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the common options are all."""


def run(args: argparse.Namespace) -> int:
    """Have it taken over, where it is of another version."""
    daemon = connect_any(args)
    if daemon.status["version"] != __version__:
        take_over(args, daemon)
    elif args.json:
        print_json({"pid": daemon.status["pid"], "version": __version__, "before": __version__})
    else:
        print(f"the daemon (pid {daemon.status['pid']}) runs version {__version__} already")
    return OK
