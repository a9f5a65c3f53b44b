"""`supervisor VERB …`: finds the verb, runs it, turns errors into words and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import supervisor
from supervisor.cli import exits
from supervisor.cli.intact import check_intact
from supervisor.cli.options import command_name
from supervisor.cli.registry import VERBS, Registry
from supervisor.errors import SupervisorError, UsageError
from supervisor.system.terminal import guard_streams

_HELP = "help"
_OWN = frozenset({"", "-h", "--help", "--version"})
"""What may stand in the place of a verb."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are UsageErrors, so that `--json` shapes them too."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}. Try `{self.prog} --help`.")


def main(argv: Sequence[str] | None = None, verbs: Registry = VERBS) -> int:
    """Run one command line (default: the process's own) and return its exit code; `--help` exits by itself."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    guard_streams()
    try:
        check_intact()
        code = _run(arguments, verbs)
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


def build_parser(verb: str | None, verbs: Registry = VERBS) -> Parser:
    """Make the parser for one verb, importing its module; None: one that lists them all."""
    parser = Parser(
        prog=command_name(os.environ),
        description="Runs many llama.cpp models on the hardware you have.",
        epilog="" if verb else _also_understood(verbs),
    )
    parser.add_argument("--version", action="version", version=f"llama-supervisor {_version()}")
    subparsers = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")
    if verb is not None:
        verbs.add_to(subparsers, verb)
        return parser
    for name, record in verbs.records.items():
        subparsers.add_parser(name, help=record.summary)
    return parser


def _also_understood(verbs: Registry) -> str:
    also = ", ".join(f"{word} ({meant})" for word, meant in verbs.aliases.items())
    known = f"Also understood: {also}. " if also else ""
    return f"{known}New here? `%(prog)s demo` shows everything, from nothing."


def _version() -> str:
    return getattr(supervisor, "__version__", "?")  # absent where another distribution overwrote the package


def _run(arguments: list[str], verbs: Registry) -> int:
    if arguments[:1] == [_HELP]:
        arguments = [*arguments[1:2], "--help"]
    asked, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    verb = verbs.find(asked)
    if verb is None and asked not in _OWN:
        raise UsageError(_no_verb(asked, verbs))
    parser = build_parser(verb, verbs)
    args, unknown = parser.parse_known_args([verb, *rest] if verb else arguments)
    if unknown:
        raise UsageError(f"Unrecognized arguments: {' '.join(unknown)}. Try `{parser.prog} {args.verb} --help`.")
    if args.verb is None:
        parser.print_help(sys.stderr)
        return exits.USAGE
    code: int = args.run(args)
    return code


def _no_verb(asked: str, verbs: Registry) -> str:
    me = command_name(os.environ)
    if asked.startswith("-"):
        return f"The verb comes first, its options after it. `{me} --help` lists the verbs."
    from supervisor.core.text.nearest import did_you_mean  # noqa: PLC0415 - only a slip needs it

    near = did_you_mean(asked, (*verbs.records, *verbs.aliases))
    return f"There is no verb '{asked}'{near or '.'} `{me} --help` lists them all."


def _fail(error: SupervisorError, as_json: bool) -> int:
    if as_json:
        from supervisor.cli.render import print_json  # noqa: PLC0415 - only a failure needs it here

        print_json({"error": _described(error)})
    else:
        from supervisor.cli.render import note  # noqa: PLC0415 - as above

        for line in error.log_lines:
            print(f"  | {line}", file=sys.stderr)
        note(f"error: {error.message} [{error.code}]")
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
    from supervisor.system.refusal import refused  # noqa: PLC0415 - only a failure needs it

    told = refused(error, folder=True) if isinstance(error, OSError) else None
    if told is not None:
        return _fail(told, as_json)
    from supervisor.cli.crash import write_traceback  # noqa: PLC0415 - only a bug needs it

    where = write_traceback(error, os.environ)
    if isinstance(error, OSError):
        return _fail(SupervisorError(f"The system refused: {error}. {where}"), as_json)
    return _fail(SupervisorError(f"This is a bug in the program: {type(error).__name__}: {error}. {where}"), as_json)
