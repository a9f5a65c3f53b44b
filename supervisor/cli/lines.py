"""Verbs that answer lines: a JSON value for each line of standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable

from supervisor.cli.exits import FAILED, OK
from supervisor.cli.render import print_json_line
from supervisor.errors import SupervisorError


def answer_lines(answer: Callable[[str], object]) -> int:
    """Print what `answer` makes of each line, an error object where it raises; empty lines are passed over."""
    code = OK
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            print_json_line(answer(line))
        except SupervisorError as error:
            print_json_line({"error": {"code": error.code, "message": error.message}})
            code = FAILED
    return code
