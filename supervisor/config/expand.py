"""Expand `${env.NAME}`, `${env.NAME:-otherwise}` and `${macro}` in values; `$${` is a plain `${`.

Macros are the top level's `macros:`, a name and a value each; they may use variables and each other. A value that is
one macro and nothing else becomes what the macro is, a number for one; anywhere else it is put in as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from supervisor.config.document import Loc

MACROS = "macros"
MOST_CHARACTERS = 1 << 20
"""That references put in, in the whole configuration."""
PLACES = frozenset({"SOCKET", "PORT", "PID"})
"""What is put in when an engine is started; here it stays as it is."""
_DEEPEST = 32  # macros within macros
_NAME = re.compile(r"[A-Za-z_][\w-]*")
_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")


class Misuse(NamedTuple):
    """A reference that leads nowhere, and its place."""

    loc: Loc
    message: str


def expand(data: Mapping[str, object], env: Mapping[str, str] | None) -> tuple[dict[str, object], list[Misuse]]:
    """Return the data without macros and references, and the references that lead nowhere.

    env: None where no variable of an environment may be used.
    """
    expander = _Expander(data.get(MACROS), env)
    rest = {key: expander.value(value, (key,)) for key, value in data.items() if key != MACROS}
    return rest, expander.faults


class _Unknown(Exception):
    """Nothing has this name; the argument says what to do."""


class _TooLarge(Exception):
    """References expand to more than is allowed."""


class _Expander:
    def __init__(self, macros: object, env: Mapping[str, str] | None) -> None:
        self.faults: list[Misuse] = []
        self._env = env
        self._macros: dict[str, object] = {}
        self._expanded: dict[str, object] = {}
        self._open: list[str] = []
        self._left = MOST_CHARACTERS
        self._take(macros)
        for name in self._macros:
            self.value(f"${{{name}}}", (MACROS, name))  # also those that nobody uses

    def value(self, value: object, loc: Loc) -> object:
        """Return the value with every reference in it replaced."""
        if isinstance(value, dict):
            return {key: self.value(item, (*loc, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, (*loc, number)) for number, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value or self._left < 0:
            return value
        try:
            return self._text(value)
        except _Unknown as error:
            self.faults.append(Misuse(loc, str(error)))
        except _TooLarge:
            self.faults.append(Misuse(loc, f"macros and variables expand to more than {MOST_CHARACTERS:,} characters"))
        return value

    def _take(self, macros: object) -> None:
        if macros is None:
            return
        if not isinstance(macros, dict):
            self.faults.append(Misuse((MACROS,), "must be a mapping of names to values"))
            return
        for name, value in macros.items():
            if not _NAME.fullmatch(name) or name == "env" or name in PLACES:
                self.faults.append(
                    Misuse(
                        (MACROS, name),
                        "a macro's name has letters, digits, _ and -, and is none of env, SOCKET, PORT, PID",
                    )
                )
            elif isinstance(value, dict | list):
                self.faults.append(Misuse((MACROS, name), "a macro is a single value"))
            else:
                self._macros[name] = value

    def _text(self, text: str) -> object:
        whole = _REFERENCE.fullmatch(text)
        if whole is not None:
            return self._referred(whole)
        return _REFERENCE.sub(self._put_in, text)

    def _put_in(self, found: re.Match[str]) -> str:
        text = _spelled(self._referred(found))
        self._left -= len(text)
        if self._left < 0:
            raise _TooLarge
        return text

    def _referred(self, found: re.Match[str]) -> object:
        if found.group() == "$${":
            return "${"
        name = found.group(1)
        if name is None:
            raise _Unknown("`${` is not closed; write `$${` where no reference is meant")
        if name in PLACES:
            return found.group()
        if name.startswith("env."):
            return self._variable(name.removeprefix("env."))
        if name not in self._macros:
            raise _Unknown(f"there is no macro `{name}`; define it under `macros`, or write `$${{` for a plain `${{`")
        if name in self._open:
            raise _Unknown(f"the macro `{name}` contains itself")
        if len(self._open) >= _DEEPEST:
            raise _Unknown(f"macros are nested more than {_DEEPEST} deep")
        if name not in self._expanded:
            value = self._macros[name]
            self._open.append(name)
            try:
                self._expanded[name] = self._text(value) if isinstance(value, str) else value
            finally:
                self._open.remove(name)
        return self._expanded[name]

    def _variable(self, reference: str) -> str:
        if self._env is None:
            raise _Unknown("each node has variables of its own: write the value, or a macro")
        name, has_default, otherwise = reference.partition(":-")
        found = self._env.get(name)
        if found or (found is not None and not has_default):
            return found
        if has_default:
            return otherwise
        raise _Unknown(f"the variable {name} is not set; set it, or write `${{env.{name}:-otherwise}}`")


def _spelled(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
