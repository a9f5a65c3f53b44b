"""Check that further arguments are ones that llama-server takes, and that whoever gives them may give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from supervisor.core.engine_output.capabilities import Flags
from supervisor.core.launch.emit import unknown_option
from supervisor.core.launch.environment import is_setting
from supervisor.core.launch.rules import NEWER, Rule, rule_of
from supervisor.errors import InvalidRequest

Trust = Literal["configuration", "client"]
"""The source of the arguments: the configuration file, or a client of the REST interface."""

_PARAM = "extra_args"
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")


def check_extra(extra: Sequence[str], flags: Flags | None, trust: Trust = "configuration") -> None:
    """Refuse arguments that the engine would reject, or that this source may not give.

    Args:
        extra: flags and their values, as typed.
        flags: what the binary knows; None: then only the table of rules is applied.
        trust: who gives them.

    Raises:
        InvalidRequest: not allowed, a field's own option, a value missing or too much.
        OptionNotSupported: the binary has no such option; the nearest is named.
    """
    if any("\0" in argument for argument in extra):
        raise InvalidRequest("an argument cannot hold a NUL character", param=_PARAM)
    for flag in filter(None, map(spelled, extra)):
        _check_allowed(flag, trust)
    asked = _grammar(extra, flags) if flags is not None else filter(None, map(spelled, extra))
    for flag in asked:
        if trust == "client" and rule_of(flag) is NEWER:
            raise _configuration_only(flag, NEWER)


def check_env(env: Mapping[str, str]) -> None:
    """Refuse names that are no variables, or that give llama-server options past us. Raise InvalidRequest."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequest(f"{name!r} cannot be set: not a variable's name and value", param="env")
        if is_setting(name):
            raise InvalidRequest(
                f"{name} cannot be set: llama-server reads an option from it; give that among the model's options",
                param="env",
            )


def spelled(token: str) -> str | None:
    """Return the option that this token is, as llama-server reads it (`_` for `-` in long ones).

    None if it is a value.
    """
    name, _, _ = token.partition("=")
    if not _FLAG.fullmatch(name):
        return None
    return name.replace("_", "-") if name.startswith("--") else name


def _check_allowed(flag: str, trust: Trust) -> None:
    """Check a token by the table alone; one in a value's place is treated as the flag that it looks like."""
    rule = rule_of(flag)
    if rule.level == "field":
        where = "" if rule.client else " in the configuration file"
        raise InvalidRequest(f"{flag} cannot be given: use the option {rule.text}{where}", param=_PARAM)
    if rule.level == "never":
        raise InvalidRequest(f"{flag} cannot be given: {rule.text}", param=_PARAM)
    if rule.level == "configuration" and trust == "client" and rule is not NEWER:
        raise _configuration_only(flag, rule)


def _configuration_only(flag: str, rule: Rule) -> InvalidRequest:
    return InvalidRequest(f"{flag} may stand in the configuration file only: {rule.text}", param=_PARAM)


def _grammar(extra: Sequence[str], flags: Flags) -> Iterator[str]:
    """Walk as llama-server does, an option and then as many values as it takes, and yield the options."""
    rest = list(extra)
    while rest:
        token = rest.pop(0)
        flag = spelled(token)
        if flag is None:
            raise InvalidRequest(
                f"{token!r} is not an option, and no option before it takes it as a value", param=_PARAM
            )
        if flag not in flags:
            raise unknown_option(flag, flags, _PARAM)
        if "=" in token:
            raise InvalidRequest(f"{token!r}: give {flag} and its value as two arguments", param=_PARAM)
        values, rest = rest[: flags[flag]], rest[flags[flag] :]
        stray = next((value for value in values if spelled(value) in flags), None)
        if stray is not None or len(values) < flags[flag]:
            after = f", but the option {stray} follows" if stray else ""
            raise InvalidRequest(f"{flag} needs {flags[flag]} value{'s' * (flags[flag] > 1)}{after}", param=_PARAM)
        yield flag
