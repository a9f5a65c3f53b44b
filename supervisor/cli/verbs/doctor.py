"""`doctor`: checks that everything is well, and says what to do where it is not."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from supervisor.cli.checks import (
    Finding,
    check_config,
    check_daemon,
    check_devices,
    check_engine,
    check_folders,
    check_limits,
    check_program,
)
from supervisor.cli.exits import FAILED, OK
from supervisor.cli.prose import fitted
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json
from supervisor.system.paths import places

VERB = Verb(
    summary="check that everything is well",
    order=250,
    description="""Look at everything the program needs and say how it is, a line each: ok, warn or fail. Below
what is not well stands how to mend it. Nothing is changed.""",
    examples=(("doctor", "a line for each thing looked at"),),
    exits=((1, "something is broken"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="the configuration file")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to look at")


def run(args: argparse.Namespace) -> int:
    """Print the findings as they come; with `--json` at the end, all at once."""
    findings = []
    for finding in _findings(args):
        findings.append(finding)
        if not args.json:
            _print(finding)
    broken = any(finding.state == "fail" for finding in findings)
    if args.json:
        print_json({"ok": not broken, "checks": [vars(finding) for finding in findings]})
    return FAILED if broken else OK


def _print(finding: Finding) -> None:
    """Print one finding, and below it what to do."""
    message = finding.message.replace("\n", "\n      ")
    print(fitted(f"{finding.state:<4}  {finding.name}: {message}", sys.stdout, "      "), flush=True)
    if finding.fix is not None:
        print(fitted(f"      fix: {finding.fix}", sys.stdout, "           "), flush=True)


def _findings(args: argparse.Namespace) -> Iterator[Finding]:
    where = places(os.environ)
    yield from check_program()
    settings, configuration = check_config(args, where)
    yield configuration
    located, findings = check_engine(where, args.engine or settings.engine.path)
    yield from findings
    yield from check_devices(located, settings)
    yield from check_folders(where)
    yield from check_limits()
    yield from check_daemon(args)
