"""Pinning a model and letting it go again: the one call behind `pin` and `unpin`."""

from __future__ import annotations

import argparse

from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.render import print_json


def set_pinned(args: argparse.Namespace, verb: str) -> int:
    """Call the REST interface's verb of that name for `args.model`, print the result and return the exit code."""
    status = connect(args).client.post(f"/api/v1/models/{verb}", {"model": args.model})
    if args.json:
        print_json(status)
    else:
        print(f"{status['id']} is {'pinned' if status['pinned'] else 'not pinned'}")
    return OK
