"""`supervisor VERB …`: finds the verb, runs it, turns errors into words and exit codes.

A verb is a module with `add_parser(subparsers)`, which sets `run(args) -> int` as the parser's default. Only the module
of the verb that was asked for is imported: start-up time is what a person feels first.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import supervisor
from supervisor.cli import exits
from supervisor.cli.intact import check_intact
from supervisor.cli.options import command_name
from supervisor.errors import SupervisorError, SystemRefused, UsageError

VERBS = {
    "demo": "supervisor.cli.demo",
    "serve": "supervisor.cli.serve",
    "load": "supervisor.cli.load",
    "unload": "supervisor.cli.unload",
    "pin": "supervisor.cli.pin",
    "unpin": "supervisor.cli.unpin",
    "ps": "supervisor.cli.ps",
    "events": "supervisor.cli.events",
    "models": "supervisor.cli.models",
    "pull": "supervisor.cli.pull",
    "rm": "supervisor.cli.rm",
    "verify": "supervisor.cli.verify",
    "chat": "supervisor.cli.chat",
    "inspect": "supervisor.cli.inspect",
    "estimate": "supervisor.cli.estimate",
    "plan": "supervisor.cli.plan",
    "logs": "supervisor.cli.logs",
    "stop": "supervisor.cli.stop",
    "toolcalls": "supervisor.cli.toolcalls",
    "engine": "supervisor.cli.engine",
    "config": "supervisor.cli.config",
    "devices": "supervisor.cli.devices",
    "doctor": "supervisor.cli.doctor",
    "clean": "supervisor.cli.clean",
}
"""Verb to module, in the order of the help text."""


_ELSEWHERE = "or choose another folder (SUPERVISOR_HOME for the program's own files)."
_FORBIDDEN = f"Make it writable for you, {_ELSEWHERE}"
_FULL = f"Free some room on the disk, {_ELSEWHERE}"
_ADVICE = {
    errno.EROFS: _FORBIDDEN,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.ENOTDIR: _FORBIDDEN,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
}
"""What to do about what the system refuses, by its number."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are UsageErrors, so that `--json` shapes them too."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}. Try `{self.prog} --help`.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code; `--help` exits by itself."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        check_intact()
        code = _run(arguments)
        sys.stdout.flush()
    except SupervisorError as error:
        return _fail(error, "--json" in arguments)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has had enough; give the interpreter's last flush somewhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FAILED
    except Exception as error:  # noqa: BLE001 - the last resort: nobody should have to read a traceback
        return _crash(error, "--json" in arguments)
    return code


def build_parser(verbs: Sequence[str]) -> Parser:
    """The parser with the given verbs; importing each one's module."""
    parser = Parser(
        prog=command_name(os.environ),
        description="Runs many llama.cpp models on the hardware you have.",
        epilog="New here? `%(prog)s demo` shows everything, from nothing.",
    )
    parser.add_argument("--version", action="version", version=f"llama-supervisor {_version()}")
    subparsers = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")
    for verb in verbs:
        importlib.import_module(VERBS[verb]).add_parser(subparsers)
    return parser


def _version() -> str:
    return getattr(supervisor, "__version__", "?")  # absent where another distribution overwrote the package


def _run(arguments: list[str]) -> int:
    asked = arguments[0] if arguments else ""
    if asked not in VERBS and not asked.startswith("-") and asked:
        raise UsageError(_no_verb(asked))
    parser = build_parser([asked] if asked in VERBS else list(VERBS))
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise UsageError(f"Unrecognized arguments: {' '.join(unknown)}. Try `{parser.prog} {args.verb} --help`.")
    if args.verb is None:
        parser.print_help(sys.stderr)
        return exits.USAGE
    code: int = args.run(args)
    return code


def _no_verb(asked: str) -> str:
    from supervisor.core.nearest import did_you_mean  # noqa: PLC0415 - only a slip needs it

    near = did_you_mean(asked, VERBS)
    return f"There is no verb '{asked}'{near or '.'} `{command_name(os.environ)} --help` lists them all."


def _fail(error: SupervisorError, as_json: bool) -> int:
    if as_json:
        from supervisor.cli.render import print_json  # noqa: PLC0415 - only a failure needs it here

        print_json({"error": _described(error)})
    else:
        for line in error.log_lines:
            print(f"  | {line}", file=sys.stderr)
        print(f"error: {error.message} [{error.code}]", file=sys.stderr)
    return exits.exit_code(error)


def _described(error: SupervisorError) -> dict[str, object]:
    found: dict[str, object] = {
        "message": error.message,
        "type": "error",
        "code": error.code,
        "param": error.param,
    }
    return {**found, "log_lines": list(error.log_lines)} if error.log_lines else found


def _crash(error: Exception, as_json: bool) -> int:
    advice = _ADVICE.get(error.errno or 0) if isinstance(error, OSError) else None
    if advice is not None:
        return _fail(SystemRefused(f"The system refused: {error}. {advice}"), as_json)
    from supervisor.cli.crash import write_traceback  # noqa: PLC0415 - only a bug needs it

    where = write_traceback(error, os.environ)
    if isinstance(error, OSError):
        return _fail(SupervisorError(f"The system refused: {error}. {where}"), as_json)
    return _fail(SupervisorError(f"This is a bug in the program: {type(error).__name__}: {error}. {where}"), as_json)
