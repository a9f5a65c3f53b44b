"""Walk the members of a JSON object that is still arriving, one level deep, with the repairs of `jsonscan`."""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.jsonscan import JsonScan
from supervisor.core.toolcalls.jsontext import loads
from supervisor.core.toolcalls.source import Wait, peek, run_of, take

_MAX_KEY: Final = 256
_WORD: Final = re.compile(r"\w*")
_NONE: Final = frozenset({"null", "None"})


class Members:
    """The object at the scan's position. Call `enter`, then `key` until None; read the value after each key.

    Attributes:
        good: False once the text turns out to be no object, or is cut.
    """

    def __init__(self, scan: JsonScan) -> None:
        self.scan = scan
        self.good = True
        self._doubled = False
        self._first = True

    def enter(self) -> Wait[bool]:
        """Go past the opening brace, or both if it is doubled."""
        self.good = yield from take(self.scan.src, "{")
        if self.good:
            yield from self.scan.space()
            self._doubled = yield from take(self.scan.src, "{")
            self.scan.repaired |= self._doubled
        return self.good

    def key(self) -> Wait[str | None]:
        """Return the next key, with the source at its value; None at the end, or where `good` turns False."""
        scan = self.scan
        yield from scan.space()
        char = yield from peek(scan.src)
        comma = char == ","
        if comma:
            if self._first:
                self._bad()
                return None
            scan.src.pos += 1
            yield from scan.space()
            char = yield from peek(scan.src)
        if char == "}":
            scan.repaired |= comma
            yield from self._close()
            return None
        begins_key = char in {'"', "'"} or char.isalpha() or char == "_"
        if not begins_key:
            self._stopped()
            return None
        if not comma and not self._first:
            self._bad()
            return None
        self._first = False
        return (yield from self._read_key(char))

    def skip_null(self) -> Wait[bool]:
        """Go past a value that says nothing, and return whether there was one."""
        start = self.scan.src.pos
        word = yield from run_of(self.scan.src, _WORD, 8)
        if word in _NONE:
            return True
        self.scan.src.seek(start)
        return False

    def _read_key(self, char: str) -> Wait[str | None]:
        scan = self.scan
        if char in {'"', "'"}:
            key = yield from short_string(scan, _MAX_KEY)
        else:
            key = yield from run_of(scan.src, _WORD, _MAX_KEY)
            scan.repaired = True
        yield from scan.space()
        colon = yield from take(scan.src, ":")
        if key is None or not colon:
            self._bad()
            return None
        yield from scan.space()
        return key

    def _close(self) -> Wait[None]:
        yield from take(self.scan.src, "}")
        if self._doubled:
            yield from self.scan.space()
            yield from take(self.scan.src, "}")

    def _stopped(self) -> None:
        """Note that the object ends without its brace."""
        src = self.scan.src
        self.good = not (src.cut and src.at_end())
        self.scan.repaired = True

    def _bad(self) -> None:
        self.good = False


def short_string(scan: JsonScan, limit: int) -> Wait[str | None]:
    """Return the characters of the string that begins here; None if it is none, does not end, or exceeds `limit`."""
    mark = yield from peek(scan.src)
    if not scan.may_quote(mark):
        return None
    scan.src.pos += 1
    parts: list[str] = []
    size = 0
    while size <= limit:
        part = yield from scan.string_part(mark)
        if part is None:
            return None
        if not part:
            value = loads(f'"{"".join(parts)}"')
            return value if isinstance(value, str) else None
        parts.append(part)
        size += len(part)
    return None
